package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// copyOver sends from to dest; the connection breaks when limit bytes have been
// sent, if limit is not 0.
func copyOver(t *testing.T, from, dest string, limit int64) (sum Summary, sendErr, receiveErr error) {
	t.Helper()
	tree, err := ReadTree(t.Context(), from, nil)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	received := make(chan error, 1)
	go func() {
		_, err := ReceiveTree(t.Context(), theirs, Place{Path: dest}, nil)
		received <- err
		_ = theirs.Close()
	}()
	conn := io.ReadWriter(ours)
	if limit > 0 {
		conn = &cut{ours, limit}
	}
	var last Progress
	sum, sendErr = tree.Send(conn, func(p Progress) { last = p })
	_ = ours.Close()
	receiveErr = <-received
	if sendErr == nil && (last.Done != last.Total || last.Total != tree.ContentSize()) {
		t.Errorf("progress ends at %d of %d bytes", last.Done, last.Total)
	}
	if sendErr == nil && (last.Files != last.AllFiles || last.AllFiles != tree.begin.Files) {
		t.Errorf("progress ends at %d of %d files, of %d", last.Files, last.AllFiles, tree.begin.Files)
	}
	return sum, sendErr, receiveErr
}

type cut struct {
	net.Conn
	left int64
}

func (c *cut) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		_ = c.Close()
	}
	return c.Conn.Write(p)
}

func writeFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600),
		os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// listTree is all below dir: name → mode and content.
func listTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		out[rel] = info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			out[rel] += " " + string(b[:min(len(b), 20)])
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			out[rel] += " " + to
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTree_ArrivesUnchanged(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "conf")
	writeFile(t, filepath.Join(from, "a"), "one", 0o640)
	writeFile(t, filepath.Join(from, "bin/run"), "#!", 0o4755)
	writeFile(t, filepath.Join(from, "big"), strings.Repeat("x", asked+1), 0o444)
	writeFile(t, filepath.Join(from, "shut/in"), "", 0o400)
	if err := errors.Join(os.Symlink("../elsewhere", filepath.Join(from, "link")), os.Chmod(filepath.Join(from, "shut"), 0o555)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, _ error) error {
			if e.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
	})
	to := filepath.Join(dir, "to")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, dest, at, reason string }{
		{"into a directory", to, "to/conf", "as cp -r does"},
		{"again", to, "to/conf", "what is there is not in the way"},
		{"under another name", filepath.Join(to, "other"), "to/other", "the destination does not exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sum, err1, err2 := copyOver(t, from, tc.dest, 0)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			at := filepath.Join(dir, tc.at)
			if sum.To != at || sum.Files != 4 || sum.Bytes != asked+6 {
				t.Errorf("%+v: %s", sum, tc.reason)
			}
			if d := cmp.Diff(listTree(t, from), listTree(t, at)); d != "" {
				t.Errorf("%s (-sent +received):\n%s", tc.reason, d)
			}
		})
	}
}

func TestReceive_ChoosesTheDestination(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "file")
	writeFile(t, from, "new", 0o600)
	writeFile(t, filepath.Join(dir, "there"), "old", 0o644)
	writeFile(t, filepath.Join(dir, "dir/x"), "", 0o644)
	if err := os.Symlink("there", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, dest, at, refused, reason string }{
		{"directory", "dir", "dir/file", "", "it goes into one"},
		{"written as a directory", "dir/", "dir/file", "", "it is one"},
		{"no such directory", "gone/", "", "does not exist", "a misspelt directory is no file's name"},
		{"no parent", "gone/file", "", "does not exist", "none is made on the way"},
		{"file as a directory", "there/", "", "not a directory", "it is a file"},
		{"link", "link", "there", "", "a link to a file stays one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err, _ := copyOver(t, from, dir+"/"+tc.dest, 0)
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("%v, want %q: %s", err, tc.refused, tc.reason)
				}
				return
			}
			b, rerr := os.ReadFile(filepath.Join(dir, tc.at))
			if err != nil || rerr != nil || string(b) != "new" {
				t.Errorf("%s: %q, %v, %v: %s", tc.at, b, err, rerr, tc.reason)
			}
		})
	}
	if to, err := os.Readlink(filepath.Join(dir, "link")); err != nil || to != "there" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

