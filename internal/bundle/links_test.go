package bundle_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// caller is the user in whose cache root works in these tests.
const caller = 12345

// places are the directories of a cache that a caller can replace.
var places = []string{".", "bundles", "downloads", "downloads/files", "downloads/images", "downloads/components"}

// A victim is a directory of root's that has what a cache has, and files that
// nothing may happen to.
type victim struct {
	t      *testing.T
	dir    string
	before map[string]string
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{t: t, dir: filepath.Join(t.TempDir(), "etc")}
	for _, place := range append([]string{"unpacked", "downloads/images/blobs/sha256", "downloads/images/refs", "downloads/files/urls"},
		places...) {
		dir := filepath.Join(v.dir, place)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "shadow"), []byte("root:x\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	v.before = v.listFiles()
	return v
}

// listFiles returns the files of the victim: modes, owners and content.
func (v *victim) listFiles() map[string]string {
	all := map[string]string{}
	err := filepath.WalkDir(v.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		all[path] = fmt.Sprint(info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			all[path] += string(text)
			return err
		}
		return nil
	})
	if err != nil {
		v.t.Fatal(err)
	}
	return all
}

// wantUnharmed fails the test if anything has happened to the victim.
func (v *victim) wantUnharmed() {
	v.t.Helper()
	if d := cmp.Diff(v.before, v.listFiles()); d != "" {
		v.t.Errorf("files of root (-before +after):\n%s", d)
	}
}

// swapForLink replaces a directory of the cache with a link of the caller to the same
// directory of the victim.
func (v *victim) swapForLink(cache, place string) error {
	path := filepath.Join(cache, place)
	if _, err := os.Lstat(path); err == nil {
		if err := os.Rename(path, path+".was"); err != nil {
			return err
		}
	} else if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), chownAll(cache)); err != nil {
		return err
	}
	return errors.Join(os.Symlink(filepath.Join(v.dir, place), path), os.Lchown(path, caller, caller))
}

// chownAll makes a cache the caller's.
func chownAll(cache string) error {
	return filepath.WalkDir(cache, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, caller, caller))
	})
}

// callersCache is an empty cache of the caller's.
func callersCache(t *testing.T) string {
	t.Helper()
	cache := filepath.Join(t.TempDir(), "home", "cache")
	if err := errors.Join(os.MkdirAll(cache, 0o755), chownAll(filepath.Dir(cache))); err != nil {
		t.Fatal(err)
	}
	return cache
}

// TestCommands_ChangeNothingThroughCacheLinks replaces each directory of a cache with a
// link, before a command and between two commands that run as root. Nothing elsewhere is
// changed, removed or given away.
func TestCommands_ChangeNothingThroughCacheLinks(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	s := bundletest.NewSite(t)
	reg := bundletest.NewRegistry(t, true)
	first := siteOptions(t, s)
	first.Out = filepath.Join(t.TempDir(), "b.tar.zst")
	b, err := bundle.Build(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	ref := reg.Host + "/slipway/bundle:v1"
	if _, err := bundle.Push(t.Context(), b, ref, reg.At); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		places []string // the first must be reported
		do     func(cache string) error
	}{
		{"build", []string{"bundles", "downloads", "downloads/images/blobs/sha256"}, func(cache string) error {
			o := siteOptions(t, s)
			o.Cache, o.Source = cache, bundle.Upstream
			_, err := bundle.Build(t.Context(), o)
			return err
		}},
		{"pull", []string{"bundles"}, func(cache string) error { _, err := bundle.Pull(t.Context(), ref, cache, reg.At); return err }},
		{"import", []string{".", "bundles"}, func(cache string) error { _, err := bundle.Import(t.Context(), first.Out, cache); return err }},
		{"open a file", []string{"unpacked", "."}, func(cache string) error {
			_, err := bundle.Open(t.Context(), first.Out, cache, bundle.Registry{})
			return err
		}},
		{
			"open a reference",
			[]string{"unpacked"},
			func(cache string) error { _, err := bundle.Open(t.Context(), ref, cache, reg.At); return err },
		},
	} {
		for i, place := range tt.places {
			t.Run(tt.name+" "+place, func(t *testing.T) {
				v := newVictim(t)
				cache := callersCache(t)
				if err := v.swapForLink(cache, place); err != nil {
					t.Fatal(err)
				}
				before := tt.do(cache)
				v.wantUnharmed()
				cache = callersCache(t)
				if err := errors.Join(tt.do(cache), chownAll(cache), v.swapForLink(cache, place)); err != nil {
					t.Fatal(err)
				}
				between := tt.do(cache)
				v.wantUnharmed()
				for _, err := range []error{before, between} {
					if i == 0 && !slices.Equal(diagnosticIDs(t, err), []string{bundle.IDForeign}) {
						t.Errorf("error %v, want %s", err, bundle.IDForeign)
					}
				}
			})
		}
	}
}

