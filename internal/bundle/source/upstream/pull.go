package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/ocitransport"
	"slipway.dev/slipway/internal/safefile"
)

// A puller keeps images in a layout in the cache. The image of a release's tag does not
// change, so a cached image needs no network.
type puller struct {
	dir      string
	insecure bool // as Options.Insecure
}

func (p *puller) recordPath(ref, arch string) string {
	h := sha256.Sum256([]byte(ref + " " + arch))
	return filepath.Join(p.dir, "refs", hex.EncodeToString(h[:]))
}

// findCached returns an image from the cache, if it is complete.
func (p *puller) findCached(ref, arch string) (v1.Image, bool) {
	data, err := safefile.ReadFile(p.recordPath(ref, arch), bounded.Word)
	if err != nil {
		return nil, false
	}
	h, err := v1.NewHash(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, false
	}
	img, err := p.openCached(h)
	return img, err == nil
}

// openCached opens an image of the cache and verifies all its blobs.
func (p *puller) openCached(h v1.Hash) (v1.Image, error) {
	d := layout.Dir(p.dir)
	img, err := d.ReadImage(h.String())
	if err != nil {
		return nil, err
	}
	m, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	for _, b := range append(m.Layers, m.Config) {
		if err := d.VerifyBlob(b.Digest.String()); err != nil {
			return nil, err
		}
	}
	return img, nil
}

// getImage returns an image for an architecture. registry is the reference from which it
// is pulled, ref the reference that it gets.
func (p *puller) getImage(ctx context.Context, ref, registry, arch string, tell func(source.Progress)) (v1.Image, error) {
	if img, ok := p.findCached(ref, arch); ok {
		return img, nil
	}
	tell(source.Progress{Phase: source.Fetching, Message: registry})
	var options []name.Option
	if p.insecure {
		options = append(options, name.Insecure)
	}
	r, err := name.ParseReference(registry, options...)
	if err != nil {
		return nil, fmt.Errorf("image reference %q: %w", registry, err)
	}
	var h v1.Hash
	for left := attempts; ; left-- {
		h, err = p.pullImage(ctx, r, arch)
		if err == nil || ctx.Err() != nil || left <= 0 || !isRetryable(err) {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, layout.ErrCorrupt), errors.As(err, new(*safefile.ForeignError)),
		err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil,
			&silentError{newProblem(IDPull, "check the network, add --mirror, or build with --source modules",
				"pulling %s for %s: %v", registry, arch, err), err}
	}
	if err := safefile.WriteFile(p.recordPath(ref, arch), []byte(h.String()+"\n"), 0o644); err != nil {
		return nil, err
	}
	return p.openCached(h)
}

// isRetryable reports whether another attempt can succeed. Complete blobs are kept, so
// the pull is resumed.
func isRetryable(err error) bool {
	var t *transport.Error
	return !errors.As(err, new(*safefile.ForeignError)) && (!errors.As(err, &t) || t.Temporary())
}

func (p *puller) pullImage(ctx context.Context, r name.Reference, arch string) (v1.Hash, error) {
	transport, err := ocitransport.New(ocitransport.Options{
		Registry: r.Context().RegistryStr(), Insecure: p.insecure, Named: ocitransport.HasCredentialsFunc(authn.DefaultKeychain),
	})
	if err != nil {
		return v1.Hash{}, err
	}
	img, err := remote.Image(r, remote.WithContext(ctx), remote.WithTransport(transport),
		remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil {
		return v1.Hash{}, err
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return v1.Hash{}, err
	}
	if cf.Architecture != arch {
		return v1.Hash{}, fmt.Errorf("the image is for %s", cf.Architecture)
	}
	d, err := layout.Create(p.dir)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := safefile.MkdirAll(filepath.Join(p.dir, "refs"), 0o755); err != nil {
		return v1.Hash{}, err
	}
	desc, _, err := d.AddImage(img)
	return desc.Digest, err
}

// isMissing reports whether the registry does not have the image, or does not exist.
func isMissing(err error) bool {
	var t *transport.Error
	var dns *net.DNSError
	return errors.As(err, &t) && t.StatusCode == http.StatusNotFound || errors.As(err, &dns) && dns.IsNotFound
}
