package bundlecmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/cli/bundlecmd"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// run runs the command as part of a program, with a separate cache and home.
func run(t *testing.T, dirs program.Directories, format view.Format, args ...string) (out, talk string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	cmd := bundlecmd.NewCommand(program.Program{
		In: strings.NewReader(""), Out: &o, Err: &e,
		WriteResult: func(value any, text func(io.Writer) error) error {
			if format == view.Text {
				return text(&o)
			}
			return view.WriteData(&o, format, value)
		},
		FindDirectories: func() (program.Directories, error) { return dirs, nil },
		LoadReleases:    func() (*release.Catalogue, error) { return release.Load("") },
	})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

func TestBundle_BuildsInspectsAndVerifies(t *testing.T) {
	dirs := program.Directories{Home: t.TempDir(), Cache: t.TempDir()}
	site := bundletest.NewSite(t)
	file := filepath.Join(t.TempDir(), "b.tar.zst")
	args := []string{"build", "--source", "upstream", "--arch", "amd64,arm64", "--out", file}
	for name, url := range site.Options().Sites {
		args = append(args, "--site", name+"="+url)
	}
	out, talk, err := run(t, dirs, view.Text, args...)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out, "Kubernetes v1.37.1 for amd64, arm64: ") || !strings.HasSuffix(out, "Next: slipway bundle inspect "+file+"\n") {
		t.Errorf("build answers %q", out)
	}
	if !strings.Contains(talk, "crictl 1.36.0 linux/arm64") || strings.Contains(talk, "\x1b") {
		t.Errorf("build talks %q", talk)
	}
	images := 2 * len(site.Release.ImageRefs()) // for two architectures
	if out, _, err = run(t, dirs, view.Text, "verify", file); err != nil ||
		!strings.Contains(out, fmt.Sprintf("verified: Kubernetes v1.37.1, 14 components, %d images", images)) {
		t.Errorf("verify answers %q, %v", out, err)
	}
	var whole struct{ Components, Images int }
	if out, _, err = run(t, dirs, view.JSON, "verify", file); err != nil || json.Unmarshal([]byte(out), &whole) != nil ||
		whole.Components != 14 || whole.Images != images {
		t.Errorf("verify -o json answers %q, %v", out, err)
	}
	if out, _, err = run(t, dirs, view.Text, "inspect", "v1.37.1"); err != nil || !strings.Contains(out, "COMPONENT") ||
		!strings.Contains(out, "registry.k8s.io/pause:3.10.2") || !strings.Contains(out, "Apache-2.0") {
		t.Errorf("inspect of the cached one answers %q, %v", out, err)
	}
	out, _, err = run(t, dirs, view.JSON, "inspect", file)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Digest string
		bundle.Manifest
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil || len(m.Components) != 14 || len(m.Digest) != 71 {
		t.Errorf("inspect -o json: %v, %d components", err, len(m.Components))
	}
	if err := os.Truncate(file, 1000); err != nil {
		t.Fatal(err)
	}
	if _, _, err = run(t, dirs, view.Text, "verify", file); err == nil || !strings.Contains(err.Error(), bundle.IDTruncated) {
		t.Errorf("verify of half a file: %v", err)
	}
}

