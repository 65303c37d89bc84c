package modules

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/safefile"
)

// debFetcher fetches Debian packages for one architecture with the host's apt. It uses the
// host's package sources and keys, so apt verifies every package. It uses separate
// directories, so it changes nothing on the host and needs no root.
type debFetcher struct {
	dir  string // of apt's lists and caches
	arch string
	as   *fileowner.Owner // the user that runs apt; nil is the current user
	// sandboxed reports whether apt fetches as its own user, which it does for root.
	sandboxed bool

	mu    sync.Mutex // held while apt works
	fresh bool       // the lists were updated in this run
}

// newDebs returns a debs that works in a directory of the cache. For root, it uses a
// temporary directory that apt's own user can enter, so that root does not parse
// responses from the network.
func newDebs(cache, arch string, as *fileowner.Owner) (d *debFetcher, remove func() error, err error) {
	if as != nil || os.Geteuid() != 0 {
		return &debFetcher{dir: filepath.Join(cache, "apt", arch), arch: arch, as: as}, func() error { return nil }, nil
	}
	// apt's user can only write if it can enter the directory.
	dir, err := safefile.MkdirTemp(os.TempDir(), "slipway-apt-*", 0o711)
	if err != nil {
		return nil, nil, err
	}
	return &debFetcher{dir: dir, arch: arch, sandboxed: true}, func() error { return safefile.RemoveAll(dir) }, nil
}

// aptOptions returns the options of apt, in addition to the host's configuration. With an
// empty status file, apt fetches every dependency, even if the host has installed it.
func (d *debFetcher) aptOptions() []string {
	o := []string{}
	for _, kv := range []string{
		"Dir::State=" + filepath.Join(d.dir, "state"),
		"Dir::State::status=" + filepath.Join(d.dir, "status"),
		"Dir::Cache=" + filepath.Join(d.dir, "cache"),
		"Dir::Log=" + filepath.Join(d.dir, "log"),
		"APT::Architecture=" + d.arch, "APT::Architectures=" + d.arch,
		"APT::Install-Recommends=false",
		"Debug::NoLocking=true", "Acquire::Retries=3", "Acquire::Languages=none",
	} {
		o = append(o, "-o", kv)
	}
	if !d.sandboxed { // only root can change the user
		o = append(o, "-o", "APT::Sandbox::User=")
	}
	return append(o, "-c", filepath.Join(d.dir, "hooks.conf"))
}

// hooks turns off the hooks that distributions add to apt.
const hooks = "#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n#clear " +
	"APT::Update::Pre-Invoke;\n#clear DPkg::Post-Invoke;\n#clear DPkg::Pre-Install-Pkgs;\n"

// aptTools returns an error if this machine does not have apt.
func aptTools() error {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return newProblem(IDNoApt, "build on Debian or Ubuntu, or with --source upstream",
				"the packet filter programs need Debian packages: %v", err)
		}
	}
	return nil
}

// updateLists fetches the package lists, once in a run. The caller holds d.mu.
func (d *debFetcher) updateLists(ctx context.Context, tell func(source.Progress)) error {
	if d.fresh {
		return nil
	}
	if err := d.makeDirs(); err != nil {
		return err
	}
	err := errors.Join(
		safefile.WriteFile(filepath.Join(d.dir, "status"), nil, 0o644),
		safefile.WriteFile(filepath.Join(d.dir, "hooks.conf"), []byte(hooks), 0o644))
	if err != nil {
		return err
	}
	tell(source.Progress{Phase: source.Fetching, Message: "Debian's package lists"})
	if err := d.runApt(ctx, "update", "--error-on=any"); err != nil {
		return err
	}
	d.fresh = true
	return nil
}

