package modules

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/bundle/source"
)

// newTestTree unpacks a tar as if it were a package.
func newTestTree(t *testing.T, members ...tar.Header) *debTree {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range members {
		h.Size, h.Mode = int64(len(h.Name)), 0o755
		if h.Typeflag != tar.TypeReg {
			h.Size = 0
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(h.Name)[:h.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	d := newDebTree(t.TempDir())
	if err := d.unpackFiles("pkg", &b); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestUnpackFiles_StaysInsideTree(t *testing.T) {
	d := newTestTree(t,
		tar.Header{Typeflag: tar.TypeReg, Name: "./lib/x86_64-linux-gnu/libc.so.6"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "./lib64/ld.so", Linkname: "/lib/x86_64-linux-gnu/libc.so.6"},
		tar.Header{Typeflag: tar.TypeReg, Name: "../../outside"},
		tar.Header{Typeflag: tar.TypeBlock, Name: "./dev/sda"},
		tar.Header{Typeflag: tar.TypeLink, Name: "./usr/lib/again", Linkname: "./lib/x86_64-linux-gnu/libc.so.6"},
	)
	var got []string
	for name := range d.from {
		got = append(got, name)
	}
	slices.Sort(got)
	want := []string{"outside", "usr/lib/again", "usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib64/ld.so"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if data, err := os.ReadFile(filepath.Join(d.dir, "usr/lib64/ld.so")); err != nil || string(data) != "./lib/x86_64-linux-gnu/libc.so.6" {
		t.Errorf("through an absolute link: %q, %v", data, err)
	}
}

// TestUnpackFiles_DoesNotFollowLinksOutside: a link of one package does not make another
// package write outside of the tree.
func TestUnpackFiles_DoesNotFollowLinksOutside(t *testing.T) {
	outside := t.TempDir()
	for name, link := range map[string]string{"absolute": outside, "relative": strings.Repeat("../", 20) + outside[1:]} {
		t.Run(name, func(t *testing.T) {
			d := newDebTree(t.TempDir())
			// As an earlier package, or a crafted one, may have left it.
			if err := os.Symlink(link, filepath.Join(d.dir, "etc")); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./etc/passwd", Mode: 0o644})
			if err := errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			if err := d.unpackFiles("pkg", &b); err == nil {
				t.Error("the archive was unpacked")
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("%v, %v", left, err)
			}
		})
	}
}

func TestBaseFiles_ListsCertificatesSorted(t *testing.T) {
	d := newTestTree(t,
		tar.Header{Typeflag: tar.TypeReg, Name: "./usr/share/ca-certificates/mozilla/b.crt"},
		tar.Header{Typeflag: tar.TypeReg, Name: "./usr/share/ca-certificates/mozilla/a.crt"},
	)
	members, err := d.pickMembers(baseUnit(), "amd64")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(members, func(m pack.Member) bool { return strings.HasSuffix(m.Name, ".crt") })
	want := "./usr/share/ca-certificates/mozilla/a.crt\n./usr/share/ca-certificates/mozilla/b.crt\n"
	if got := string(members[i].Content); got != want {
		t.Errorf("certificates: %q, want them sorted", got)
	}
	if _, err := newTestTree(t).pickMembers(baseUnit(), "amd64"); err == nil {
		t.Error("no certificates, and no error")
	}
}

// TestClosure_HasEveryLibraryOfProgram follows the libraries of a real program on this
// machine. The program must run in a separate directory with only these libraries and
// their loader.
func TestClosure_HasEveryLibraryOfProgram(t *testing.T) {
	real, err := filepath.EvalSymlinks("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	c := closure{
		tree: &debTree{dir: "/", from: map[string]string{}, used: map[string]bool{}},
		lib:  source.LibDir(runtime.GOARCH), members: map[string]pack.Member{},
	}
	if err := c.addELF(strings.TrimPrefix(real, "/")); err != nil {
		t.Fatal(err)
	}
	if c.interp == "" || len(c.members) < 3 {
		t.Fatalf("loader %q, %d members", c.interp, len(c.members))
	}
	f, err := pack.Write(t.Context(), filepath.Join(t.TempDir(), "t.tar.gz"),
		append(c.listMembers(), source.HostTools(runtime.GOARCH, c.interp)...))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", f.Path, "-C", root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, c.interp), "--library-path",
		filepath.Join(root, c.lib), filepath.Join(root, real), "echo", "hello").CombinedOutput()
	if err != nil || string(out) != "hello\n" {
		t.Errorf("the program prints %q, %v", out, err)
	}
	none := closure{tree: c.tree, lib: c.lib, members: map[string]pack.Member{}}
	if _, err := none.pickNamed(unit{Take: []string{"usr/bin/none"}}); err == nil {
		t.Error("a missing program of an image was accepted")
	}
	if err := c.addELF("usr/bin/none"); err == nil {
		t.Error("a missing program was added")
	}
}

// TestPickNamed_AddsLibrariesLoaderAndLicences: the root of an image has the program, its
// existing files, the loader at the expected path, and the licence of every package with
// a file in it.
func TestPickNamed_AddsLibrariesLoaderAndLicences(t *testing.T) {
	real, err := filepath.EvalSymlinks("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	real = strings.TrimPrefix(real, "/")
	d := &debTree{dir: "/", from: map[string]string{real: "coreutils"}, used: map[string]bool{}}
	members, err := d.pickMembers(unit{Pick: pickNamed, Take: []string{real}, Data: []string{"etc/host*name", "etc/nothing-*"}},
		runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	f, err := pack.Write(t.Context(), filepath.Join(t.TempDir(), "t.tar.gz"), members)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		real, "etc/hostname", "lib64", "usr/share/doc/coreutils/copyright",
		source.LibDir(runtime.GOARCH) + "/libc.so.6",
	} {
		if !slices.Contains(f.Members, want) {
			t.Errorf("%s is not in it: %q", want, f.Members)
		}
	}
	if slices.ContainsFunc(f.Members, func(n string) bool { return strings.HasPrefix(n, "host/") || strings.Contains(n, "busybox") }) {
		t.Errorf("the image contains files for hosts: %q", f.Members)
	}
	if !d.used["coreutils"] || d.used["busybox-static"] {
		t.Errorf("packages: %v", d.used)
	}
}

func TestVersionOf_UsesDebianPackageVersion(t *testing.T) {
	b := built{Origins: []source.Origin{
		{Kind: "package", Name: "libc6", Version: "2.36"},
		{Kind: "package", Name: "haproxy", Version: "2.6.12-1"},
	}}
	for name, tt := range map[string]struct {
		reason string
		unit   unit
		want   string
	}{
		"package": {"what Debian has, not how we pack it", haproxyUnit("1"), "2.6.12-1"},
		"tools":   {"many packages have no one version", netToolsUnit(), "1"},
		"module":  {"compiled: the catalogue's", etcdUnit("3.7.0"), "3.7.0"},
	} {
		if got := b.versionOf(tt.unit); got != tt.want {
			t.Errorf("%s: %s: got %q", name, tt.reason, got)
		}
	}
}
