package privatedir

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/testutil/requireroot"
)

// other is a user other than the one that runs the tests.
const other = 4711

func TestMemoryDirs_HaveRuntimeDirectoryLast(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1000")
	if got := memoryDirs(); !slices.Equal(got, []string{"/dev/shm", "/run/user/1000"}) {
		t.Error(got)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if got := memoryDirs(); !slices.Equal(got, []string{"/dev/shm"}) {
		t.Error(got)
	}
}

// mountMemory mounts a small file system in memory.
func mountMemory(t *testing.T, options string) string {
	t.Helper()
	requireroot.Need(t, "mounting a file system in memory")
	dir := newBase(t)
	noError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, options))
	t.Cleanup(func() { noError(t, unix.Unmount(dir, 0)) })
	return dir
}

func TestCreateIn_PrefersMemoryWithRoom(t *testing.T) {
	small, unlimited := mountMemory(t, "mode=700,size=16m"), mountMemory(t, "mode=700,size=0")
	proc := "/proc" // it belongs to root, and is never a tmpfs
	for _, tc := range []struct {
		name, reason, dir string
		need              int64
		used              bool
	}{
		{"room", "it is in memory", small, 1 << 20, true},
		{"no need", "it has the spare room", small, 0, true},
		{"exact room", "half of it is spare", small, 16<<20 - spare, true},
		{"too small", "the files do not fit", small, 16<<20 - spare + 1, false},
		{"much too small", "sums must not overflow", small, math.MaxInt64, false},
		{"without limit", "all of the memory is free", unlimited, 1 << 40, true},
		{"not in memory", "the files would be on a disk", proc, 0, false},
		{"missing", "a container can lack it", "/nonexistent", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk := newBase(t)
			d, err := createIn([]base{{path: tc.dir, memory: true}, {path: disk}}, tc.need)
			noError(t, err)
			if used := filepath.Dir(d.Path()) == tc.dir; used != tc.used {
				t.Errorf("%s: in %s", tc.reason, d.Path())
			}
			noError(t, d.Close())
		})
	}
}

// TestCreateIn_RemovesEndedInAllBases checks that directories in another base than the used
// one are removed, too: an earlier Create had other free space.
func TestCreateIn_RemovesEndedInAllBases(t *testing.T) {
	first, second, third := newBase(t), newBase(t), newBase(t)
	for _, dir := range []string{first, second, third} {
		noError(t, os.Mkdir(filepath.Join(dir, prefix+"ended"), 0o700))
	}
	d, err := createIn([]base{{path: first, memory: true}, {path: second}, {path: third}}, math.MaxInt64)
	noError(t, err)
	if filepath.Dir(d.Path()) != second {
		t.Errorf("in %s, want %s", d.Path(), second)
	}
	noError(t, d.Close())
	for _, dir := range []string{first, second, third} {
		if names := entriesOf(t, dir); len(names) > 0 {
			t.Errorf("%s has %v", dir, names)
		}
	}
}

func TestWriteFile_RemovesIncompleteFileOfFullDisk(t *testing.T) {
	d, err := Create(0, mountMemory(t, "mode=700,size=64k"))
	noError(t, err)
	if err := d.WriteFile("a", make([]byte, 1<<20)); err == nil || !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		t.Errorf("got %v", err)
	}
	names, err := d.List()
	if err != nil || len(names) > 0 {
		t.Errorf("an incomplete file remains: %v, %v", names, err)
	}
	noError(t, d.Close())
}

func TestCreate_WorksAsOtherUser(t *testing.T) {
	requireroot.Need(t, "starting a process of another user")
	mine := startCreator(t, "default", nil)
	mine.kill()
	theirs := startCreator(t, "default", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}})
	if !mine.exists() {
		t.Error("a directory of root was removed by another user")
	}
	info, err := os.Lstat(theirs.path)
	noError(t, err)
	if uidOf(info) != other || info.Mode().Perm() != 0o700 {
		t.Errorf("%s has mode %v and belongs to user %d", theirs.path, info.Mode(), uidOf(info))
	}
	theirs.kill()
	create(t)
	if mine.exists() || !theirs.exists() {
		t.Errorf("after a Create of root: its own directory remains: %t, a directory of another user remains: %t",
			mine.exists(), theirs.exists())
	}
	last := startCreator(t, "default", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}})
	if theirs.exists() {
		t.Error("a user does not remove an own directory")
	}
	last.stop()
}

