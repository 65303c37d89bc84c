package sandbox

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

var caller = &fileowner.Owner{UID: 12345, GID: 12346}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wholeSpec is a record as create writes it.
func wholeSpec(name string) spec {
	key := "ssh-ed25519 " + strings.Repeat("A", 68)
	return spec{
		Version: specVersion, Name: name, Pool: defaultPool, Range: netip.MustParsePrefix("198.18.3.0/24"), AuthorizedKey: key + " " + name,
		Machines: []machineSpec{{
			Name: name + "-1", Address: netip.MustParseAddr("198.18.3.2"), MachineID: strings.Repeat("0", 32), HostKey: key, Disk: minDisk,
		}},
	}
}

func writeState(t *testing.T, dir string, s spec) {
	t.Helper()
	b, err := json.Marshal(s)
	requireNoError(t, errors.Join(err, os.WriteFile(filepath.Join(dir, specFile), b, 0o644)))
}

// listFiles are all files below a directory.
func listFiles(t *testing.T, dir string) (all []string) {
	t.Helper()
	requireNoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	return all
}

// TestOpen_RefusesForeignDirectories creates directories and state files that are not a sandbox: root
// refuses to open them, and so deletes nothing there.
func TestOpen_RefusesForeignDirectories(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	for _, tt := range []struct {
		name  string
		plant func(t *testing.T, etc, dir string) // dir is not there yet
	}{
		{"a link to a system directory", func(t *testing.T, etc, dir string) { requireNoError(t, os.Symlink(etc, dir)) }},
		{"a directory without a record", func(t *testing.T, _, dir string) {
			requireNoError(t, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "f"), nil, 0o600)))
		}},
		{"a directory of the caller's", func(t *testing.T, _, dir string) {
			requireNoError(t, os.Mkdir(dir, 0o755))
			writeState(t, dir, wholeSpec("foo"))
			requireNoError(t, caller.GiveFiles(dir))
		}},
		{"a directory that others can write to", func(t *testing.T, _, dir string) {
			requireNoError(t, os.Mkdir(dir, 0o755))
			writeState(t, dir, wholeSpec("foo"))
			requireNoError(t, os.Chmod(dir, 0o777))
		}},
		{"a record of the caller's", func(t *testing.T, _, dir string) {
			requireNoError(t, os.Mkdir(dir, 0o755))
			writeState(t, dir, wholeSpec("foo"))
			requireNoError(t, caller.GiveFiles(filepath.Join(dir, specFile)))
		}},
		{"a link for a record", func(t *testing.T, etc, dir string) {
			requireNoError(t, os.Mkdir(dir, 0o755))
			writeState(t, etc, wholeSpec("foo"))
			requireNoError(t, os.Symlink(filepath.Join(etc, specFile), filepath.Join(dir, specFile)))
		}},
		{"a link to another sandbox", func(t *testing.T, etc, dir string) {
			other := filepath.Join(etc, "other")
			requireNoError(t, os.Mkdir(other, 0o755))
			writeState(t, other, wholeSpec("other"))
			requireNoError(t, os.Symlink(other, dir))
		}},
		{"a record of another name", func(t *testing.T, _, dir string) {
			requireNoError(t, os.Mkdir(dir, 0o755))
			writeState(t, dir, wholeSpec("other"))
		}},
		{"a machine outside", func(t *testing.T, _, dir string) {
			requireNoError(t, os.Mkdir(dir, 0o755))
			s := wholeSpec("foo")
			s.Machines[0].Name = "../../../etc/cron.d"
			writeState(t, dir, s)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			etc, home := filepath.Join(top, "etc"), filepath.Join(top, "home")
			requireNoError(t,
				errors.Join(os.MkdirAll(filepath.Join(home, "sandboxes"), 0o755), os.Mkdir(etc, 0o755),
					os.WriteFile(filepath.Join(etc, "passwd"), nil, 0o600)))
			requireNoError(t, caller.GiveFiles(home, filepath.Join(home, "sandboxes")))
			tt.plant(t, etc, filepath.Join(home, "sandboxes", "foo"))
			good := filepath.Join(home, "sandboxes", "good")
			requireNoError(t, os.Mkdir(good, 0o755))
			writeState(t, good, wholeSpec("good"))
			before := listFiles(t, top)
			all, damaged, err := List(home)
			if err != nil || len(all) != 1 || all[0].Name() != "good" {
				t.Errorf("the list hides another sandbox: %v, %v", all, err)
			}
			if len(damaged) != 1 || damaged[0].Name != "foo" || damaged[0].Problem.Message == "" || damaged[0].Problem.Hint == "" {
				t.Errorf("damaged: %+v", damaged)
			}
			if m, err := FindMachine(home, "good-1"); err != nil || m.Name() != "good-1" {
				t.Errorf("a machine of another sandbox: %v", err)
			}
			_, err = Open(home, "foo")
			var list diag.List
			if !errors.As(err, &list) || list[0].ID != IDForeign || list[0].Hint == "" {
				t.Errorf("error %v, want %s with a remedy", err, IDForeign)
			}
			if d := cmp.Diff(before, listFiles(t, top)); d != "" {
				t.Errorf("files (-before +after):\n%s", d)
			}
		})
	}
}

