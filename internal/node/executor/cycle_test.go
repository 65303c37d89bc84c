//go:build linux

package executor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

// tarball is a gzip tar of files.
func tarball(files map[string]string) ([]byte, error) {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			h.Typeflag, h.Linkname, h.Size, content = tar.TypeSymlink, to, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(content)); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close(), z.Close())
	return buf.Bytes(), err
}

// tarball is a blob of files.
func (h *testHost) tarball(files map[string]string) op.Blob {
	h.t.Helper()
	raw, err := tarball(files)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.blobs.add(raw)
}

// cycle is a list of operations of every kind that keeps a state.
func cycle(h *testHost) op.List {
	h.t.Helper()
	h.write("proc/swaps", "Filename Type Size Used Priority\n/dev/vda2 partition 1 0 -2\n")
	h.write("etc/gone.conf", "gone\n")
	h.write("etc/gone.d/deep/file", "gone too\n")
	h.write("etc/app.conf", "old\n")
	h.write("run/containerd/containerd.sock", "")
	h.write("etc/security/limits.conf", "")
	bin := h.tarball(map[string]string{"bin/tool": "program", "bin/link": "-> tool", "doc/x": "left out"})
	manifest, layer := h.blobs.add([]byte("{}")), h.blobs.add(bytes.Repeat([]byte("layer"), 1000))
	return op.List{
		op.User{Name: "etcd", Home: "/var/lib/etcd"},
		op.Dir{Path: "/etc/new/deep", Mode: 0o700},
		op.Dir{Path: "/var/lib/ours", Exclusive: true, Owner: "etcd", Group: "etcd"},
		op.File{Path: "/etc/app.conf", Content: []byte("new\n"), Mode: 0o600},
		op.File{Path: "/etc/implied/parents/file", Content: []byte("x\n"), Owner: "etcd"},
		op.File{Path: "/etc/systemd/system/app.service", Content: []byte("[Service]\n")},
		op.Link{Path: "/etc/alias", To: "app.conf"},
		op.Absent{Path: "/etc/gone.conf"},
		op.Absent{Path: "/etc/gone.d", Recursive: true},
		op.Block{Path: "/etc/hosts", Name: "demo", Lines: []string{"10.0.0.1 a", "10.0.0.2 b"}},
		op.Sysctl{
			File:   "/etc/sysctl.d/90-slipway.conf",
			Values: map[string]string{"net.ipv4.ip_forward": "1", "net.ipv4.tcp_rmem": "4096  131072 6291456"},
		},
		op.KernelModules{File: "/etc/modules-load.d/slipway.conf", Modules: []string{"overlay", "br_netfilter", "nf_tables"}},
		op.Limits{File: "/etc/security/limits.d/90-slipway.conf", Limits: []op.Limit{{Item: "core", Soft: "0", Hard: "unlimited"}}},
		op.SwapOff{},
		op.Hostname{Name: "node-1"},
		op.Timezone{Name: "Europe/Berlin"},
		op.TimeSync{Servers: []string{"ntp.example.org"}},
		op.FetchBlob{Blob: h.blobs.add([]byte("kept")), Name: "kept"},
		op.Unpack{Blob: bin, Name: "tools", Dir: "/usr/local/bin", Strip: "bin/"},
		op.ImportImages{Images: []op.Image{{
			Ref: "registry.example/pause:3", Manifest: manifest,
			MediaType: "application/x", Blobs: []op.Blob{layer},
		}}},
		op.Unit{Name: "app.service", Enabled: op.Bool(true), Running: op.Bool(true), RestartOn: []string{"/etc/app.conf"}},
		op.Unit{Name: "lib.service", Masked: true},
		op.Exec{
			Name: "make", Argv: []string{"sh", "-c", "mkdir -p $0/etc/made && echo done > $0/etc/made/it", h.r.Root},
			Creates: []string{"/etc/made/*"}, Inputs: []string{"/etc/app.conf"},
		},
		op.Wait{Path: "/etc/made/it", TimeoutSeconds: 5},
	}
}

// TestCheck_MatchesResultOfApply checks for every operation in cycle that a check changes
// nothing, and that there is nothing to do after an apply.
func TestCheck_MatchesResultOfApply(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ops := cycle(h)
	before := h.snapshot()
	for _, r := range h.check(ops...) {
		if r.Status != op.Changed {
			t.Errorf("%s %s: %s %v, want changed on a fresh host", r.Kind, r.Target, r.Status, r.Error)
		}
	}
	if diff := cmp.Diff(before, h.snapshot()); diff != "" {
		t.Fatalf("checking has changed the host:\n%s", diff)
	}
	for _, r := range h.apply(ops...) {
		if r.Status != op.Changed && r.Kind != op.KindWait {
			t.Errorf("%s %s: %s, want changed", r.Kind, r.Target, r.Status)
		}
	}
	after := h.snapshot()
	for _, r := range h.check(ops...) {
		if r.Status != op.Unchanged {
			t.Errorf("%s %s: %s (%s) %v, want unchanged after apply", r.Kind, r.Target, r.Status, r.Summary, r.Error)
		}
	}
	h.apply(ops...)
	if diff := cmp.Diff(after, h.snapshot()); diff != "" {
		t.Errorf("applying again has changed the host:\n%s", diff)
	}
}

// TestRestoreHost_RevertsEveryOperation checks that a restored host has the files and
// units that it had before the operations in cycle.
func TestRestoreHost_RevertsEveryOperation(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ops := cycle(h)
	before, world := h.snapshot(), h.see()
	h.apply(ops...)
	h.apply(op.RestoreHost{})
	after := h.snapshot()
	after["/proc/modules"] = before["/proc/modules"] // modules stay loaded
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("not as before:\n%s", diff)
	}
	for name, u := range h.see().Units {
		was := world.Units[name]
		if was == nil {
			was = &fakeUnit{}
		}
		if u.Active != was.Active || u.Enabled != was.Enabled || u.Masked != was.Masked {
			t.Errorf("unit %s is %+v, was %+v", name, *u, *was)
		}
	}
	if r := h.check(op.RestoreHost{})[0]; r.Status != op.Unchanged {
		t.Errorf("restoring again: %s (%s)", r.Status, r.Summary)
	}
}
