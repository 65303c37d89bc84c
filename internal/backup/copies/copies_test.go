package copies_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/node/op"
)

const id = "0123456789ab"

func copyName(host string, day int) copies.Name {
	return copies.Name{
		Cluster: "prod", ID: id, Host: host, Taken: time.Date(2026, 11, day, 18, 0, 7, 0, time.UTC),
		Revision: 4700 + int64(day),
	}
}

// newTargets returns a target of each kind with the directory of its files.
func newTargets(t *testing.T) map[string]func(*testing.T) (copies.Target, string) {
	t.Helper()
	return map[string]func(*testing.T) (copies.Target, string){
		"directory": func(t *testing.T) (copies.Target, string) {
			dir := t.TempDir()
			d, err := copies.OpenDirectory(dir)
			if err != nil {
				t.Fatal(err)
			}
			return d, dir
		},
		"ssh": func(t *testing.T) (copies.Target, string) {
			m := copiestest.ListenSFTP(t)
			return openMachine(t.Context(), t, m), m.Dir
		},
		"s3": func(t *testing.T) (copies.Target, string) {
			s := copiestest.ListenS3(t)
			return openStorage(t, s), s.Dir
		},
	}
}

func openMachine(ctx context.Context, t *testing.T, m *copiestest.Machine) copies.Target {
	t.Helper()
	to, err := copies.Open(ctx, op.CopyTarget{Name: "nas", SSH: &m.To}, m.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := to.Close(); err != nil {
			t.Error(err)
		}
	})
	return to
}

func writeContent(content []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(content); return err }
}

func listFiles(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestParseName_ReadsOnlyNamesOfString(t *testing.T) {
	n := copyName("cp-1.example", 20)
	if got, ok := copies.ParseName(n.String()); !ok || got != n ||
		n.String() != "prod_0123456789ab_cp-1.example_20261120-180007_4720.tar.age" {
		t.Errorf("%s is read as %+v, %t", n, got, ok)
	}
	for _, other := range []string{
		"prod-20261120-180007.tar.age", "." + n.String() + ".part", n.String() + ".part",
		"../" + n.String(), strings.Replace(n.String(), "20261120", "20269920", 1),
		strings.Replace(n.String(), "_4720", "_04720", 1), "prod_0123_cp1_20261120-180007_1.tar.age",
	} {
		if _, ok := copies.ParseName(other); ok {
			t.Errorf("%s is taken for a copy", other)
		}
	}
}

// Another user may control the listing of a target, so sizes that no copy has are not
// added.
func TestSelectCopies_IgnoresImpossibleSizes(t *testing.T) {
	var files []copies.File
	for i, bytes := range []int64{5, -5, math.MaxInt64, 0, 1 << 30} {
		files = append(files, copies.File{Name: copyName("cp1", i).String(), Bytes: bytes})
	}
	var got []int64
	for _, c := range copies.SelectCopies(files, func(copies.Name) bool { return true }) {
		got = append(got, c.Bytes)
	}
	if want := []int64{1 << 30, 0, 5}; !slices.Equal(got, want) {
		t.Errorf("copies of %v bytes, want %v", got, want)
	}
}

// SendCopy removes the oldest copies beyond the number to keep, only of the same host of
// the same cluster. It also removes an incomplete copy.
func TestSendCopy_RemovesOldestCopiesOfSameHost(t *testing.T) {
	for kind, open := range newTargets(t) {
		t.Run(kind, func(t *testing.T) {
			to, dir := open(t)
			other := copyName("cp1", 1)
			other.ID = "ba9876543210"
			foreign := []string{
				"notes.txt", other.String(), copyName("cp2", 1).String(),
				"." + copyName("cp2", 2).String() + ".part", "prod-20200101-000000.tar.age",
			}
			for _, f := range append(foreign, "."+copyName("cp1", 2).String()+".part", "."+copyName("cp1", 2).String()+".ABCDEFGH.part") {
				if err := os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, copyName("cp1", 3).String()), 0o700); err != nil {
				t.Fatal(err)
			}
			foreign = append(foreign, copyName("cp1", 3).String())
			big := bytes.Repeat([]byte("0123456789abcde\n"), 300_000)
			for day := range 4 {
				sent, err := copies.SendCopy(t.Context(), to, copyName("cp1", 10+day), nil, 2, writeContent(big))
				if err != nil || sent != (copies.Sent{Left: min(day+1, 2)}) {
					t.Fatalf("%+v, %v", sent, err)
				}
			}
			got := listFiles(t, dir)
			for _, want := range append(foreign, copyName("cp1", 13).String(), copyName("cp1", 12).String()) {
				if !strings.Contains(got, want) {
					t.Errorf("%s is gone: %s", want, got)
				}
			}
			if n := len(strings.Fields(got)); n != len(foreign)+2 {
				t.Errorf("found %d: %s", n, got)
			}
			var back bytes.Buffer
			if err := to.Fetch(t.Context(), copyName("cp1", 13).String(), &back); err != nil || !bytes.Equal(back.Bytes(), big) {
				t.Errorf("read %d bytes, %v", back.Len(), err)
			}
			own, err := copies.ListCopies(t.Context(), to, "", func(n copies.Name) bool { return n.ID == id })
			if err != nil || len(own) != 3 || own[0].Name != copyName("cp1", 13) || own[0].Bytes != int64(len(big)) {
				t.Errorf("%+v, %v", own, err)
			}
		})
	}
}