// TestReceive_RemovesUnusableParts: a part that no other copy can continue is not left behind.
func TestReceive_RemovesUnusableParts(t *testing.T) {
	var b bytes.Buffer
	file := frame{Kind: kindFile, Path: ".", Size: 1 << 20, Digest: strings.Repeat("0", 64)}
	for _, f := range []frame{{Kind: kindBegin, Size: 1 << 20, Entries: 1}, file} {
		if err := f.writeTo(&b); err != nil {
			t.Fatal(err)
		}
	}
	for range 16 {
		b.Write(binary.BigEndian.AppendUint32(nil, chunk))
		b.Write(make([]byte, chunk))
	}
	dir := t.TempDir()
	_, err := ReceiveTree(t.Context(), struct {
		io.Reader
		io.Writer
	}{&b, io.Discard}, Place{Path: filepath.Join(dir, "x")}, nil)
	if err == nil || !strings.Contains(err.Error(), "changed during the copy") {
		t.Errorf("%v: the content is another", err)
	}
	if d := cmp.Diff(map[string]string{}, listTree(t, dir)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestReceive_IgnoresPartsOfOtherUsers: a file of another user at the path of a part is not continued:
// the copied file would belong to that user.
func TestReceive_IgnoresPartsOfOtherUsers(t *testing.T) {
	requireroot.Need(t, "giving files away")
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to", "x")
	content := strings.Repeat("x", asked)
	writeFile(t, from, content, 0o600)
	sum := sha256.Sum256([]byte(content))
	theirs := filepath.Join(dir, "to", partPrefix+hex.EncodeToString(sum[:])[:24])
	writeFile(t, theirs, "", 0o666)
	if err := os.Chown(theirs, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	if err := transferTree(t, from, to, false); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	if uid, _ := ownerOf(info); uid != 0 {
		t.Errorf("the file belongs to %d", uid)
	}
}

// TestReceive_DoesNotWriteThroughHardLinks: a link to another file, put where a part is to be, is not written
// through.
func TestReceive_DoesNotWriteThroughHardLinks(t *testing.T) {
	dir := t.TempDir()
	from, to, other := filepath.Join(dir, "from"), filepath.Join(dir, "to", "x"), filepath.Join(dir, "other")
	content := strings.Repeat("x", asked)
	writeFile(t, from, content, 0o600)
	writeFile(t, other, strings.Repeat("precious ", asked), 0o600) // longer: it would be truncated
	sum := sha256.Sum256([]byte(content))
	if err := errors.Join(os.Mkdir(filepath.Dir(to), 0o755),
		os.Link(other, filepath.Join(dir, "to", partPrefix+hex.EncodeToString(sum[:])[:24]))); err != nil {
		t.Fatal(err)
	}
	if err := transferTree(t, from, to, false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(other); err != nil || info.Size() != int64(9*asked) {
		t.Errorf("the other file is now %v, %v", info, err)
	}
	if got, err := os.ReadFile(to); err != nil || string(got) != content {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
}

// TestNames_ArriveWithoutUTF8: names and links with bytes that are not UTF-8 come as they are, both ways.
func TestNames_ArriveWithoutUTF8(t *testing.T) {
	const latin1 = "gr\xfc\xdfe"
	for _, fetch := range []bool{true, false} {
		t.Run(fmt.Sprintf("fetch=%v", fetch), func(t *testing.T) {
			dir := t.TempDir()
			from, to := filepath.Join(dir, "\xff"), filepath.Join(dir, "\xfe")
			writeFile(t, filepath.Join(from, "d\xff", latin1), strings.Repeat("1", asked), 0o600)
			writeFile(t, filepath.Join(from, "d\xfe", latin1), "2", 0o600)
			if err := os.Symlink("d\xfe/"+latin1, filepath.Join(from, "l\xff")); err != nil {
				t.Fatal(err)
			}
			if err := transferTree(t, from, to, fetch); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(listTree(t, from), listTree(t, to)); diff != "" {
				t.Errorf("(-sent +received):\n%s", diff)
			}
		})
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "\xff"), "x", 0o600)
	into := filepath.Join(dir, "into\xff")
	if err := os.Mkdir(into, 0o755); err != nil {
		t.Fatal(err)
	}
	sum, sendErr, receiveErr := copyOver(t, filepath.Join(dir, "\xff"), into, 0)
	if sendErr != nil || receiveErr != nil || sum.To != filepath.Join(into, "\xff") {
		t.Errorf("%q, %v, %v", sum.To, sendErr, receiveErr)
	}
}

// TestReceive_KeepsOwnerOfReplacedFile: a file that is there keeps its owner, its group and its mode.
func TestReceive_KeepsOwnerOfReplacedFile(t *testing.T) {
	requireroot.Need(t, "giving files away")
	for _, tc := range []struct {
		name          string
		content       string
		old           fs.FileMode
		fetched, kept string
		reason        string
	}{
		{"small", "new", 0o640, "-rw-r-----", "-rw-r-----", "as cp does"},
		{"large", strings.Repeat("new", asked), 0o600, "-rw-------", "-rw-------", "whatever its size"},
		{"the same", "old", 0o604, "-rw----r--", "-rw----r--", "with nothing to copy, too"},
		{"setuid", "new", 0o755 | fs.ModeSetuid, "-rwxr-xr-x", "urwxr-xr-x", "no content of a host's runs as another"},
	} {
		for _, fetch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/fetch=%v", tc.name, fetch), func(t *testing.T) {
				dir := t.TempDir()
				from := filepath.Join(dir, "from", "x")
				writeFile(t, from, tc.content, 0o777)
				for _, name := range []string{"x", "tree/from/x"} {
					to := filepath.Join(dir, "to", name)
					writeFile(t, to, "old", 0o600)
					if err := errors.Join(os.Chown(to, 4711, 4712), os.Chmod(to, tc.old)); err != nil {
						t.Fatal(err)
					}
				}
				for src, dest := range map[string]string{from: "to", filepath.Dir(from): "to/tree"} {
					if err := transferTree(t, src, filepath.Join(dir, dest), fetch); err != nil {
						t.Fatal(err)
					}
				}
				want := tc.kept
				if fetch {
					want = tc.fetched
				}
				for _, name := range []string{"x", "tree/from/x"} {
					to := filepath.Join(dir, "to", name)
					info, err := os.Stat(to)
					if err != nil {
						t.Fatal(err)
					}
					b, err := os.ReadFile(to)
					if uid, gid := ownerOf(info); uid != 4711 || gid != 4712 || info.Mode().String() != want || string(b) != tc.content || err != nil {
						t.Errorf("%s: %v of %d:%d, %d bytes, %v; want %s of 4711:4712: %s", name, info.Mode(), uid, gid, len(b), err, want, tc.reason)
					}
				}
			})
		}
	}
}

// transferTree copies by Receive, or by Fetch.
func transferTree(t *testing.T, from, dest string, fetch bool) error {
	t.Helper()
	tr, err := ReadTree(t.Context(), from, nil)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := tr.Send(theirs, nil)
		sent <- err
		_ = theirs.Close()
	}()
	if fetch {
		_, err = FetchTree(t.Context(), ours, Place{Path: dest}, filepath.Base(from), nil)
	} else {
		_, err = ReceiveTree(t.Context(), ours, Place{Path: dest}, nil)
	}
	_ = ours.Close()
	return errors.Join(err, <-sent)
}

