package upstream

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/klauspost/compress/gzip"

	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/safefile"
)

// extractMembers writes the wanted members of a compressed tar below dir, and returns
// them as members with their new names.
func extractMembers(ctx context.Context, archive, dir string, want map[string]string) ([]pack.Member, error) {
	f, err := safefile.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	tr := tar.NewReader(zr)
	var out []pack.Member
	for len(out) < len(want) {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the archive has %d of the %d expected programs", len(out), len(want))
		}
		if err := errors.Join(ctx.Err(), err); err != nil {
			return nil, err
		}
		name, ok := want[path.Clean(h.Name)]
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		dst := filepath.Join(dir, filepath.FromSlash(name))
		if err := writeFile(dst, tr); err != nil {
			return nil, err
		}
		out = append(out, pack.Member{Name: name, Path: dst})
	}
	return out, nil
}

func writeFile(dst string, r io.Reader) error {
	if err := safefile.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	f, err := safefile.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// netTools takes the packet filter programs with their libraries out of
// kube-proxy's image, for hosts.
func netTools(ctx context.Context, img v1.Image, arch, dir string) ([]pack.Member, error) {
	r := mutate.Extract(img)
	defer r.Close()
	tr := tar.NewReader(r)
	members := map[string]pack.Member{}
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err := errors.Join(ctx.Err(), err); err != nil {
			return nil, err
		}
		if err := netTool(h, tr, dir, members); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	loader, err := findLoader(members, arch)
	if err != nil {
		return nil, err
	}
	for _, m := range source.HostTools(arch, loader) {
		members[m.Name] = m
	}
	out := make([]pack.Member, 0, len(members))
	for _, m := range members {
		out = append(out, m)
	}
	return out, nil
}

// netTool takes one member of the image, if it is a program or a library.
func netTool(h *tar.Header, r io.Reader, dir string, members map[string]pack.Member) error {
	name := source.MergedPath(h.Name)
	if !fs.ValidPath(name) || !strings.HasPrefix(name, "usr/sbin/") && !strings.HasPrefix(name, "usr/lib") {
		return nil
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		members[name] = pack.Member{Name: name, Link: source.RelativeLink(name, h.Linkname)}
	case tar.TypeLink:
		if m, ok := members[source.MergedPath(h.Linkname)]; ok {
			m.Name = name
			members[name] = m
		}
	case tar.TypeReg:
		dst := filepath.Join(dir, filepath.FromSlash(name))
		if err := writeFile(dst, r); err != nil {
			return err
		}
		members[name] = pack.Member{Name: name, Path: dst}
	}
	return nil
}

func findLoader(members map[string]pack.Member, arch string) (string, error) {
	for _, name := range []string{"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"} {
		if _, ok := members[source.LibDir(arch)+"/"+name]; ok {
			return source.LibDir(arch) + "/" + name, nil
		}
	}
	return "", errors.New("the kube-proxy image has no dynamic loader")
}
