//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The limits of the management server on a machine with two cores. Times and memory are of
// the whole process, with its database. Times are printed, because other programs change them;
// memory and size are checked.
const (
	maxCold, maxWarm   = 8 * time.Second, 4 * time.Second
	maxServerCPU       = 2500 * time.Millisecond // start, three seconds without requests, stop
	maxIdleMiB         = 350
	maxBusyMiB         = 450 // with busyObjects, a moment after their creation
	maxRestartedMiB    = 450 // with manyObjects, right after a start
	busyObjects        = 3000
	manyObjects        = 5000
	maxServerBytes     = 170_000_000
	rounds             = 3
	idle, settlingTime = 3 * time.Second, 10 * time.Second
)

// TestServer starts the management server as a user does, uses it with kubectl, and measures
// its start and its memory.
func TestServer(t *testing.T) {
	info, err := os.Stat(daemonPath(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("figure: binary %d MB", info.Size()/1e6)
	if info.Size() > maxServerBytes {
		t.Errorf("slipwayd has %d bytes; the limit is %d", info.Size(), maxServerBytes)
	}
	data := measureStarts(t)
	d := startServer(t, data, freeAddress(t))
	k := buildKubectl(t, d)
	t.Run("systemd", func(t *testing.T) {
		eventually(t, 10*time.Second, "the report to systemd", func() error {
			if !d.isReported() {
				return errors.New("there is no READY=1")
			}
			return nil
		})
	})
	t.Run("kubectl", func(t *testing.T) { useKubectl(t, k) })
	t.Run("two field managers", func(t *testing.T) { applyByTwo(t, k) })
	t.Run("watch", func(t *testing.T) { watchClusters(t, k) })
	t.Run("port in use", func(t *testing.T) {
		r := runProgram(t, nil, daemonPath(t), "server", "--data-dir="+filepath.Join(t.TempDir(), "data"), "--listen="+d.address)
		requireRefusal(t, r, "server-port-in-use")
	})
	t.Run("data directory in use", func(t *testing.T) {
		r := runProgram(t, nil, daemonPath(t), "server", "--data-dir="+data, "--listen="+freeAddress(t))
		requireRefusal(t, r, "data-dir-in-use")
	})
	measureMemory(t, d)
	d.kill(t)
	after := startServer(t, data, d.address)
	all, anonymous := after.residentMiB(t)
	t.Logf("figure: after kill -9 with %d objects: ready %.1f s, resident %d MiB (%d anonymous)",
		manyObjects, after.ready.Seconds(), all, anonymous)
	if all > maxRestartedMiB {
		t.Errorf("after a start with %d objects, the server has %d MiB; the limit is %d", manyObjects, all, maxRestartedMiB)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(after.mustRequest(t, http.MethodGet, clustersPath, nil), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) < manyObjects {
		t.Errorf("after a kill, %d of %d clusters exist", len(list.Items), manyObjects)
	}
	after.stop(t)
}

// measureStarts starts a server on new data and on existing data, several times, and returns
// the last data directory. It prints the best round: other programs can slow a round down, and
// nothing makes one faster.
func measureStarts(t *testing.T) string {
	t.Helper()
	var cold, warm, cpu []time.Duration
	var data string
	for range rounds {
		data = filepath.Join(t.TempDir(), "data")
		d := startServer(t, data, freeAddress(t))
		cold = append(cold, d.ready)
		t.Logf("figure: cold: ready %.2f s, started %.2f s", d.ready.Seconds(), d.started.Seconds())
		d.stop(t)

		d = startServer(t, data, freeAddress(t))
		warm = append(warm, d.ready)
		<-time.After(idle)
		all, anonymous := d.residentMiB(t)
		d.stop(t)
		cpu = append(cpu, d.usedCPU())
		t.Logf("figure: warm: ready %.2f s, started %.2f s; start, %s idle and stop: CPU %.2f s; resident idle %d MiB (%d anonymous)",
			d.ready.Seconds(), d.started.Seconds(), idle, d.usedCPU().Seconds(), all, anonymous)
		if all > maxIdleMiB {
			t.Errorf("without objects, the server has %d MiB; the limit is %d", all, maxIdleMiB)
		}
	}
	t.Logf("figure: best of %d: a cold start %.2f s (limit %s), a warm start %.2f s (limit %s), its CPU time %.2f s (limit %s)", rounds,
		slices.Min(cold).Seconds(), maxCold, slices.Min(warm).Seconds(), maxWarm, slices.Min(cpu).Seconds(), maxServerCPU)
	return data
}

// measureMemory creates small clusters and reports the memory of the server. The memory is
// read after a moment without requests, in which the runtime returns some of it.
func measureMemory(t *testing.T, d *daemon) {
	t.Helper()
	last := 0
	for _, objects := range []int{500, busyObjects, manyObjects} {
		start := time.Now()
		d.createClusters(t, last, objects)
		took := time.Since(start)
		last = objects
		<-time.After(settlingTime)
		all, anonymous := d.residentMiB(t)
		t.Logf("figure: %d objects: resident %d MiB (%d anonymous); the last of them created in %.1f s", objects, all, anonymous, took.Seconds())
		if objects == busyObjects && all > maxBusyMiB {
			t.Errorf("with %d objects, the server has %d MiB; the limit is %d", objects, all, maxBusyMiB)
		}
	}
}

// useKubectl applies, shows, explains and deletes a cluster.
func useKubectl(t *testing.T, k kubectl) {
	t.Helper()
	const example = "../../docs/guide/server-example.yaml"
	k.must(t, "apply", "-f", example)
	for _, want := range []struct {
		reason string
		args   []string
		has    []string
	}{
		{"the short name shows the cluster", []string{"get", "slc"}, []string{"NAME", "example"}},
		{"the category has it too", []string{"get", "slipway"}, []string{"example"}},
		{"fields are described", []string{"explain", "cluster.spec.hosts"}, []string{"address", "roles", "DESCRIPTION"}},
		{"the build has set the version of Kubernetes", []string{"get", "--raw", "/version"}, []string{`"gitVersion": "v1.`}},
		{"an unchanged file changes nothing", []string{"apply", "-f", example}, []string{"unchanged"}},
		{"it can be deleted", []string{"delete", "slc", "example", "--timeout=60s"}, []string{"deleted"}},
	} {
		out := k.must(t, want.args...)
		for _, text := range want.has {
			if !strings.Contains(out, text) {
				t.Errorf("%s: kubectl %s has no %q:\n%s", want.reason, strings.Join(want.args, " "), text, textTail(out))
			}
		}
	}
}

// applyByTwo applies parts of one cluster by two field managers.
func applyByTwo(t *testing.T, k kubectl) {
	t.Helper()
	write := func(name, hosts string) string {
		file := filepath.Join(t.TempDir(), name)
		text := "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: shared, namespace: default}\nspec:\n" +
			"  ssh: {privateKeyFile: id}\n  filesFrom: [{secretRef: {name: shared-ssh}}]\n  hosts:\n" + hosts
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	first := write("first", "  - {name: cp1, address: 192.0.2.11, roles: [control-plane]}\n")
	second := write("second", "  - {name: w1, address: 192.0.2.21, roles: [worker]}\n")
	other := write("other", "  - {name: cp1, address: 192.0.2.99, roles: [control-plane]}\n"+
		"  - {name: w1, address: 192.0.2.21, roles: [worker]}\n")
	apply := func(manager, file string) result {
		return k.run(t, "apply", "--server-side", "--field-manager="+manager, "-f", file)
	}
	for _, step := range []struct{ manager, file string }{{"first", first}, {"second", second}, {"first", first}} {
		if r := apply(step.manager, step.file); r.code != 0 {
			t.Fatalf("manager %s: %s", step.manager, r.stderr)
		}
	}
	if names := k.must(t, "get", "slc", "shared", "-o", "jsonpath={.spec.hosts[*].name}"); names != "cp1 w1" {
		t.Errorf("two managers with one host each: the cluster has %q", names)
	}
	if r := apply("second", other); r.code == 0 || !strings.Contains(r.stderr, "conflict") {
		t.Errorf("another manager changes the address of a host: it ends with %d: %s", r.code, r.stderr)
	}
	k.must(t, "delete", "slc", "shared", "--timeout=60s")
}

// watchClusters follows changes of a cluster with kubectl.
func watchClusters(t *testing.T, k kubectl) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.path, "get", "slc", "-w", "-o", "jsonpath={.metadata.name} {.metadata.labels.step}{\"\\n\"}")
	cmd.Env = append(os.Environ(), k.env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	expect := func(want string) { // the controllers change the object too
		t.Helper()
		for {
			if !lines.Scan() {
				t.Fatalf("the watch ends before %q: %v", want, lines.Err())
			}
			if strings.TrimSpace(lines.Text()) == want {
				return
			}
		}
	}
	k.must(t, "apply", "-f", "../../docs/guide/server-example.yaml")
	expect("example")
	k.must(t, "label", "slc", "example", "step=two")
	expect("example two")
	cancel()
	_ = cmd.Wait() // it was killed
	k.must(t, "delete", "slc", "example", "--timeout=60s")
}
