package modules

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// openToUser makes a directory of a test reachable for other users, and gives it to one.
func openToUser(t *testing.T, dir string, to *fileowner.Owner) {
	t.Helper()
	for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.GiveTree(dir); err != nil {
		t.Fatal(err)
	}
}

// TestParts_RunsCompilersAsCallerUnderSudo: compilers and the programs that they build
// run as the caller. They run as root only if no other user can write to the cache.
func TestParts_RunsCompilersAsCallerUnderSudo(t *testing.T) {
	requireroot.Need(t, "running programs as others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	modules := t.TempDir()
	cache, gocache, home := t.TempDir(), t.TempDir(), t.TempDir()
	mods := helloModule("v1.1.0")
	// The program prints its user, without packages that take long to compile.
	mods["example.com/hello@v1.1.0"]["cmd/hello/main.go"] = `package main

import (
	"syscall"

	"example.com/words"
)

var version = "unknown"

func main() { println(words.Hello, version, "as", syscall.Getuid(), syscall.Getgid()) }
`
	at := newModuleProxy(t, mods)
	for _, dir := range []string{modules, cache, gocache, home} {
		openToUser(t, dir, to)
	}
	openToUser(t, at[len("file://"):], nil)
	t.Cleanup(func() { // the go tool makes it read-only
		_ = filepath.WalkDir(modules, func(p string, _ fs.DirEntry, _ error) error { return os.Chmod(p, 0o755) })
	})
	env := append(os.Environ(), "GOPROXY="+at, "GOMODCACHE="+modules, "GOCACHE="+gocache, "GONOSUMDB=", "GOFLAGS=", "HOME="+home)
	s := helloSource(cache, env, "hello 1.1.0 as 12345 12346")
	s.opts.Owner = to
	parts, err := s.Parts(t.Context(), source.Request{Arches: []string{runtime.GOARCH}})
	if err != nil {
		t.Fatal(err)
	}
	if len(parts.Components) != 1 {
		t.Errorf("components %v", parts.Components)
	}
	compiled := 0
	err = filepath.WalkDir(gocache, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != 12345 {
			t.Errorf("%s is not the caller's", path)
		}
		compiled++
		return err
	})
	if err != nil || compiled < 10 {
		t.Errorf("%d files were compiled, %v", compiled, err)
	}
}

// TestParts_RefusesLinkAsBuildDirectory: root builds nothing in the target of a link of
// the caller.
func TestParts_RefusesLinkAsBuildDirectory(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	for _, place := range []string{"modules", "components", "apt"} {
		dir := t.TempDir()
		cache, etc := filepath.Join(dir, "cache"), filepath.Join(dir, "etc")
		if err := errors.Join(os.Mkdir(cache, 0o755), os.Mkdir(etc, 0o755), os.Symlink(etc, filepath.Join(cache, place)),
			to.GiveFiles(cache, filepath.Join(cache, place))); err != nil {
			t.Fatal(err)
		}
		j := &job{unit: helloUnit(""), arch: "amd64", cache: cache, tool: &goTool{version: "go1.26.0", as: to}, report: func(source.Progress) {}}
		d := &debFetcher{dir: filepath.Join(cache, "apt", "amd64"), arch: "amd64", as: to}
		var err error
		switch place {
		case "modules":
			_, err = j.getUnit(t.Context())
		case "components":
			err = errors.Join(os.Mkdir(filepath.Join(cache, "made"), 0o755),
				replaceDir(filepath.Join(cache, "made"), j.cacheDir("0123456789abcdef")))
		case "apt":
			err = d.updateLists(t.Context(), func(source.Progress) {})
		}
		var foreign *fileowner.ForeignError
		if !errors.As(err, &foreign) {
			t.Errorf("%s: error %v, want a *ForeignError", place, err)
		}
		if left, err := os.ReadDir(etc); err != nil || len(left) > 0 {
			t.Errorf("%s: in the directory of root are %v, %v", place, left, err)
		}
	}
}

// TestApt_GetsWritableDirectoriesUnderSudo: as the caller, apt can write to its
// directories.
func TestApt_GetsWritableDirectoriesUnderSudo(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	tools, cache := t.TempDir(), t.TempDir()
	writeTestFile(t, filepath.Join(tools, "apt-get"), "#!/bin/sh\nset -e\ntest $(id -u) = 12345\ntouch state/lists/x cache/archives/x log/x\n")
	if err := os.Chmod(filepath.Join(tools, "apt-get"), 0o755); err != nil {
		t.Fatal(err)
	}
	openToUser(t, tools, nil)
	openToUser(t, cache, to)
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	d := &debFetcher{dir: filepath.Join(cache, "apt", "amd64"), arch: "amd64", as: to}
	if err := d.updateLists(t.Context(), func(source.Progress) {}); err != nil {
		t.Error(err)
	}
}

// TestKubeadmConstants_RefusesFileOfCaller: a file with which the caller has replaced the
// file of kubeadm is not read.
func TestKubeadmConstants_RefusesFileOfCaller(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	dir := t.TempDir()
	cache, secret := filepath.Join(dir, "cache"), filepath.Join(dir, "secret.go")
	link, large := filepath.Join(cache, "link.go"), filepath.Join(cache, "large.go")
	writeTestFile(t, secret, "package secret\n")
	if err := errors.Join(os.Mkdir(cache, 0o755), os.Symlink(secret, link), os.WriteFile(large, nil, 0o644),
		os.Truncate(large, bounded.Argument+1), to.GiveFiles(cache, link, large)); err != nil {
		t.Fatal(err)
	}
	var foreign *fileowner.ForeignError
	if got, err := kubeadmConstants(link); !errors.As(err, &foreign) {
		t.Errorf("a link to a file of root's: got %v, error %v, want a *ForeignError", got, err)
	}
	var over *bounded.LimitError
	if got, err := kubeadmConstants(large); !errors.As(err, &over) {
		t.Errorf("a file that is too large: got %v, error %v, want a *LimitError", got, err)
	}
}
