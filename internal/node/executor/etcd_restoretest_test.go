//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

const scratchDB = "data/member/snap/db"

// fakeScratchData creates the data of a temporary etcd from a snapshot.
func fakeScratchData(args []string) (string, error) {
	value := map[string]string{}
	for i := 3; i < len(args); i += 2 {
		value[args[i]] = args[i+1]
	}
	if value["--initial-cluster"] != "scratch="+value["--initial-advertise-peer-urls"] || value["--name"] != "scratch" {
		return "", fmt.Errorf("unexpected: etcdutl %q", args)
	}
	raw, err := os.ReadFile(args[2])
	if err != nil {
		return "", err
	}
	to := filepath.Join(filepath.Dir(value["--data-dir"]), scratchDB)
	return "", errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, raw, 0o600))
}

// fakeEtcd serves until it receives SIGTERM, unless its data make it fail.
func fakeEtcd(_ *world, args []string) (string, error) {
	value := map[string]string{}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		value[k] = v
	}
	dir := filepath.Dir(value["--data-dir"])
	if want := "unix://" + filepath.Join(dir, "client.sock"); value["--listen-client-urls"] != want ||
		!strings.HasPrefix(value["--listen-peer-urls"], "unix://"+dir) {
		return "", fmt.Errorf("etcd listens at %s and %s", value["--listen-client-urls"], value["--listen-peer-urls"])
	}
	raw, err := os.ReadFile(filepath.Join(dir, scratchDB))
	if err != nil {
		return "", err
	}
	if strings.Contains(string(raw), "panics") {
		return "", errors.New("panic: invalid freelist page")
	}
	if strings.Contains(string(raw), "members") && !slices.Contains(args, "--force-new-cluster") {
		return "", errors.New("it waits for the others")
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	up := filepath.Join(dir, "up")
	if err := os.WriteFile(up, nil, 0o600); err != nil {
		return "", err
	}
	<-ctx.Done()
	_ = os.Remove(up) // it may be gone with its directory
	unix.Exit(0)      // the world is others' to write
	return "", nil
}

// askScratch responds for the etcd in a directory. The data of that etcd is "whole
// REVISION" and the value of one Secret.
func askScratch(dir string, args []string) (string, error) {
	if !host.Exists(filepath.Join(dir, "up")) {
		return "", errors.New("connection refused")
	}
	raw, err := os.ReadFile(filepath.Join(dir, scratchDB))
	if err != nil {
		return "", err
	}
	var revision int64
	var secret string
	_, _ = fmt.Sscanf(says(raw), "whole %d %s", &revision, &secret)
	switch {
	case strings.Join(args, " ") == "endpoint status -w json":
		return fmt.Sprintf(`[{"Endpoint":"x","Status":{"header":{"revision":%d},"version":"3.7.0","leader":7}}]`, revision), nil
	case args[0] == "get" && args[1] == "":
		return `{"kvs":[{"key":"YQ=="}],"more":true,"count":3}`, nil
	case args[0] == "get" && secret == "":
		return `{"header":{}}`, nil
	case args[0] == "get":
		raw, err := json.Marshal(map[string]any{
			"count": 1,
			"kvs":   []map[string]any{{"key": []byte(args[1] + "default/token"), "value": []byte(secret)}},
		})
		return string(raw), err
	case args[0] == "snapshot" && args[1] == "save":
		return "", os.WriteFile(args[2], raw, 0o600)
	}
	return "", fmt.Errorf("unexpected: etcdctl %q", args)
}

func drill(b op.Blob) op.EtcdRestoreTest {
	return op.EtcdRestoreTest{Name: "prod-1", Snapshot: b, EtcdPrograms: programs(), Prefix: "/registry/secrets/"}
}

func programs() op.EtcdPrograms {
	return op.EtcdPrograms{Server: "etcd", Program: "etcdctl", Utility: "etcdutl"}
}

func TestEtcdRestoreTest_ReportsContentOfSnapshot(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "k8s:enc:x"} {
		h := newHost(t)
		const old = "var/lib/slipway/drills/old/data"
		h.write(old, "of a helper that was killed")
		h.write("../fakes/scopes/slipway-scratch-old.scope", "")
		const passed = "var/lib/slipway/passing/sha256/0a1b"
		h.write(passed, "a snapshot of such a one")
		if before := time.Now().Add(-25 * time.Hour); os.Chtimes(h.path(passed), before, before) != nil {
			t.Fatal("its time cannot be set")
		}
		o := drill(h.blobs.add([]byte("whole 4711 " + secret)))
		if r := h.check(o)[0]; r.Status != op.Changed {
			t.Errorf("%+v", r)
		}
		r := h.apply(o)[0]
		if r.Error != nil {
			t.Fatalf("%+v", r.Error)
		}
		var is op.EtcdRestoreTested
		if err := json.Unmarshal(r.Output, &is); err != nil {
			t.Fatal(err)
		}
		if is.Revision != 4711 || is.Keys != 3 || is.Version != "3.7.0" || is.Snapshot.Revision != 4711 || is.Snapshot.Keys != 3 ||
			string(is.Value) != secret || (is.Key == "") != (secret == "") {
			t.Errorf("%+v", is)
		}
		if host.Exists(h.path(old)) {
			t.Error("what a helper left that was killed is still there")
		}
		h.noDrill(o)
	}
}