func TestRemoveFiles_StaysInTheDirectory(t *testing.T) {
	requireroot.Need(t, "directories that are root's")
	top := t.TempDir()
	home, disk := filepath.Join(top, "home"), filepath.Join(top, "disk")
	dir := filepath.Join(disk, "foo")
	requireNoError(t, errors.Join(os.MkdirAll(filepath.Join(home, "sandboxes"), 0o755), os.MkdirAll(filepath.Join(dir, "foo-1"), 0o755)))
	writeState(t, dir, wholeSpec("foo"))
	requireNoError(t,
		errors.Join(os.Symlink(dir, filepath.Join(home, "sandboxes", "foo")), os.WriteFile(filepath.Join(home, "sandboxes", "bar"), nil, 0o600)))
	s, err := Open(home, "foo")
	requireNoError(t, err)
	requireNoError(t, errors.Join(s.removeFiles(), s.unlinkHome(home)))
	want := []string{top, disk, home, filepath.Join(home, "sandboxes"), filepath.Join(home, "sandboxes", "bar")}
	if d := cmp.Diff(want, listFiles(t, top)); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	// Of a creation that was killed in its first moments.
	dir = filepath.Join(home, "sandboxes", "half")
	requireNoError(t, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, tmpPrefix+"1"), nil, 0o600)))
	s, err = Open(home, "half")
	requireNoError(t, err)
	requireNoError(t, errors.Join(s.removeFiles(), s.unlinkHome(home)))
	if d := cmp.Diff(want, listFiles(t, top)); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

func TestMakeDir_SetsOwners(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	top := t.TempDir()
	home, etc := filepath.Join(top, "home"), filepath.Join(top, "etc")
	requireNoError(t, errors.Join(os.Mkdir(home, 0o755), os.Mkdir(etc, 0o755), os.Symlink(etc, filepath.Join(home, "sandboxes"))))
	requireNoError(t, caller.GiveFiles(home, filepath.Join(home, "sandboxes")))
	c := &creation{Options: Options{Home: home, Name: "foo", Owner: caller}}
	var list diag.List
	if _, err := c.makeDir(c.sandboxDir()); !errors.As(err, &list) || list[0].ID != IDForeign {
		t.Errorf("error %v, want %s", err, IDForeign)
	}
	if left, err := os.ReadDir(etc); err != nil || len(left) > 0 {
		t.Errorf("made %v in a directory that is not the caller's (%v)", left, err)
	}
}

func TestBaseDir_BelongsToRoot(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	top := t.TempDir()
	cache, etc := filepath.Join(top, "cache"), filepath.Join(top, "etc")
	requireNoError(t, errors.Join(os.Mkdir(cache, 0o755), os.MkdirAll(filepath.Join(etc, "v1"), 0o755), caller.GiveFiles(cache)))
	fd, err := baseDir(caller, cache, "v1")
	requireNoError(t, err)
	requireNoError(t, os.WriteFile(filepath.Join(pinnedPath(fd), "disk"), nil, 0o600))
	requireNoError(t, caller.GiveFiles(filepath.Join(cache, baseName))) // as an earlier version did
	fd, err = baseDir(caller, cache, "v1")
	requireNoError(t, err)
	if _, err := os.Stat(filepath.Join(pinnedPath(fd), "disk")); err != nil {
		t.Errorf("the base system is not found again: %v", err)
	}
	if !fileowner.BelongsToRoot(filepath.Join(cache, baseName)) {
		t.Error("the directory of base systems is not root's")
	}
	requireNoError(t, errors.Join(os.RemoveAll(filepath.Join(cache, baseName)), os.Symlink(etc, filepath.Join(cache, baseName))))
	if fd, err := baseDir(caller, cache, "v1"); err == nil {
		t.Errorf("a link is taken for the base system: %d", fd)
	}
}

func TestCheckSpec_RejectsForeignState(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*spec)
		ok     bool
	}{
		{"as create writes it", func(*spec) {}, true},
		{"before a range is taken", func(s *spec) { *s = spec{Version: specVersion, Name: "foo"} }, true},
		{"before a machine is made", func(s *spec) {
			s.Machines[0].HostKey, s.Machines[0].MachineID, s.Machines[0].Disk = "", "", 0
		}, true},
		{"another version", func(s *spec) { s.Version = 2 }, false},
		{"path as a name", func(s *spec) { s.Name = ".." }, false},
		{"path as a machine", func(s *spec) { s.Machines[0].Name = "../etc" }, false},
		{"file as a machine", func(s *spec) { s.Machines[0].Name = specFile }, false},
		{"address of the bridge", func(s *spec) { s.Machines[0].Address = netip.MustParseAddr("198.18.3.1") }, false},
		{"address elsewhere", func(s *spec) { s.Machines[0].Address = netip.MustParseAddr("10.0.0.2") }, false},
		{"IPv6", func(s *spec) {
			s.Pool, s.Range = netip.MustParsePrefix("fd00::/16"), netip.MustParsePrefix("fd00::/24")
		}, false},
		{"range outside the pool", func(s *spec) { s.Range = netip.MustParsePrefix("10.0.0.0/24") }, false},
		{"wide range", func(s *spec) { s.Range = netip.MustParsePrefix("198.18.0.0/16") }, false},
		{"no range", func(s *spec) { s.Range = netip.Prefix{} }, false},
		{"two lines as a key", func(s *spec) { s.AuthorizedKey += "\nx" }, false},
		{"two lines as a host key", func(s *spec) { s.Machines[0].HostKey += "\nx" }, false},
		{"path as a machine id", func(s *spec) { s.Machines[0].MachineID = "../" }, false},
		{"no disk", func(s *spec) { s.Machines[0].Disk = 0 }, false},
		{"a machine twice", func(s *spec) { s.Machines = append(s.Machines, s.Machines[0]) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := wholeSpec("foo")
			tt.change(&s)
			if err := s.checkSpec(); (err == nil) != tt.ok {
				t.Errorf("error %v", err)
			}
		})
	}
}
