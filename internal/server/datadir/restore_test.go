package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/testutil/smalldisk"
)

// restoredInfo is the description of the server in a backup.
func restoredInfo() Info {
	return Info{
		Format: Format, ServerID: "6ba7b810-9dad-41d1-80b4-00c04fd430c8",
		Created: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC), Program: "v0.1.0",
	}
}

// errKilled stops a maker, as if the process were killed.
var errKilled = errors.New("killed")

// killAfter returns a maker that stops after some number of steps.
func killAfter(steps int) maker {
	n := 0
	return maker{after: func(string) error {
		if n++; n == steps {
			return errKilled
		}
		return nil
	}}
}

// makers returns makers for file systems that can and cannot swap directories.
func makers() map[string]maker {
	return map[string]maker{
		"swap":   {},
		"rename": {swap: func(string, string) error { return unix.EINVAL }},
	}
}

// fillServer makes the data directory of a server with some data, and returns its id.
func fillServer(t *testing.T, path string) string {
	t.Helper()
	id := openClosed(t, path)
	writeFile(t, filepath.Join(path, "etcd", "db"), "data")
	return id
}

// beginRestore makes a directory that a restore has filled and not completed.
func beginRestore(t *testing.T, path string) {
	t.Helper()
	d, err := Create(path, restoredInfo())
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, d.Path("etcd", "db"), "half")
	if err := d.SetHold(Hold{Reason: "restored"}); err != nil {
		t.Error(err)
	}
	_, err = Open(path)
	wantID(t, err, idInUse)
	closeDir(t, d)
	_, err = Open(path)
	wantID(t, err, idIncomplete)
}

func TestCreate_KeepsIdentityOfServer(t *testing.T) {
	path := filepath.Join(shortDir(t), "new", "data")
	d, err := Create(path, restoredInfo())
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, d.Path("etcd", "db"), "data")
	if _, err := os.Lstat(d.Path(infoFile)); err == nil {
		t.Error("server.json exists before Commit")
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err == nil {
		t.Error("a second Commit had no error")
	}
	closeDir(t, d)
	got, err := ReadInfo(path)
	want := restoredInfo()
	want.Started = true // missing keys are a loss
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if id := openClosed(t, path); id != restoredInfo().ServerID {
		t.Errorf("the id is %s", id)
	}
	if _, err := os.Lstat(filepath.Join(path, restoreFile)); err == nil {
		t.Error("restore.json is still there")
	}
}

func TestCreate_RefusesUnusableDirectory(t *testing.T) {
	newer := restoredInfo()
	newer.Format = Format + 1
	for _, tt := range []struct {
		name, reason, want string
		info               Info
		plant              func(t *testing.T, path string)
	}{
		{"a server", "its data would be lost", idExists, restoredInfo(), func(t *testing.T, path string) { fillServer(t, path) }},
		{"data without server.json", "the data may be all that is left", idExists, restoredInfo(), func(t *testing.T, path string) {
			fillServer(t, path)
			if err := os.Remove(filepath.Join(path, infoFile)); err != nil {
				t.Error(err)
			}
		}},
		{"an earlier restore", "two backups would be mixed", idIncomplete, restoredInfo(), beginRestore},
		{"newer backup", "this program does not know its format", idNewer, newer, func(*testing.T, string) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(shortDir(t), "data")
			tt.plant(t, path)
			_, err := Create(path, tt.info)
			if idOf(err) != tt.want {
				t.Errorf("%v, want id %q: %s", err, tt.want, tt.reason)
			}
		})
	}
	if _, err := Create(filepath.Join(shortDir(t), "data"), Info{}); err == nil {
		t.Error("a server without an id was restored")
	}
}