// TestReceive_ResumesAfterBreak: an interrupted copy leaves no file under the final name, and the
// next copy continues where it stopped.
func TestReceive_ResumesAfterBreak(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "big"), filepath.Join(dir, "to")
	content := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	writeFile(t, from, content, 0o600)
	writeFile(t, to, "old", 0o600)
	_, err1, err2 := copyOver(t, from, to, 600<<10)
	if err1 == nil || err2 == nil {
		t.Fatalf("%v, %v: the connection broke", err1, err2)
	}
	for end, err := range map[string]error{"sender": err1, "receiver": err2} {
		var broken *BrokenError
		if !errors.As(err, &broken) {
			t.Errorf("%s: %v: want what is kept", end, err)
		} else if info, err := os.Stat(broken.Part); err != nil || info.Size() < asked || info.Size() >= 1<<20 {
			t.Errorf("%s: %s is kept: %v, %v", end, broken.Part, info, err)
		}
	}
	if b, err := os.ReadFile(to); string(b) != "old" || err != nil {
		t.Errorf("%.20q, %v: half a file has the name of a whole one", b, err)
	}
	if _, err1, err2 := copyOver(t, from, to, 600<<10); err1 != nil || err2 != nil {
		t.Errorf("%v, %v: the second part is short enough", err1, err2)
	}
	if b, err := os.ReadFile(to); string(b) != content || err != nil {
		t.Errorf("%d bytes, %v; want all", len(b), err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if len(left) > 0 || err != nil {
		t.Errorf("%v, %v are left", left, err)
	}
}

// TestSend_SkipsChangedFiles: a file that has changed since the tree was read is not copied.
func TestSend_SkipsChangedFiles(t *testing.T) {
	for name, content := range map[string]string{"other": strings.Repeat("y", 1<<20), "shorter": "y"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			from := filepath.Join(dir, "big")
			writeFile(t, from, strings.Repeat("x", 1<<20), 0o600)
			tr, err := ReadTree(t.Context(), from, nil)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, from, content, 0o600)
			ours, theirs := net.Pipe()
			received := make(chan error, 1)
			go func() {
				_, err := ReceiveTree(t.Context(), theirs, Place{Path: filepath.Join(dir, "to")}, nil)
				received <- err
				_ = theirs.Close()
			}()
			_, err = tr.Send(ours, nil)
			_ = ours.Close()
			if rerr := <-received; err == nil || rerr == nil {
				t.Errorf("sent: %v, received: %v", err, rerr)
			}
			if _, err := os.Stat(filepath.Join(dir, "to")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file that is none: %v", err)
			}
		})
	}
}

