//go:build linux

package ledger

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/durable"
)

func open(t *testing.T, dir string) *Ledger {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "root/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := Open(filepath.Join(dir, "state"), filepath.Join(dir, "root"), durable.Disk{}, Owner{Cluster: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

func TestFirstStateIsKept(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "root/etc/x")
	put(t, file, "first")
	for _, content := range []string{"second", "third"} {
		l := open(t, dir)
		if err := l.SavePath("/etc/x"); err != nil {
			t.Fatal(err)
		}
		put(t, file, content)
		state, err := State(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Intend("/etc/x", state); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, dir)
	if l.Cluster() != "demo" || len(l.Newest()) != 1 {
		t.Fatalf("cluster %q, %d entries", l.Cluster(), len(l.Newest()))
	}
	out, err := l.RestorePath(l.Get(KindPath, "/etc/x"))
	if err != nil || out.Did != "restored" {
		t.Fatalf("restoring: %+v %v", out, err)
	}
	raw, err := os.ReadFile(file)
	info, serr := os.Stat(file)
	if err != nil || serr != nil || string(raw) != "first" || info.Mode().Perm() != 0o640 {
		t.Errorf("restored to %q %v (%v, %v)", raw, info.Mode(), err, serr)
	}
}

func TestTornLineIsNoLine(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	if err := l.SavePath("/etc/one"); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "state", Dir, "log")
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"entry":{"seq":99,"kind":"path","key":"/etc/` + strings.Repeat("long", 1000)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir)
	if err := l.SavePath("/etc/two"); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, e := range open(t, dir).Newest() {
		keys = append(keys, e.Key)
	}
	if diff := cmp.Diff([]string{"/etc/two", "/etc/one"}, keys); diff != "" {
		t.Errorf("entries:\n%s", diff)
	}
}

func TestGlobs(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	put(t, filepath.Join(root, "etc/d/there"), "1")
	l := open(t, dir)
	if err := l.SaveGlob("/etc/d/*", false); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "etc/d/there"), "2")
	put(t, filepath.Join(root, "etc/d/made/deep"), "x")
	if err := l.WroteGlob("/etc/d/*"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/etc/d/made": true, "/etc/d/made/deep": true, "/etc/d/there": false, "/etc": false, "/other": false} {
		if got := l.WasAbsent(path); got != want {
			t.Errorf("WasAbsent(%s) = %v", path, got)
		}
	}
	for _, e := range l.Newest() {
		var err error
		if e.Kind == KindGlob {
			_, err = l.RestoreGlob(e)
		} else {
			_, err = l.RestorePath(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(root, "etc/d/there"))
	if err != nil || string(raw) != "1" || exists(filepath.Join(root, "etc/d/made")) {
		t.Errorf("there: %q %v; made is left: %v", raw, err, exists(filepath.Join(root, "etc/d/made")))
	}
}

func FuzzMountPoints(f *testing.F) {
	f.Add([]byte("36 35 98:0 / /mnt/a\\040b rw - ext4 /dev/root rw\n"))
	f.Add([]byte("x\\"))
	f.Fuzz(func(t *testing.T, raw []byte) { MountPoints(raw) })
}

func TestMountPoints(t *testing.T) {
	got := MountPoints([]byte("36 35 98:0 / /mnt/a\\040b rw - ext4 /dev/root rw\n37 36 0:1 / / rw - tmpfs tmpfs rw\n"))
	if diff := cmp.Diff([]string{"/mnt/a b", "/"}, got); diff != "" {
		t.Error(diff)
	}
}