// A clock that was ahead or is behind does not remove a newer copy, and its copy does not
// count as the newest.
func TestSendCopy_KeepsNewestCopyDespiteWrongClock(t *testing.T) {
	for kind, open := range newTargets(t) {
		t.Run(kind, func(t *testing.T) {
			to, dir := open(t)
			of := func(day int, revision int64) copies.Name {
				n := copyName("cp1", day)
				n.Revision = revision
				return n
			}
			var newest copies.Name
			for _, newest = range []copies.Name{of(28, 4701), of(27, 4702), of(1, 4703), of(2, 4704), of(2, 4705)} {
				if _, err := copies.SendCopy(t.Context(), to, newest, nil, 2, writeContent(nil)); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := listFiles(t, dir), of(2, 4704).String()+" "+newest.String(); got != want {
				t.Errorf("found %s, want %s", got, want)
			}
			own, err := copies.ListCopies(t.Context(), to, "", func(copies.Name) bool { return true })
			if err != nil || len(own) != 2 || own[0].Name != newest {
				t.Errorf("the newest is the first of %+v, %v", own, err)
			}
			// Etcd was recreated, so its revision starts again.
			anew := of(3, 7)
			if sent, err := copies.SendCopy(t.Context(), to, anew, nil, 2, writeContent(nil)); err != nil || sent != (copies.Sent{Left: 2}) ||
				!strings.Contains(listFiles(t, dir), anew.String()) {
				t.Errorf("%+v, %v: %s", sent, err, listFiles(t, dir))
			}
		})
	}
}

// full is a target without room for more than two files.
type full struct {
	copies.Target
	dir string
}

func (f full) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if entries, err := os.ReadDir(f.dir); err != nil || len(entries) > 2 {
		return errors.Join(err, errors.New("no space left on device"))
	}
	return f.Target.Put(ctx, name, write)
}