// TestReadTree_StopsWithItsContext: a large file is not read to its end after the caller has
// stopped.
func TestReadTree_StopsWithItsContext(t *testing.T) {
	from := filepath.Join(t.TempDir(), "big")
	writeFile(t, from, strings.Repeat("x", 1<<20), 0o600)
	ctx, cancel := context.WithCancel(t.Context())
	var last int64
	_, err := ReadTree(ctx, from, func(n int64) {
		if last = n; n >= 256<<10 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || last >= 1<<20 {
		t.Errorf("%v after %d bytes", err, last)
	}
}

func TestReadTree_RefusesDevices(t *testing.T) {
	for path, reason := range map[string]string{
		"/dev/null":                        "a device has no content",
		filepath.Join(t.TempDir(), "gone"): "it is not there",
	} {
		if _, err := ReadTree(t.Context(), path, nil); err == nil {
			t.Errorf("%s is looked at: %s", path, reason)
		}
	}
}

// TestReceive_RenamesSmallFilesTogether: small files are renamed in groups: all of them arrive complete, and
// no other file is left. The same holds after a broken connection, and in read-only
// directories.
func TestReceive_RenamesSmallFilesTogether(t *testing.T) {
	const count = 3*mostWhole + 7
	from := filepath.Join(t.TempDir(), "many")
	for i := range count {
		writeFile(t, filepath.Join(from, fmt.Sprintf("d%d", i%5), fmt.Sprintf("f%03d", i)),
			fmt.Sprintf("this is %d%s\n", i, strings.Repeat(".", 1000)), 0o640)
	}
	if err := os.Chmod(filepath.Join(from, "d3"), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(from, "d3"), 0o755) })
	want := listTree(t, from)
	to := filepath.Join(t.TempDir(), "many")
	sum, err, rerr := copyOver(t, from, to, 0)
	if err != nil || rerr != nil || sum.Files != count {
		t.Fatalf("%+v, %v, %v", sum, err, rerr)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "d3"), 0o755) })
	if d := cmp.Diff(want, listTree(t, to)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	broken := filepath.Join(t.TempDir(), "many")
	_, err, rerr = copyOver(t, from, broken, 1<<17)
	if err == nil || rerr == nil {
		t.Fatalf("it did not break: %v, %v", err, rerr)
	}
	got := listTree(t, broken)
	files := 0
	for name, is := range got {
		file := strings.HasPrefix(is, "-")
		if file {
			files++
		}
		if strings.Contains(name, partPrefix) || file && want[name] != is {
			t.Errorf("%s is left: %q", name, is)
		}
	}
	if files == 0 || files == count {
		t.Errorf("%d files have come: want those that were whole when it broke", files)
	}
}
