package access

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/safefile"
)

// Kubectl runs the bundle's kubectl against the cluster and returns its exit code.
func (a *Access) Kubectl(ctx context.Context, name string, args []string, in io.Reader, out, errw io.Writer) (int, error) {
	c, err := a.c.Clusters.Load(ctx, name)
	if err != nil {
		return 0, err
	}
	env, err := a.c.Clusters.Environment(ctx, c)
	if err != nil {
		return 0, err
	}
	if _, err := a.SavedKubeconfig(ctx, name); err != nil {
		return 0, err // kubectl would use localhost
	}
	opened, err := a.c.Clusters.OpenBundle(ctx, env, runtime.GOARCH)
	if err != nil {
		return 0, err
	}
	if opened == nil || runtime.GOOS != "linux" {
		return 0, diag.Refuse(idNoKubectl, "no available bundle of "+env.Release.Kubernetes+" has a kubectl for this machine",
			"use your own kubectl: kubectl --kubeconfig "+a.c.Records.Kubeconfigs().Location(name))
	}
	program, err := a.unpackKubectl(opened)
	if err != nil {
		return 0, err
	}
	as, err := a.findKubectlUser(program)
	if err != nil {
		return 0, err
	}
	conf, done, warnings, err := a.WriteKubeconfigFile(ctx, env)
	if err != nil {
		return 0, err
	}
	for _, d := range warnings {
		fmt.Fprintln(errw, d)
	}
	defer done()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+conf)
	setUser(cmd, as)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errw
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("running kubectl: %w", err)
	}
	return 0, nil
}

// setUser sets the user of a program, and the user's home.
func setUser(cmd *exec.Cmd, as *fileowner.Owner) {
	cmd.Env = as.Environ(cmd.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as.Credential()}
}

// findKubectlUser returns the user who runs programs at a path of the cache: root, as nil, if
// only root can replace them, otherwise the owner of the state directory. It refuses a
// path that belongs to another user, or is below such a path: that user could replace the
// program, which gets the owner's credentials.
func (a *Access) findKubectlUser(path string) (*fileowner.Owner, error) {
	to := a.c.Owner
	for at := path; len(at) >= len(a.c.Cache); at = filepath.Dir(at) {
		if as := to.ProgramUser(at); as != nil && (to == nil || as.UID != to.UID) {
			return nil, diag.Refuse(idNoKubectl, fmt.Sprintf("%s belongs to user %d, who could replace kubectl there", at, as.UID),
				"set SLIPWAY_CACHE to a directory that belongs to you, or use your own kubectl with the kubeconfig of 'slipway kubeconfig'")
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return to.ProgramUser(path), nil
}

// unpackKubectl returns the path of the bundle's kubectl, which is unpacked once.
func (a *Access) unpackKubectl(b *bundle.Bundle) (string, error) {
	comp, err := b.Component("kubernetes", runtime.GOARCH)
	if err != nil {
		return "", err
	}
	to, err := a.findKubectlUser(a.c.Cache)
	if err != nil {
		return "", err
	}
	all := filepath.Join(a.c.Cache, "kubectl")
	file := filepath.Join(all, strings.TrimPrefix(comp.Digest, "sha256:"), "kubectl")
	if os.Geteuid() == 0 && safefile.RootOnly(a.c.Cache) {
		if err := removeReplaceable(all, filepath.Dir(file), file); err != nil {
			return "", err
		}
	}
	if _, err := safefile.Stat(file); err == nil {
		return file, nil
	}
	// Verify before unpacking: a changed blob could unpack to any size.
	if err := b.VerifyBlob(comp.Digest); err != nil {
		return "", err
	}
	r, err := b.OpenBlob(comp.Digest, 0)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if err := extractProgram(r, comp.Digest, "usr/local/bin/kubectl", file, to); err != nil {
		return "", fmt.Errorf("unpacking kubectl: %w", err)
	}
	return file, nil
}

// removeReplaceable removes a directory if a user can replace it, or one of the paths
// below it.
func removeReplaceable(dir string, below ...string) error {
	for _, path := range append([]string{dir}, below...) {
		if _, err := safefile.Lstat(path); err == nil && !safefile.RootOnly(path) {
			return safefile.RemoveAll(dir)
		}
	}
	return nil
}

// extractProgram writes one program from a gzip-compressed tar with a digest. If the program is
// a link to a binary of several programs, it writes that binary. The file and its
// directories belong to the owner.
func extractProgram(r io.Reader, digest, member, file string, to *fileowner.Owner) error {
	sum := sha256.New()
	r = io.TeeReader(r, sum)
	zr, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	dir, _, err := to.MakeParent(file, 0o755)
	if err != nil {
		return err
	}
	_ = dir.Close() // nothing was written to it
	tmp, err := safefile.CreateTemp(filepath.Dir(file), ".kubectl-*")
	if err != nil {
		return err
	}
	defer func() { _ = safefile.Remove(tmp.Name()) }() // after Commit it has another name
	defer tmp.Close()
	shared := path.Join(path.Dir(member), "kube")
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("kubectl is not in the bundle")
		}
		if err != nil {
			return err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		if h.Typeflag != tar.TypeReg || name != member && name != shared {
			continue
		}
		if _, err := io.Copy(tmp, tr); err != nil {
			return err
		}
		break
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("the component has digest %s, not %s: the bundle is damaged", got, digest)
	}
	if err := tmp.Chmod(0o755); err != nil {
		return err
	}
	if to != nil {
		if err := tmp.Chown(to.UID, to.GID); err != nil {
			return err
		}
	}
	return safefile.Commit(tmp, file)
}