// A full target has space again if fewer copies are to be kept.
func TestSendCopy_RemovesCopiesFirstIfTargetIsFull(t *testing.T) {
	dir := t.TempDir()
	d, err := copies.OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	to := full{d, dir}
	for day := range 3 {
		if _, err := copies.SendCopy(t.Context(), to, copyName("cp1", 1+day), nil, 3, writeContent(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := copies.SendCopy(t.Context(), to, copyName("cp1", 4), nil, 3, writeContent(nil)); err == nil ||
		len(strings.Fields(listFiles(t, dir))) != 3 {
		t.Errorf("%v; there is %s: what there was is to stay until there is a new one", err, listFiles(t, dir))
	}
	if sent, err := copies.SendCopy(t.Context(), to, copyName("cp1", 4), nil, 2, writeContent(nil)); err != nil ||
		sent != (copies.Sent{Left: 2}) {
		t.Errorf("%+v, %v", sent, err)
	}
	if want := copyName("cp1", 3).String() + " " + copyName("cp1", 4).String(); listFiles(t, dir) != want {
		t.Errorf("found %s", listFiles(t, dir))
	}
}

// stuck is a target where some files cannot be removed.
type stuck struct {
	copies.Target
	files []string
}

func (s stuck) Remove(ctx context.Context, name string) error {
	if slices.Contains(s.files, name) {
		return errors.New(name + " is locked")
	}
	return s.Target.Remove(ctx, name)
}

func TestRemoveIncomplete_RemovesOnlyIncompleteFilesOfSameHost(t *testing.T) {
	dir := t.TempDir()
	to, err := copies.OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	own, other := copyName("cp1", 1), copyName("cp2", 1)
	for _, name := range []string{own.String(), "." + own.String() + ".ABCDEFGH.part", "." + other.String() + ".part", ".other.part"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copies.RemoveIncomplete(t.Context(), to, copyName("cp1", 2)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		own.String(): true, "." + own.String() + ".ABCDEFGH.part": false, "." + other.String() + ".part": true, ".other.part": true,
	} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it kept: %t", name, err, want)
		}
	}
}

// TestSendCopy_ContinuesIfRemovalFails sends a copy while an old copy cannot be removed. The
// new copy is sent, and the other old copies are removed.
func TestSendCopy_ContinuesIfRemovalFails(t *testing.T) {
	part := "." + copyName("cp1", 1).String() + ".part"
	for _, tc := range []struct {
		name, reason string
		stuck        []string
		left         int
		want         string // is there afterwards, besides the new one
	}{
		{"nothing", "all that is to go goes", nil, 2, "3"},
		{"the oldest", "the one after it goes all the same", []string{copyName("cp1", 1).String()}, 3, "1 3"},
		{"what was cut off", "the oldest go all the same", []string{part}, 2, "part 3"},
		{"all of it", "there is a new one", []string{part, copyName("cp1", 1).String(), copyName("cp1", 2).String()}, 4, "part 1 2 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			d, err := copies.OpenDirectory(dir)
			if err != nil {
				t.Fatal(err)
			}
			was := map[string]string{part: "part"}
			for day := 1; day <= 3; day++ {
				was[copyName("cp1", day).String()] = strconv.Itoa(day)
			}
			old := time.Now().Add(-time.Hour) // of all, which says nothing of their order
			for file := range was {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(filepath.Join(dir, file), old, old); err != nil {
					t.Fatal(err)
				}
			}
			sent, err := copies.SendCopy(t.Context(), stuck{d, tc.stuck}, copyName("cp1", 4), nil, 2, writeContent([]byte("new")))
			if err != nil || sent.Left != tc.left || (sent.Unremoved != nil) != (len(tc.stuck) > 0) {
				t.Errorf("%s: %+v, %v", tc.reason, sent, err)
			}
			for _, file := range tc.stuck {
				if n := strings.Count(fmt.Sprint(sent.Unremoved), file+" is locked"); n != 1 {
					t.Errorf("%s is told of %d times: %v", file, n, sent.Unremoved)
				}
			}
			var got []string
			for _, file := range strings.Fields(listFiles(t, dir)) {
				got = append(got, was[file])
			}
			if got := strings.Join(got, " "); got != tc.want+" " {
				t.Errorf("found %q: %s", got, tc.reason)
			}
			// If the target is full, the error names the copies whose removal would have
			// freed space.
			_, err = copies.SendCopy(t.Context(), stuck{full{d, dir}, tc.stuck}, copyName("cp1", 5), nil, 1, writeContent(nil))
			if (err != nil) != (len(tc.stuck) > 1) ||
				err != nil && (!strings.Contains(err.Error(), "no space") || !strings.Contains(err.Error(), "is locked")) {
				t.Errorf("full: %v", err)
			}
		})
	}
}

// A copy is complete or does not exist, and earlier copies are kept.
func TestSendCopy_LeavesOldCopiesAfterFailure(t *testing.T) {
	for kind, open := range newTargets(t) {
		t.Run(kind, func(t *testing.T) {
			to, dir := open(t)
			if _, err := copies.SendCopy(t.Context(), to, copyName("cp1", 1), nil, 1, writeContent([]byte("one"))); err != nil {
				t.Fatal(err)
			}
			broken := errors.New("the snapshot is damaged")
			_, err := copies.SendCopy(t.Context(), to, copyName("cp1", 2), nil, 1, func(w io.Writer) error {
				_, err := w.Write(bytes.Repeat([]byte("x"), 2<<20))
				return errors.Join(err, broken)
			})
			if !errors.Is(err, broken) || listFiles(t, dir) != copyName("cp1", 1).String() {
				t.Errorf("%v; there is %s", err, listFiles(t, dir))
			}
			// Another process changes the file meanwhile, so it differs from the written
			// data.
			_, err = copies.SendCopy(t.Context(), to, copyName("cp1", 2), nil, 1, func(w io.Writer) error {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 9<<20)); err != nil {
					return err
				}
				part, err := filepath.Glob(filepath.Join(dir, ".*.part"))
				if err != nil || len(part) != 1 {
					t.Fatalf("%v, %v", part, err)
				}
				f, err := os.OpenFile(part[0], os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				_, err = f.WriteAt([]byte("y"), 100)
				return errors.Join(err, f.Close())
			})
			if err == nil || !strings.Contains(err.Error(), "differs from the written data") || listFiles(t, dir) != copyName("cp1", 1).String() {
				t.Errorf("%v; there is %s", err, listFiles(t, dir))
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := copies.SendCopy(t.Context(), to, copyName("cp1", 2), nil, 1, writeContent(nil)); err == nil {
				t.Error("a copy was sent to a missing target")
			}
		})
	}
}

// Nothing is sent to a machine with another host key.
func TestOpen_VerifiesHostKey(t *testing.T) {
	m, other := copiestest.ListenSFTP(t), copiestest.ListenSFTP(t)
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.To.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, reason string
		do           func(*op.CopySSH, *[]byte)
		want         string
	}{
		{"its key", "it is pinned", func(*op.CopySSH, *[]byte) {}, ""},
		{"its fingerprint", "as ssh-keygen prints it", func(to *op.CopySSH, _ *[]byte) { to.HostKey = ssh.FingerprintSHA256(key) }, ""},
		{
			"another key", "an attacker may be in between", func(to *op.CopySSH, _ *[]byte) { to.HostKey = other.To.HostKey },
			"has another host key than hostKey: it presents ssh-ed25519 SHA256:",
		},
		{
			"another's fingerprint", "the same",
			func(to *op.CopySSH, _ *[]byte) { to.HostKey = "SHA256:" + strings.Repeat("A", 43) }, "has another host key than hostKey",
		},
		{"another login", "the machine refuses it", func(_ *op.CopySSH, key *[]byte) { *key = other.Key }, "unable to authenticate"},
		{"no key", "it is not a private key", func(_ *op.CopySSH, key *[]byte) { *key = []byte("canary") }, "the private key cannot be used"},
		{"no server", "the error says so", func(to *op.CopySSH, _ *[]byte) { to.Port = 1 }, "refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			to, login := m.To, m.Key
			tc.do(&to, &login)
			target, err := copies.Open(t.Context(), op.CopyTarget{Name: "nas", SSH: &to}, login)
			if err == nil {
				err = target.Close()
			}
			if (err != nil) != (tc.want != "") ||
				err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "canary")) {
				t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// SendCopy ends with its context if the machine hangs.
func TestSendCopy_EndsWhenMachineHangs(t *testing.T) {
	m := copiestest.ListenSFTP(t)
	ctx, cancel := context.WithCancel(t.Context())
	to := openMachine(ctx, t, m)
	_, err := copies.SendCopy(ctx, to, copyName("cp1", 1), nil, 1, func(w io.Writer) error {
		cancel()
		_, err := w.Write(bytes.Repeat([]byte("x"), 4<<20))
		return err
	})
	if err == nil || strings.Contains(listFiles(t, m.Dir), " ") {
		t.Errorf("%v; there is %s", err, listFiles(t, m.Dir))
	}
}

// A link or a pipe that another user has put in place of a copy is not followed and does
// not block.
func TestTarget_DoesNotFollowPlantedLinksOrPipes(t *testing.T) {
	for _, kind := range []string{"directory", "ssh"} { // where there are links and pipes
		open := newTargets(t)[kind]
		for what, plant := range map[string]func(victim, at string) error{
			"link": os.Symlink,
			"pipe": func(_, at string) error { return unix.Mkfifo(at, 0o600) },
		} {
			t.Run(kind+"/"+what, func(t *testing.T) {
				to, dir := open(t)
				victim := filepath.Join(t.TempDir(), "shadow")
				if err := os.WriteFile(victim, []byte("canary"), 0o600); err != nil {
					t.Fatal(err)
				}
				for _, at := range []string{"." + copyName("cp1", 1).String() + ".part", copyName("cp1", 1).String(), copyName("cp1", 2).String()} {
					if err := plant(victim, filepath.Join(dir, at)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := copies.SendCopy(t.Context(), to, copyName("cp1", 1), nil, 1, writeContent([]byte("one"))); err != nil {
					t.Error(err)
				}
				if got, err := os.ReadFile(victim); err != nil || string(got) != "canary" {
					t.Errorf("the target of the link has %q, %v", got, err)
				}
				if kind != "directory" { // a machine follows links with the rights of its user
					return
				}
				var got bytes.Buffer
				if err := to.Fetch(t.Context(), copyName("cp1", 2).String(), &got); err == nil || got.Len() > 0 {
					t.Errorf("%q was fetched, %v", got.String(), err)
				}
			})
		}
	}
}

func TestOpenDirectory_RefusesOtherFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + "2"} {
		if _, err := copies.OpenDirectory(path); err == nil {
			t.Errorf("%s is taken for a directory", path)
		}
	}
}
