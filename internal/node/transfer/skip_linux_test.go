package transfer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// asUser runs f with a user's rights to files.
func asUser(uid int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with us
		_, _ = unix.SetfsuidRetUid(uid)
		f()
	}()
	<-done
}

// TestSend_SkipsUnreadableEntries: entries that cannot be read are skipped and named; all
// other entries are copied.
func TestSend_SkipsUnreadableEntries(t *testing.T) {
	requireroot.Need(t, "having the rights of others")
	big := strings.Repeat("x", 2*asked)
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	for name, content := range map[string]string{
		"a": "a", "big": big, "empty": "", "gone": "x", "gone-big": big, "grown": "x", "grown-big": big,
		"other": "x", "other-big": big, "short": "xx", "short-big": big, "sub/z": "z", "shut/in": "",
	} {
		writeFile(t, filepath.Join(from, name), content, 0o644)
	}
	writeFile(t, filepath.Join(from, "secret"), "x", 0o600)
	err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), unix.Mkfifo(filepath.Join(from, "pipe"), 0o644),
		os.Chmod(filepath.Join(from, "shut"), 0o700), os.Mkdir(to, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	var look *Tree
	if asUser(65534, func() { look, err = ReadTree(t.Context(), from, nil) }); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(from, name) }
	writeFile(t, at("grown"), "xyz", 0o644)
	writeFile(t, at("grown-big"), big+"y", 0o644)
	writeFile(t, at("other"), "y", 0o644)
	writeFile(t, at("other-big"), strings.Repeat("y", 2*asked), 0o644)
	err = errors.Join(os.Remove(at("gone")), os.Remove(at("gone-big")), os.Remove(at("empty")),
		os.Truncate(at("short"), 1), os.Truncate(at("short-big"), asked))
	if err != nil {
		t.Fatal(err)
	}
	sum, last := sendInto(t, look, to)
	want := []Skipped{
		{"gone", "it was deleted before it could be read"},
		{"gone-big", "it was deleted before it could be read"},
		{"other", "it changed during the copy"},
		{"other-big", "it changed during the copy"},
		{"pipe", "it is not a file, a directory or a link"},
		{"secret", "permission denied"},
		{"short", "it shrank during the copy"},
		{"short-big", "it shrank during the copy"},
		{"shut", "permission denied"},
	}
	if d := cmp.Diff(want, sum.SkippedFiles); d != "" || sum.Skipped != len(want) || sum.Files != 6 || sum.Bytes != int64(2*len(big)+3) {
		t.Errorf("%+v (-want +got):\n%s", sum, d)
	}
	if last.Done != last.Total {
		t.Errorf("progress ends at %d of %d bytes", last.Done, last.Total)
	}
	x := "-rw-r--r-- " + big[:20]
	all := map[string]string{
		"from": "drwxr-xr-x", "from/a": "-rw-r--r-- a", "from/big": x, "from/empty": "-rw-r--r-- ", "from/grown": "-rw-r--r-- x",
		"from/grown-big": x, "from/shut": "drwx------", "from/sub": "drwxr-xr-x", "from/sub/z": "-rw-r--r-- z",
	}
	if d := cmp.Diff(all, listTree(t, to)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, name := range []string{"secret", "shut"} { // asked for by name
		if asUser(65534, func() { _, err = ReadTree(t.Context(), at(name), nil) }); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sendInto sends a tree into a directory.
func sendInto(t *testing.T, tr *Tree, to string) (sum Summary, last Progress) {
	t.Helper()
	ours, theirs := net.Pipe()
	received := make(chan error, 1)
	go func() {
		_, err := ReceiveTree(t.Context(), theirs, Place{Path: to}, nil)
		received <- err
		_ = theirs.Close()
	}()
	sum, err := tr.Send(ours, func(p Progress) { last = p })
	_ = ours.Close()
	if rerr := <-received; err != nil || rerr != nil {
		t.Fatal(err, rerr)
	}
	return sum, last
}

// TestSend_SummarizesManySkippedEntries: however many there are and whatever they are called, the
// summary arrives.
func TestSend_SummarizesManySkippedEntries(t *testing.T) {
	from := filepath.Join(t.TempDir(), "from")
	deep := from
	for range 8 {
		deep = filepath.Join(deep, strings.Repeat("\x01", 200))
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxSkipped {
		if err := unix.Mkfifo(filepath.Join(deep, fmt.Sprint(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look, err := ReadTree(t.Context(), from, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum, _ := sendInto(t, look, t.TempDir())
	if sum.Skipped != 3*maxSkipped || len(sum.SkippedFiles) != maxSkipped {
		t.Errorf("%d are skipped and %d named", sum.Skipped, len(sum.SkippedFiles))
	}
}
