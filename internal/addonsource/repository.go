package addonsource

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/ocitransport"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/spec"
)

// chartLayer is the media type of a chart archive in a registry.
const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// fetchChart returns the path of a chart on this machine and, if it was downloaded, its source
// and digest.
func (w *loadRun) fetchChart(ctx context.Context, c v1alpha1.Chart) (file, source string, err error) {
	if c.Path != "" {
		return c.Path, "", w.requireChecksum(c)
	}
	var text []byte
	address := strings.TrimSuffix(c.Repository, "/") + "/" + c.Name + ":" + c.Version
	file = w.cachePath(address)
	// A chart version is exactly one archive: an archive in the cache is not requested
	// again.
	if have, readErr := safefile.ReadFile(file,
		bounded.Document); readErr == nil && (c.Digest == "" || digestOf(have) == c.Digest) && isChart(have) == nil {
		return file, address + " " + digestOf(have), nil
	}
	if spec.IsOCI(c.Repository) {
		text, err = w.pullChart(ctx, c, address)
	} else {
		text, err = w.downloadFromIndex(ctx, c)
	}
	if err != nil {
		return "", "", err
	}
	if c.Digest != "" && digestOf(text) != c.Digest {
		return "", "", w.checksumDiffers(address, digestOf(text), c.Digest)
	}
	if err := isChart(text); err != nil {
		return "", "", w.unreadableChart(c, err)
	}
	if err := keepFile(file, text); err != nil {
		return "", "", fmt.Errorf("saving a chart: %w", err)
	}
	return file, address + " " + digestOf(text), nil
}

// isChart returns why an archive is not a chart: an error page of a proxy, or an
// incomplete archive, must not be kept.
func isChart(archive []byte) error {
	_, err := loader.LoadArchive(bytes.NewReader(archive))
	return err
}

// requireChecksum requires the pinned checksum of an archive.
func (w *loadRun) requireChecksum(c v1alpha1.Chart) error {
	if c.Digest == "" {
		return nil
	}
	text, err := w.readLocal(".chart.path", c.Path)
	if err == nil && digestOf(text) != c.Digest {
		return w.checksumDiffers(c.Path, digestOf(text), c.Digest)
	}
	return err
}

func (w *loadRun) checksumDiffers(what, is, want string) error {
	return w.refuseAddon(IDChecksum, ".chart", fmt.Sprintf("%s has the checksum %s, expected %s", what, is, want),
		"check the change before you write a new checksum")
}

// An index is the index of a chart repository.
type index struct {
	Entries map[string][]struct {
		Version string   `json:"version"`
		URLs    []string `json:"urls"`
		Digest  string   `json:"digest"`
	} `json:"entries"`
}

// downloadFromIndex downloads an archive from the index of a repository.
func (w *loadRun) downloadFromIndex(ctx context.Context, c v1alpha1.Chart) ([]byte, error) {
	base, err := url.Parse(strings.TrimSuffix(c.Repository, "/") + "/")
	if err != nil {
		return nil, err
	}
	at := base.JoinPath("index.yaml").String()
	text, err := w.getContent(ctx, at, c.Digest)
	if err != nil {
		return nil, w.unreachableError(ctx, at, err)
	}
	var ix index
	if err := yaml.Unmarshal(text, &ix); err != nil {
		return nil, w.refuseAddon(IDDownload, ".chart.repository", at+" is not a valid chart repository index: "+err.Error(), "")
	}
	var versions []string
	for _, v := range ix.Entries[c.Name] {
		versions = append(versions, v.Version)
		if strings.TrimPrefix(v.Version, "v") != strings.TrimPrefix(c.Version, "v") || len(v.URLs) == 0 {
			continue
		}
		where, err := base.Parse(v.URLs[0])
		if err != nil {
			return nil, w.refuseAddon(IDDownload, ".chart", at+" has an invalid URL: "+err.Error(), "")
		}
		archive, err := w.getContent(ctx, where.String(), cmp.Or(c.Digest, v.Digest))
		if err != nil {
			return nil, w.unreachableError(ctx, where.String(), err)
		}
		if want := strings.TrimPrefix(v.Digest, "sha256:"); want != "" && digestOf(archive) != "sha256:"+want {
			return nil, w.checksumDiffers(where.String(), digestOf(archive), "sha256:"+want)
		}
		return archive, nil
	}
	if len(versions) == 0 {
		return nil, w.refuseAddon(IDDownload, ".chart.name", c.Repository+" has no chart "+c.Name, "")
	}
	return nil, w.refuseAddon(IDDownload, ".chart.version", fmt.Sprintf("%s has no version %s of chart %s", c.Repository, c.Version, c.Name),
		"use one of these versions: "+strings.Join(versions[:min(len(versions), 8)], ", "))
}

func (w *loadRun) unreachableError(ctx context.Context, address string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.refuseAddon(IDDownload, ".chart", "downloading "+address+": "+causeText(err),
		"download the chart archive yourself, and set chart.path to the file (charts are downloaded only by the manager, not by hosts)")
}

// pullChart pulls a chart archive from a registry.
func (w *loadRun) pullChart(ctx context.Context, c v1alpha1.Chart, address string) ([]byte, error) {
	text := strings.TrimPrefix(address, "oci://")
	// A tag cannot have a plus sign: it has an underscore instead.
	repository := text[:len(text)-len(":"+c.Version)]
	host, _, _ := strings.Cut(text, "/")
	var options []name.Option
	if slices.Contains(w.Insecure, host) {
		options = append(options, name.Insecure)
	}
	ref, err := name.ParseReference(repository+":"+strings.ReplaceAll(c.Version, "+", "_"), options...)
	if err != nil {
		return nil, w.refuseAddon(IDDownload, ".chart", address+" is not a valid reference: "+err.Error(), "")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	with, err := w.registryOptions(ctx, ref.Context().RegistryStr())
	if err != nil {
		return nil, err
	}
	archive, err := pullArchive(ref, with)
	var refused *transport.Error
	switch {
	case err == nil:
		return archive, nil
	case errors.As(err, &refused) && refused.StatusCode == 404:
		return nil, w.refuseAddon(IDDownload, ".chart.version", address+" does not exist", "")
	}
	return nil, w.unreachableError(ctx, address, err)
}

// registryOptions returns the access to a registry.
func (w *loadRun) registryOptions(ctx context.Context, host string) ([]remote.Option, error) {
	if w.Speak != nil {
		return w.Speak(ctx, host)
	}
	transport, err := ocitransport.New(ocitransport.Options{
		Registry: host, Insecure: slices.Contains(w.Insecure, host), Named: ocitransport.HasCredentialsFunc(authn.DefaultKeychain),
	})
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithTransport(transport)}, err
}

func pullArchive(ref name.Reference, with []remote.Option) ([]byte, error) {
	img, err := remote.Image(ref, with...)
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		if media, err := l.MediaType(); err != nil || media != chartLayer {
			continue
		}
		r, err := l.Compressed()
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		_, err = io.Copy(&b, io.LimitReader(r, maxManifest+1))
		if err == nil && b.Len() > maxManifest {
			err = tooLargeError()
		}
		return b.Bytes(), errors.Join(err, r.Close())
	}
	return nil, errors.New("it is not a chart")
}