// noDrill checks that a restore test left nothing.
func (h *testHost) noDrill(o op.EtcdRestoreTest) {
	h.t.Helper()
	if host.Exists(h.path("var/lib/slipway/drills/" + o.Name)) {
		h.t.Error("the drill's data are left")
	}
	if left, _ := filepath.Glob(h.path("var/lib/slipway/passing/sha256/*")); len(left) > 0 {
		h.t.Errorf("the snapshot is left: %v", left)
	}
	h.noScope()
}

// noScope checks that no temporary etcd left its scope.
func (h *testHost) noScope() {
	h.t.Helper()
	if left, _ := filepath.Glob(h.scopes() + "/*"); len(left) > 0 {
		h.t.Errorf("there is still %v", left)
	}
}

func TestEtcdRestoreTest_ReportsCauseAndLeavesNothing(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		content      string
		do           func(*op.EtcdRestoreTest)
		want         string
	}{
		{"damaged", "etcdutl reports it", "half", nil, op.ReasonEtcdSnapshot},
		{"data that end etcd", "the error of etcd is reported at once", "whole 1 panics", nil, op.ReasonScratchFailed},
		{"full disk", "the test does not start", "whole 1", func(o *op.EtcdRestoreTest) { o.Snapshot.Size = 1 << 60 }, "DiskFull"},
		{"a name that leads elsewhere", "it leaves its directory", "whole 1", func(o *op.EtcdRestoreTest) { o.Name = "../ledger" }, "Invalid"},
		{"no etcd", "there is nothing to run", "whole 1", func(o *op.EtcdRestoreTest) { o.Server = "/nowhere/etcd" }, op.ReasonScratchFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			o := drill(h.blobs.add([]byte(tc.content)))
			if tc.do != nil {
				tc.do(&o)
			}
			if r := h.r.Apply(t.Context(), h.batch(o), nil)[0]; r.Error == nil || r.Error.Reason != tc.want {
				t.Errorf("%+v, want %s: %s", r.Error, tc.want, tc.reason)
			}
			if o.Name == "prod-1" {
				h.noDrill(o)
			}
		})
	}
}

// TestScratchEtcd_LeavesNoScope checks that the scope is gone at the end: after the test completed,
// after its context was cancelled, and after systemd removed the empty scope.
func TestScratchEtcd_LeavesNoScope(t *testing.T) {
	for _, tc := range []struct {
		name, onRun string
		cut         bool
	}{{"used", "", false}, {"cut off", "", true}, {"systemd hears of its end", "scope goes", false}} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.withState(func(w *world) { w.OnRun = tc.onRun })
			s, err := h.r.session(host.Batch{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			c := etcd.NewScratch(s.Host, programs(), h.path("var/lib/slipway/drills/prod-1"))
			h.write("var/lib/slipway/drills/prod-1/"+scratchDB, "whole 1")
			h.write("../fakes/scopes/"+filepath.Base(c.ScopeName()), "") // of a killed etcd
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err = c.Serve(ctx, 1, func(ctx context.Context) error {
				if !host.Exists(filepath.Join(h.scopes(), c.ScopeName())) {
					t.Error("it does not run in a separate scope")
				}
				if tc.cut {
					cancel()
				}
				return ctx.Err()
			})
			if (err != nil) != tc.cut {
				t.Error(err)
			}
			h.noScope()
		})
	}
}

// TestScratchEtcd_RefusesSnapshotLargerThanMemory checks that the available memory of a
// host limits the restore tests that can start on it.
func TestScratchEtcd_RefusesSnapshotLargerThanMemory(t *testing.T) {
	t.Parallel()
	var c etcd.Scratch
	if need, err := c.MemoryLimit(1 << 20); err != nil || need != etcd.ScratchMemory+2<<20 {
		t.Errorf("%d, %v", need, err)
	}
	var e *op.Error
	if _, err := c.MemoryLimit(1 << 60); !errors.As(err, &e) || e.Reason != op.ReasonScratchMemory {
		t.Errorf("%v", err)
	}
}