func TestCreate_NeverLeavesUsableHalfAfterKill(t *testing.T) {
	incompletes := 0
	for kill := 1; ; kill++ {
		path := filepath.Join(shortDir(t), "data")
		d, err := killAfter(kill).createDir(path, restoredInfo())
		if err == nil {
			writeFile(t, d.Path("etcd", "db"), "data")
			err = d.Commit()
			closeDir(t, d)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		opened, err := Open(path)
		switch {
		case err != nil:
			incompletes++
			wantID(t, err, idIncomplete)
			_, err = ReadInfo(path)
			wantID(t, err, idIncomplete)
		case opened.ServerID() == restoredInfo().ServerID:
			if text, err := os.ReadFile(opened.Path("etcd", "db")); err != nil || string(text) != "data" {
				t.Errorf("%q, %v", text, err)
			}
			closeDir(t, opened)
		default: // nothing was restored yet
			closeDir(t, opened)
			if kill > 2 {
				t.Errorf("killed after step %d: a new server has started", kill)
			}
		}
	}
	if incompletes < 5 {
		t.Errorf("only %d incomplete directories", incompletes)
	}
}

func TestReplace_KeepsExistingDirectory(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		change       func(path string) error
	}{
		{"a server", "the usual case", func(string) error { return nil }},
		{"damaged", "a reason to restore", func(path string) error { return os.Truncate(filepath.Join(path, infoFile), 3) }},
		{"no server.json", "a reason to restore", func(path string) error { return os.Remove(filepath.Join(path, infoFile)) }},
		{"newer", "the way back from an upgrade", func(path string) error {
			return os.WriteFile(filepath.Join(path, infoFile), []byte(`{"format":2}`), 0o600)
		}},
		{"restore.json of another program", "its content is not removed", func(path string) error {
			return errors.Join(os.Remove(filepath.Join(path, infoFile)), os.WriteFile(filepath.Join(path, restoreFile), []byte("{}"), 0o600))
		}},
	} {
		for name, m := range makers() {
			t.Run(tt.name+" by "+name, func(t *testing.T) {
				path, now := filepath.Join(shortDir(t), "data"), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
				fillServer(t, path)
				if err := errors.Join(tt.change(path), os.Mkdir(path+".before-20260102T030405Z", 0o700)); err != nil {
					t.Fatal(err)
				}
				before := listTree(t, path)
				kept, err := m.replaceDir(path, now)
				if want := path + ".before-20260102T030405Z-2"; err != nil || kept != want {
					t.Fatalf("%q, %v, want %q: %s", kept, err, want, tt.reason)
				}
				if diff := cmp.Diff(before, listTree(t, kept)); diff != "" {
					t.Errorf("the kept directory has changed (-before +after):\n%s", diff)
				}
				_, err = Open(path)
				wantID(t, err, idIncomplete)
				if err == nil || !strings.Contains(err.Error(), kept) {
					t.Errorf("%s is missing in: %v", kept, err)
				}
				d, err := Create(path, restoredInfo())
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Commit(); err != nil {
					t.Error(err)
				}
				closeDir(t, d)
				wantID(t, RestorePrevious(path, kept), idExists)
				if id := openClosed(t, path); id != restoredInfo().ServerID {
					t.Errorf("the id is %s", id)
				}
			})
		}
	}
}