// makeDirs makes apt's directories. For root, apt's own user can enter them, whatever
// the umask.
func (d *debFetcher) makeDirs() error {
	for _, sub := range []string{"state/lists/partial", "cache/archives/partial", "log"} {
		if err := d.as.MakeDir(filepath.Join(d.dir, sub), 0o755); err != nil {
			return err
		}
	}
	if !d.sandboxed {
		return nil
	}
	root, err := safefile.OpenRoot(d.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written to it
	for _, sub := range []string{"state", "state/lists", "cache", "cache/archives", "log"} {
		if err := root.Chmod(sub, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (d *debFetcher) runApt(ctx context.Context, args ...string) error {
	argv := slices.Concat([]string{"apt-get", "-q", "-y"}, d.aptOptions(), args)
	err := runCommand(ctx,
		command{argv: argv, dir: d.dir, as: d.as, env: append(d.as.Environ(os.Environ()), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")})
	var failed *runError
	if errors.As(err, &failed) {
		return sourceSilent(newProblem(IDPackages,
			"check the network and the apt sources for architecture "+d.arch+", or build with --source upstream",
			"fetching Debian packages for %s: %v", d.arch, failed))
	}
	return err
}

// A debTree is unpacked packages, with their files by normalised name.
type debTree struct {
	dir      string
	packages []source.Origin
	from     map[string]string // file → package
	used     map[string]bool   // packages that something was taken from
}

func (t *debTree) markUsed(packages ...string) {
	for _, p := range packages {
		t.used[p] = true
	}
}

func newDebTree(dir string) *debTree {
	return &debTree{dir: dir, from: map[string]string{}, used: map[string]bool{}}
}

// usedOrigins returns the packages from which a component has files.
func (t *debTree) usedOrigins(component string) []source.Origin {
	var out []source.Origin
	for _, o := range t.packages {
		if t.used[o.Name] {
			o.For = component
			out = append(out, o)
		}
	}
	return out
}

// unpackPackages fetches packages and all their dependencies, and unpacks them into dir.
func (d *debFetcher) unpackPackages(ctx context.Context, packages []string, dir string, tell func(source.Progress)) (*debTree, error) {
	if err := d.as.MakeDir(dir, 0o755); err != nil {
		return nil, err
	}
	archives, err := d.downloadPackages(ctx, packages, tell)
	if archives != "" {
		defer func() { _ = safefile.RemoveAll(archives) }() // it is gone already, if all went well
	}
	if err != nil {
		return nil, err
	}
	files, err := safefile.ReadDir(archives)
	if err != nil {
		return nil, err
	}
	t := newDebTree(dir)
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".deb" {
			continue
		}
		if err := t.addPackage(ctx, filepath.Join(archives, f.Name()), d.as); err != nil {
			return nil, fmt.Errorf("unpacking %s: %w", f.Name(), err)
		}
	}
	return t, errors.Join(safefile.RemoveAll(archives), d.as.GiveTree(dir))
}

// downloadPackages fetches packages and all their dependencies, as files in a directory.
func (d *debFetcher) downloadPackages(ctx context.Context, packages []string, tell func(source.Progress)) (archives string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.updateLists(ctx, tell); err != nil {
		return "", err
	}
	// apt's own user has to enter it, whatever the umask.
	if archives, err = safefile.MkdirTemp(d.dir, "archives-*", 0o755); err != nil {
		return "", err
	}
	if err := errors.Join(d.as.GiveFiles(archives), d.as.MakeDir(filepath.Join(archives, "partial"), 0o755)); err != nil {
		return archives, err
	}
	tell(source.Progress{Phase: source.Fetching, Message: "Debian packages " + strings.Join(packages, ", ")})
	args := slices.Concat([]string{"-o", "Dir::Cache::archives=" + archives, "install", "--download-only"}, packages)
	return archives, d.runApt(ctx, args...)
}

// addPackage unpacks one package, which dpkg-deb reads as an unprivileged user.
func (t *debTree) addPackage(ctx context.Context, deb string, as *fileowner.Owner) error {
	sum, err := hashFile(deb)
	if err != nil {
		return err
	}
	// name_version_arch.deb, with the version's colon as %3a
	part := strings.Split(strings.TrimSuffix(filepath.Base(deb), ".deb"), "_")
	if len(part) != 3 {
		return errors.New("the file name is not a Debian package name")
	}
	t.packages = append(t.packages, source.Origin{Kind: "package", Name: part[0], Version: strings.ReplaceAll(part[1], "%3a", ":"), Sum: sum})
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := t.unpackFiles(part[0], pr)
		pr.CloseWithError(err)
		done <- err
	}()
	err = runCommand(ctx, command{argv: []string{"dpkg-deb", "--fsys-tarfile", deb}, dir: t.dir, as: as, env: os.Environ(), stdout: pw})
	pw.Close()
	return errors.Join(<-done, err)
}

// unpackFiles writes the files of a package below the tree's directory. Links of a
// package cannot lead other packages out of that directory.
func (t *debTree) unpackFiles(pkg string, r io.Reader) error {
	root, err := safefile.OpenRoot(t.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written to it
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r) // the padding behind the tar's end
			return err
		}
		if err != nil {
			return err
		}
		if err := t.unpackOne(root, pkg, h, tr); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func (t *debTree) unpackOne(root *os.Root, pkg string, h *tar.Header, r io.Reader) error {
	name := source.MergedPath(h.Name)
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink && h.Typeflag != tar.TypeLink || !fs.ValidPath(name) {
		return nil
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	t.from[name] = pkg
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(source.RelativeLink(name, h.Linkname), name)
	case tar.TypeLink:
		return root.Link(source.MergedPath(h.Linkname), name)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(h.Mode).Perm()|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

func hashFile(name string) (string, error) {
	f, err := safefile.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// concatFiles returns the content of files, in order, each ending in a newline.
func concatFiles(names []string) ([]byte, error) {
	var out bytes.Buffer
	for _, n := range names {
		data, err := safefile.ReadFile(n, bounded.Argument)
		if err != nil {
			return nil, err
		}
		out.Write(bytes.TrimRight(data, "\n"))
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}
