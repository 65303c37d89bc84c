//go:build linux

package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/exact"
	"slipway.dev/slipway/internal/node/atomicfile"
)

func openLedger(t *testing.T, dir string) *Ledger {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "root/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := Open(filepath.Join(dir, "state"), filepath.Join(dir, "root"), atomicfile.Disk{}, Owner{Cluster: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func putFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

func TestSave_KeepsTheFirstState(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "root/etc/x")
	putFile(t, file, "first")
	for _, content := range []string{"second", "third"} {
		l := openLedger(t, dir)
		if err := l.SavePath("/etc/x"); err != nil {
			t.Fatal(err)
		}
		putFile(t, file, content)
		state, err := PathState(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.RecordIntent("/etc/x", state); err != nil {
			t.Fatal(err)
		}
	}
	l := openLedger(t, dir)
	if l.ClusterName() != "demo" || len(l.NewestEntries()) != 1 {
		t.Fatalf("cluster %q, %d entries", l.ClusterName(), len(l.NewestEntries()))
	}
	out, err := l.RestorePath(l.FindEntry(KindPath, "/etc/x"))
	if err != nil || out.Did != "restored" {
		t.Fatalf("restoring: %+v %v", out, err)
	}
	raw, err := os.ReadFile(file)
	info, serr := os.Stat(file)
	if err != nil || serr != nil || string(raw) != "first" || info.Mode().Perm() != 0o640 {
		t.Errorf("restored to %q %v (%v, %v)", raw, info.Mode(), err, serr)
	}
}

func TestOpen_IgnoresATornLine(t *testing.T) {
	dir := t.TempDir()
	l := openLedger(t, dir)
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
	l = openLedger(t, dir)
	if err := l.SavePath("/etc/two"); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, e := range openLedger(t, dir).NewestEntries() {
		keys = append(keys, e.Key)
	}
	if diff := cmp.Diff([]string{"/etc/two", "/etc/one"}, keys); diff != "" {
		t.Errorf("entries:\n%s", diff)
	}
}

func TestGlobs_RemoveOnlyNewFiles(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	putFile(t, filepath.Join(root, "etc/d/there"), "1")
	l := openLedger(t, dir)
	if err := l.SaveGlob("/etc/d/*", false); err != nil {
		t.Fatal(err)
	}
	putFile(t, filepath.Join(root, "etc/d/there"), "2")
	putFile(t, filepath.Join(root, "etc/d/made/deep"), "x")
	if err := l.WroteGlob("/etc/d/*"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/etc/d/made": true, "/etc/d/made/deep": true, "/etc/d/there": false,
		"/etc": false, "/other": false,
	} {
		if got := l.WasAbsent(path); got != want {
			t.Errorf("WasAbsent(%s) = %v", path, got)
		}
	}
	for _, e := range l.NewestEntries() {
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
	if err != nil || string(raw) != "1" || pathExists(filepath.Join(root, "etc/d/made")) {
		t.Errorf("there: %q %v; made is left: %v", raw, err, pathExists(filepath.Join(root, "etc/d/made")))
	}
}

// TestNames_SurviveWithoutUTF8: the ledger recognizes names and links that are not UTF-8 after it was read
// from disk: earlier files are kept, and links are restored with their targets.
func TestNames_SurviveWithoutUTF8(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	file, link, other := "/etc/d/\xff.conflist", "/etc/d/l\xfe", "/etc/o\xfd"
	putFile(t, filepath.Join(root, file), "1")
	putFile(t, filepath.Join(root, other), "before")
	if err := os.Symlink("to\xfc", filepath.Join(root, link)); err != nil {
		t.Fatal(err)
	}
	l := openLedger(t, dir)
	for _, err := range []error{
		l.SaveGlob("/etc/d/*", false), l.SavePath(link), l.SavePath(other),
		l.RecordIntent(link, LinkState("ours\xfb")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	putFile(t, filepath.Join(root, "etc/d/\xfa.ours"), "x")
	sum := sha256.Sum256([]byte("ours"))
	putFile(t, filepath.Join(root, other), "ours")
	if err := errors.Join(l.RecordIntent(other, FileState(hex.EncodeToString(sum[:]))),
		os.Remove(filepath.Join(root, link)), os.Symlink("ours\xfb", filepath.Join(root, link))); err != nil {
		t.Fatal(err)
	}
	l = openLedger(t, dir)
	for path, want := range map[string]bool{file: false, link: false, other: false, "/etc/d/\xfa.ours": true} {
		if got := l.WasAbsent(path); got != want {
			t.Errorf("WasAbsent(%q) = %v", path, got)
		}
	}
	for _, e := range l.NewestEntries() {
		var err error
		if e.Kind == KindGlob {
			_, err = l.RestoreGlob(e)
		} else {
			_, err = l.RestorePath(e)
		}
		if err = errors.Join(err, l.EndEntry(e)); err != nil {
			t.Fatal(err)
		}
	}
	if l = openLedger(t, dir); !l.IsEmpty() {
		t.Errorf("%d entries have not ended", len(l.NewestEntries()))
	}
	to, err := os.Readlink(filepath.Join(root, link))
	one, err1 := os.ReadFile(filepath.Join(root, file))
	before, err2 := os.ReadFile(filepath.Join(root, other))
	if err := errors.Join(err, err1, err2); err != nil || to != "to\xfc" || string(one) != "1" || string(before) != "before" ||
		pathExists(filepath.Join(root, "etc/d/\xfa.ours")) {
		t.Errorf("%q, %q, %q, %v; ours is left: %v", to, one, before, err, pathExists(filepath.Join(root, "etc/d/\xfa.ours")))
	}
}

// TestGlob_KeepsFilesOfOldLedgers: in a ledger of an earlier program, U+FFFD stands for bytes that are
// not UTF-8. Files that may have existed then are not removed.
func TestGlob_KeepsFilesOfOldLedgers(t *testing.T) {
	for path, want := range map[string]bool{"/d/\xff\xfe": true, "/d/\uFFFD\uFFFD": true, "/d/\xff": false, "/d/x": false, "/d/ü": true} {
		g := glob{Existing: []exact.Text{"/d/\uFFFD\uFFFD", "/d/ü"}}
		if got := g.hadMatch(path); got != want {
			t.Errorf("had(%q) = %v", path, got)
		}
	}
}

// FuzzRead reads logs of whatever: they may be damaged, and nothing may crash.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"entry":{"seq":1,"kind":"path","key":"/a","by":{},"data":{"type":"link","to":{"bytes":"/w=="}}}}` + "\n" +
		`{"wrote":{"path":"/a","state":"absent"}}` + "\n" + `{"ended":{"kind":"path","key":"/a"}}` + "\n"))
	f.Add([]byte(`{"entry":{"seq":1,"kind":"glob","key":{"bytes":"L/8="},"by":{"cluster":"c"},"data":{"existing":["/a"]}}}` + "\n" +
		`{"wrote":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		dir := t.TempDir()
		putFile(t, filepath.Join(dir, Dir, "log"), string(log))
		l, err := Open(dir, filepath.Join(dir, "root"), atomicfile.Disk{}, Owner{})
		if err != nil {
			return
		}
		for _, e := range l.NewestEntries() {
			l.WasAbsent(e.Key)
			_, _ = l.WouldRestore(e) // data may be anything
		}
	})
}

func FuzzMountPoints(f *testing.F) {
	f.Add([]byte("36 35 98:0 / /mnt/a\\040b rw - ext4 /dev/root rw\n"))
	f.Add([]byte("x\\"))
	f.Fuzz(func(t *testing.T, raw []byte) { MountPoints(raw) })
}

func TestMountPoints_AreDecoded(t *testing.T) {
	got := MountPoints([]byte("36 35 98:0 / /mnt/a\\040b rw - ext4 /dev/root rw\n37 36 0:1 / / rw - tmpfs tmpfs rw\n"))
	if diff := cmp.Diff([]string{"/mnt/a b", "/"}, got); diff != "" {
		t.Error(diff)
	}
}