func TestReplace_ReturnsNothingForMissingOrEmptyDirectory(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	for _, make := range []func() error{
		func() error { return nil },
		func() error { return os.Mkdir(path, 0o755) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if kept, err := Replace(path); kept != "" || err != nil {
			t.Errorf("%q, %v", kept, err)
		}
	}
	openClosed(t, path)
}

func TestReplace_KeepsFirstDirectoryAfterUnfinishedRestore(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	id := fillServer(t, path)
	kept, err := Replace(path)
	if err != nil {
		t.Fatal(err)
	}
	beginRestore(t, path)
	again, err := Replace(path)
	if err != nil || again != kept {
		t.Errorf("%q, %v, want %q", again, err, kept)
	}
	beginRestore(t, path) // nothing is left of the first restore
	if err := RestorePrevious(path, kept); err != nil {
		t.Fatal(err)
	}
	if got := openClosed(t, path); got != id {
		t.Errorf("the id was %s and is %s", id, got)
	}

	if kept, err = Replace(path); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(kept); err != nil {
		t.Fatal(err)
	}
	if again, err := Replace(path); err != nil || again != "" {
		t.Errorf("the kept directory was removed: %q, %v", again, err)
	}
}

func TestReplace_NeverLosesDataAfterKill(t *testing.T) {
	for kill := 1; ; kill++ {
		path := filepath.Join(shortDir(t), "data")
		id := fillServer(t, path)
		_, err := killAfter(kill).replaceDir(path, time.Now())
		if err == nil {
			if kill < 3 {
				t.Errorf("only %d steps", kill-1)
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		d, err := Open(path)
		if err == nil {
			closeDir(t, d)
			if d.ServerID() != id {
				t.Errorf("a new server has started")
			}
			continue
		}
		wantID(t, err, idIncomplete)
		if err := RestorePrevious(path, readRestore(path).Previous); err != nil {
			t.Error(err)
		}
		if got := openClosed(t, path); got != id {
			t.Errorf("the id was %s and is %s", id, got)
		}
	}
}

func TestReplace_RestoresNameAfterError(t *testing.T) {
	for name, m := range map[string]maker{
		"swap":                   {swap: func(string, string) error { return unix.EIO }},
		"marker":                 {after: func(string) error { return errKilled }},
		"no swap, second marker": {swap: makers()["rename"].swap, after: failSecond()},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			path := filepath.Join(dir, "data")
			id := fillServer(t, path)
			if kept, err := m.replaceDir(path, time.Now()); err == nil || kept != "" {
				t.Errorf("%q, %v", kept, err)
			}
			if got := openClosed(t, path); got != id {
				t.Errorf("the id was %s and is %s", id, got)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("%v, %v", entries, err)
			}
		})
	}
}

// failSecond returns a function for maker.after that fails at the second step.
func failSecond() func(string) error { return killAfter(2).after }

func TestRestorePrevious_RemovesIncompleteDirectory(t *testing.T) {
	for name, m := range makers() {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			path, outside := filepath.Join(dir, "data"), filepath.Join(dir, "outside")
			fillServer(t, path)
			writeFile(t, outside, "text")
			before := listTree(t, path)
			kept, err := m.replaceDir(path, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			beginRestore(t, path)
			if err := os.Symlink(dir, filepath.Join(path, "etcd", "link")); err != nil {
				t.Fatal(err)
			}
			if err := m.restorePrevious(path, kept); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, listTree(t, path)); diff != "" {
				t.Errorf("the directory has changed (-before +after):\n%s", diff)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
				t.Errorf("%v, %v", entries, err)
			}
			openClosed(t, path)
			wantID(t, m.restorePrevious(path, ""), idExists)
		})
	}
}

func TestRestorePrevious_HandlesOtherStates(t *testing.T) {
	path := filepath.Join(shortDir(t), "data")
	if err := RestorePrevious(path, ""); err != nil {
		t.Errorf("nothing was made: %v", err)
	}
	beginRestore(t, path)
	wantID(t, RestorePrevious(path, path+".before-1"), idMissing)
	if err := RestorePrevious(path, "/etc"); err == nil || idOf(err) == idMissing {
		t.Errorf("a name that Replace has not returned: %v", err)
	}
	if err := RestorePrevious(path, ""); err != nil {
		t.Errorf("nothing was kept: %v", err)
	}
	id := fillServer(t, path)
	if err := os.Rename(path, path+".before-1"); err != nil {
		t.Fatal(err)
	}
	if err := RestorePrevious(path, path+".before-1"); err != nil {
		t.Errorf("the path is missing: %v", err)
	}
	if got := openClosed(t, path); got != id {
		t.Errorf("the id was %s and is %s", id, got)
	}
	if err := os.Rename(path, path+".before-1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := RestorePrevious(path, path+".before-1"); err != nil {
		t.Errorf("the path is empty: %v", err)
	}
	if got := openClosed(t, path); got != id {
		t.Errorf("the id was %s and is %s", id, got)
	}
}

func TestReplace_RefusesMountPoint(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, disk string) {
		path := filepath.Join(disk, "data")
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		smalldisk.Mount(t, path, "256k")
		id := fillServer(t, path)
		for name, m := range makers() {
			_, err := m.replaceDir(path, time.Now())
			wantID(t, err, idMounted)
			if entries, err := os.ReadDir(disk); err != nil || len(entries) != 1 {
				t.Errorf("by %s: %v, %v", name, entries, err)
			}
		}
		if got := openClosed(t, path); got != id {
			t.Errorf("the id was %s and is %s", id, got)
		}
	})
}