// TestSign_WritesNothingThroughLink: a signature is not written through a link.
func TestSign_WritesNothingThroughLink(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	b, key := bundletest.BuildBundle(t, "amd64"), signingKey(t)
	v, cache := newVictim(t), callersCache(t)
	if _, err := bundle.Import(t.Context(), b.Path(), cache); err != nil {
		t.Fatal(err)
	}
	path, ok := bundle.FindCached(cache, "v1.37.1", nil)
	if !ok {
		t.Fatal("the cache has no bundle")
	}
	if err := errors.Join(chownAll(cache), v.swapForLink(cache, "bundles")); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Sign(t.Context(), path, cache, key, bundle.Registry{}, time.Now()); err == nil {
		t.Error("no error")
	}
	if _, ok := bundle.FindCached(cache, "v1.37.1", nil); ok {
		t.Error("a bundle of another user is in the cache")
	}
	v.wantUnharmed()
}

// TestBuild_ChangesNothingThroughPlantedLinks replaces each directory of the cache at
// each step that a build reports.
func TestBuild_ChangesNothingThroughPlantedLinks(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	s := bundletest.NewSite(t)
	steps := 0
	count := siteOptions(t, s)
	count.Source, count.Progress = bundle.Upstream, func(bundle.Progress) { steps++ }
	if _, err := bundle.Build(t.Context(), count); err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= steps; at += max(1, steps/4) {
		t.Run(fmt.Sprintf("step %d of %d", at, steps), func(t *testing.T) {
			for _, place := range places {
				v := newVictim(t)
				o, step := siteOptions(t, s), 0
				o.Source, o.Cache = bundle.Upstream, callersCache(t)
				o.Progress = func(bundle.Progress) {
					if step++; step == at {
						if err := v.swapForLink(o.Cache, place); err != nil {
							t.Errorf("%s: %v", place, err)
						}
					}
				}
				_, err := bundle.Build(t.Context(), o)
				if place == "." && err == nil {
					t.Errorf("%s: the bundle is built", place)
				}
				v.wantUnharmed()
			}
		})
	}
}

// TestCommands_WriteNothingThroughUserLinksToForeignDirectories: a bundle that a user names is read
// through the user's links, but nothing is written through a link to a directory of
// others.
func TestCommands_WriteNothingThroughUserLinksToForeignDirectories(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	b := bundletest.BuildBundle(t, "amd64")
	dir := t.TempDir()
	others, home := filepath.Join(dir, "others"), filepath.Join(dir, "home")
	if err := errors.Join(bundle.Export(t.Context(), b, others+"/"), os.Mkdir(home, 0o755),
		os.Symlink("../others", filepath.Join(home, "b")), chownAll(home)); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(filepath.Join(others, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	cache, link := callersCache(t), filepath.Join(home, "b")
	got, err := bundle.Open(t.Context(), link, cache, bundle.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := bundle.Import(t.Context(), link, cache); err != nil {
		t.Error(err)
	}
	for name, write := range map[string]func() error{
		"sign": func() error {
			_, err := bundle.Sign(t.Context(), link, cache, signingKey(t), bundle.Registry{}, time.Now())
			return err
		},
		"a file":      func() error { return bundle.Export(t.Context(), b, filepath.Join(link, "new.tar.zst")) },
		"a directory": func() error { return bundle.Export(t.Context(), b, link+"/") },
		"below it":    func() error { return bundle.Export(t.Context(), b, link+"/new/") },
		"a delta": func() error {
			_, err := bundle.WriteDelta(t.Context(), b, b, filepath.Join(link, "delta.tar.zst"))
			return err
		},
		"keys": func() error { _, err := bundle.GenerateKey(filepath.Join(link, "release")); return err },
	} {
		if err := write(); err == nil {
			t.Errorf("%s: written through a link", name)
		}
	}
	after, err := os.ReadFile(filepath.Join(others, "index.json"))
	if err != nil || string(after) != string(index) {
		t.Errorf("the bundle of another user has changed: %v", err)
	}
	left, err := os.ReadDir(others)
	if err != nil || len(left) != 3 {
		t.Errorf("files in the directory of another user: %v, %v", left, err)
	}
}

// signingKey makes a pair of keys and returns the private one.
func signingKey(t *testing.T) bundle.SigningKey {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "release")
	_, err := bundle.GenerateKey(prefix)
	key, readErr := bundle.ReadSigningKey(prefix + ".key")
	if err := errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	return key
}