// TestFindBundle_PrefersVersionInCacheToFile: a file in the working directory does not
// replace the bundle in the cache.
func TestFindBundle_PrefersVersionInCacheToFile(t *testing.T) {
	dirs := program.Directories{Home: t.TempDir(), Cache: t.TempDir()}
	b := bundletest.BuildBundle(t, "amd64")
	if _, err := bundle.Import(t.Context(), b.Path(), dirs.Cache); err != nil {
		t.Fatal(err)
	}
	version := b.Manifest().Kubernetes
	t.Chdir(t.TempDir())
	if err := os.WriteFile(version, []byte("somebody's"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _, err := run(t, dirs, view.Text, "verify", version); err != nil || !strings.Contains(out, b.Digest()) {
		t.Errorf("%q, %v", out, err)
	}
	if _, _, err := run(t, dirs, view.Text, "verify", "./"+version); err == nil {
		t.Error("the file is a bundle")
	}
}

func TestBundle_RefusesBadArguments(t *testing.T) {
	dirs := program.Directories{Home: t.TempDir(), Cache: t.TempDir()}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"version": {[]string{"build", "--kubernetes", "v1.1.1"}, "unsupported-kubernetes"},
		"bundle":  {[]string{"inspect", "v1.37.1"}, bundle.IDNotFound},
		"none":    {[]string{"verify"}, "accepts 1 arg"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := run(t, dirs, view.Text, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestDisplay_WritesLinesWithoutTerminal(t *testing.T) {
	var b bytes.Buffer
	d := bundlecmd.NewDisplay(&b, nil)
	for _, p := range []bundle.Progress{
		{Component: "kubernetes v1 linux/amd64", Phase: source.Compiling, Total: 2, Unit: "packages"},
		{Component: "kubernetes v1 linux/amd64", Phase: source.Compiling, Done: 1, Total: 2, Unit: "packages"},
		{Component: "kubernetes v1 linux/amd64", Phase: source.Done, Total: 3 << 20, Unit: "bytes", Elapsed: 61 * time.Second},
		{Component: "echo 1 linux/amd64", Phase: source.Cached},
		{Phase: source.Note, Message: "upstream is silent"},
	} {
		d.ShowProgress(p)
	}
	d.Close()
	want := `kubernetes v1 linux/amd64            compiling 0 of 2 packages
kubernetes v1 linux/amd64            done      3 MiB 1m1s
echo 1 linux/amd64                   cached
note: upstream is silent
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDisplay_RedrawsOneLineOnTerminal: on a terminal one live line is redrawn, cut to
// the width of the terminal. Fetching in parallel is not shown.
func TestDisplay_RedrawsOneLineOnTerminal(t *testing.T) {
	var b bytes.Buffer
	width := 40
	d := bundlecmd.NewDisplay(&b, func() (int, int) { return width, 24 })
	d.ShowProgress(bundle.Progress{Component: "kubernetes v1 linux/amd64", Phase: source.Compiling, Total: 2, Unit: "packages"})
	d.ShowProgress(bundle.Progress{Component: "coredns 1 linux/amd64", Phase: source.Fetching})
	d.ShowProgress(bundle.Progress{Component: "base 1 linux/amd64", Phase: source.Cached})
	width = 20
	d.ShowProgress(bundle.Progress{Component: "echo 1 linux/amd64", Phase: source.Compiling, Total: 2, Unit: "packages"})
	d.ShowProgress(bundle.Progress{Component: "echo 1 linux/amd64", Phase: source.Cached})
	d.Close()
	const back = "\r\x1b[K"
	want := "kubernetes v1 linux/amd64            co" + back + "base 1 linux/amd64                   cached\n" +
		"kubernetes v1 linux/amd64            co" + back + "echo 1 linux/amd64 " + back + "echo 1 linux/amd64                   cached\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBuild_UnderSudoGivesFilesToCaller: under sudo, files of a build belong to the
// caller.
func TestBuild_UnderSudoGivesFilesToCaller(t *testing.T) {
	requireroot.Need(t, "giving files to others")
	to := &fileowner.Owner{UID: 12345, GID: 12346}
	dirs := program.Directories{Home: t.TempDir(), Cache: t.TempDir(), Owner: to}
	roots := filepath.Join(t.TempDir(), "roots")
	if err := errors.Join(os.Mkdir(roots, 0o755), os.WriteFile(filepath.Join(roots, "foreign"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "--source", "upstream"}
	for name, url := range bundletest.NewSite(t).Options().Sites {
		args = append(args, "--site", name+"="+url)
	}
	base := t.TempDir()
	for _, out := range []string{filepath.Join(base, "new", "b.tar.zst"), filepath.Join(base, "new", "d") + "/", roots + "/"} {
		if _, _, err := run(t, dirs, view.Text, append(args, "--out", out)...); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{
		filepath.Join(base, "new"): to.UID, filepath.Join(base, "new", "b.tar.zst"): to.UID,
		filepath.Join(base, "new", "d"): to.UID, filepath.Join(base, "new", "d", "index.json"): to.UID,
		base: os.Geteuid(), roots: os.Geteuid(), filepath.Join(roots, "foreign"): os.Geteuid(),
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := int(info.Sys().(*syscall.Stat_t).Uid); got != want {
			t.Errorf("%s belongs to %d, want %d", path, got, want)
		}
	}
}