// TestCreate_WorksAcrossContainers checks processes that share a directory, but not the
// numbers of processes.
func TestCreate_WorksAcrossContainers(t *testing.T) {
	requireroot.Need(t, "creating a PID namespace")
	base := newBase(t)
	container := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	d := create(t, base)
	noError(t, d.WriteFile("key", []byte("secret")))
	first := startCreator(t, base, container)
	second := startCreator(t, base, container) // both have number 1
	create(t, base)
	if data, err := d.ReadFile("key", 10); err != nil || string(data) != "secret" {
		t.Errorf("a container has removed the directory of this process: %v", err)
	}
	if !first.exists() || !second.exists() {
		t.Error("the directory of a running container was removed")
	}
	first.kill()
	startCreator(t, base, container).stop()
	if first.exists() || !second.exists() {
		t.Errorf("the directory of an ended container remains: %t, of a running one: %t", first.exists(), second.exists())
	}
}

func TestCreate_RefusesFilesOfOtherUsers(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	give := func(t *testing.T, path string) {
		t.Helper()
		noError(t, os.Lchown(path, other, other))
	}
	for _, tc := range []struct {
		name, reason string
		prepare      func(t *testing.T, dir string) string
	}{
		{"base", "its owner can replace entries", func(t *testing.T, dir string) string {
			give(t, dir)
			return dir
		}},
		{"sticky base", "its owner can replace entries all the same", func(t *testing.T, dir string) string {
			noError(t, os.Chmod(dir, os.ModeSticky|0o777))
			give(t, dir)
			return dir
		}},
		{"parent", "its owner can replace the base", func(t *testing.T, dir string) string {
			noError(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
			give(t, dir)
			return filepath.Join(dir, "a")
		}},
		{"link", "its owner can change it", func(t *testing.T, dir string) string {
			noError(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
			noError(t, os.Symlink("a", filepath.Join(dir, "link")))
			give(t, filepath.Join(dir, "link"))
			return filepath.Join(dir, "link")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d, err := Create(0, tc.prepare(t, newBase(t))); err == nil {
				t.Errorf("%s: %s is used", tc.reason, d.Path())
			}
		})
	}
}

func TestCreate_KeepsEntriesOfOtherUsers(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	base := newBase(t)
	noError(t, os.Chmod(base, os.ModeSticky|0o777))
	victim := filepath.Join(newBase(t), prefix+"victim")
	noError(t, os.MkdirAll(filepath.Join(victim, "a"), 0o700))
	at := func(name string) string { return filepath.Join(base, prefix+name) }
	noError(t, os.MkdirAll(filepath.Join(at("directory"), "a"), 0o700))
	noError(t, os.WriteFile(at("file"), nil, 0o600))
	noError(t, os.Symlink(victim, at("link")))
	noError(t, unix.Mkfifo(at("pipe"), 0o600)) // an open would wait for a writer
	for _, name := range []string{"directory", "file", "link", "pipe"} {
		noError(t, os.Lchown(at(name), other, other))
	}
	noError(t, unix.Mkfifo(at("own-pipe"), 0o600))
	before := entriesOf(t, base)
	d, err := Create(0, base)
	noError(t, err)
	noError(t, d.Close())
	if after := entriesOf(t, base); !slices.Equal(before, after) {
		t.Errorf("%v, before %v", after, before)
	}
	for _, dir := range []string{at("directory"), victim} {
		if names := entriesOf(t, dir); !slices.Equal(names, []string{"a"}) {
			t.Errorf("%s has %v", dir, names)
		}
	}
}

func TestLockDir_RefusesOtherThanOwnDirectories(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	base := newBase(t)
	at := func(name string) string { return filepath.Join(base, name) }
	for _, name := range []string{"own", "foreign"} {
		noError(t, os.Mkdir(at(name), 0o700))
	}
	noError(t, os.Lchown(at("foreign"), other, other))
	noError(t, os.Symlink("own", at("link")))
	noError(t, os.WriteFile(at("file"), nil, 0o600))
	noError(t, unix.Mkfifo(at("pipe"), 0o600))
	parent, err := os.OpenRoot(base)
	noError(t, err)
	defer parent.Close()
	for _, tc := range []struct {
		name, reason string
		accepted     bool
	}{
		{"own", "it can be of an ended process", true},
		{"foreign", "its user can use it without a lock", false},
		{"link", "it leads to another directory", false},
		{"file", "it is not a directory", false},
		{"pipe", "an open would wait for a writer", false},
		{"missing", "nothing can be locked", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lock, err := lockDir(parent, tc.name)
			if (err == nil) != tc.accepted {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if err == nil {
				noError(t, unix.Close(lock))
			}
		})
	}
}
