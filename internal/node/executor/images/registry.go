//go:build linux

package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/op"
)

// PushImagesOp executes op.PushImages.
type PushImagesOp struct{ Op op.PushImages }

func (x *PushImagesOp) Paths() []string {
	return host.NonEmpty(x.Op.CAFile)
}

// RegistryServesOp executes op.RegistryServes.
type RegistryServesOp struct{ Op op.RegistryServes }

func (x *RegistryServesOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	return ApplyRegistryServes(ctx, h, x.Op)
}

func (x *RegistryServesOp) Paths() []string {
	return host.NonEmpty(x.Op.CAFile)
}

// MediaIndex is the media type of an image index.
const MediaIndex = "application/vnd.oci.image.index.v1+json"

// answerTimeout limits how long a registry takes to respond after it has received a whole
// blob.
const answerTimeout = 5 * time.Minute

// A registry is a connection to a registry.
type registry struct {
	op.RegistryClient
	client *http.Client
}

func connectRegistry(h *host.Host, o op.RegistryClient) (*registry, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.Name}
	if o.CAFile != "" {
		text, err := bounded.ReadFile(h.DiskPath(o.CAFile), bounded.Config)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", o.CAFile)
		}
	}
	transport := &http.Transport{TLSClientConfig: config, ResponseHeaderTimeout: answerTimeout}
	return &registry{o, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (r *registry) close() { r.client.CloseIdleConnections() }

// urlOf returns the URL of a path, with the query of another URL.
func (r *registry) urlOf(elem ...string) *url.URL {
	return &url.URL{Scheme: "https", Host: r.Address, Path: "/v2/" + strings.Join(elem, "/")}
}

// A content is a request body.
type content struct {
	media string
	size  int64
	from  io.Reader
}

// send sends a request with the login; the caller closes the response.
func (r *registry) send(ctx context.Context, method string, at *url.URL, c content) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at.String(), c.from)
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth(r.Username, string(r.Password))
	if req.ContentLength = c.size; c.media != "" {
		req.Header.Set("Content-Type", c.media)
	}
	if method == http.MethodHead {
		req.Header.Set("Accept", MediaIndex)
	}
	return r.client.Do(req)
}

// expect sends a request, and requires one of the statuses; others are errors.
func (r *registry) expect(ctx context.Context, method string, at *url.URL, c content, codes ...int) (code int,
	header http.Header, err error,
) {
	res, err := r.send(ctx, method, at, c)
	if err != nil {
		return 0, nil, fmt.Errorf("querying the registry: %w", err)
	}
	defer res.Body.Close()
	text, _ := bounded.ReadAll(res.Body, 300) // only evidence
	for _, code := range codes {
		if res.StatusCode == code {
			return code, res.Header, nil
		}
	}
	if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
		return 0, nil, &op.Error{
			Reason:  op.ReasonRegistryLogin,
			Message: fmt.Sprintf("the registry at %s rejects the login of %s: %s", r.Address, r.Username, res.Status),
		}
	}
	return 0, nil, &op.Error{
		Reason:  "RegistryRefuses",
		Message: fmt.Sprintf("the registry at %s returned %s to %s %s", r.Address, res.Status, method, at.Path), Detail: string(text),
	}
}

// isServing returns why a registry cannot be used with the login, or nil.
func (r *registry) isServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, health.ProbeTimeout)
	defer cancel()
	if _, _, err := r.expect(ctx, http.MethodGet, r.urlOf(""), content{}, http.StatusOK); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.urlOf("").String(), nil)
	if err != nil {
		return err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		return &op.Error{
			Reason:  op.ReasonRegistryLogin,
			Message: fmt.Sprintf("the registry at %s returned %s to a request without a login", r.Address, res.Status),
		}
	}
	return nil
}

func (x *RegistryServesOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	r, err := connectRegistry(h, o.RegistryClient)
	if err == nil {
		defer r.close()
		err = r.isServing(ctx)
	}
	if err != nil {
		return host.CheckResult{Change: "wait"}, ctx.Err()
	}
	return host.CheckResult{}, nil
}

// ApplyRegistryServes waits until the registry responds.
func ApplyRegistryServes(ctx context.Context, h *host.Host, o op.RegistryServes) error {
	r, err := connectRegistry(h, o.RegistryClient)
	if err != nil {
		return err
	}
	defer r.close()
	bounded, cancel := context.WithTimeout(ctx, time.Duration(o.TimeoutSeconds)*time.Second)
	defer cancel()
	tick := time.NewTicker(health.ProbeEvery)
	defer tick.Stop()
	var why error
	for {
		err := r.isServing(bounded)
		if err == nil {
			return nil
		}
		if bounded.Err() == nil || why == nil { // else it only reports that time is up
			why = err
		}
		select {
		case <-tick.C:
			continue
		case <-bounded.Done():
		}
		var refused *op.Error
		switch {
		case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return ctx.Err()
		case errors.As(why, &refused):
			return refused
		}
		return &op.Error{Reason: "Timeout", Message: fmt.Sprintf("the registry at %s does not serve: %v", o.Address, why)}
	}
}

func (x *PushImagesOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if len(o.Images) == 0 {
		return host.CheckResult{Change: "push the bundle's images"}, nil // which are not known yet
	}
	for _, img := range o.Images {
		if err := checkImageNames(img.Platforms); err != nil {
			return host.CheckResult{}, err
		}
	}
	missing, err := missingImages(ctx, h, o)
	switch {
	case ctx.Err() != nil:
		return host.CheckResult{}, ctx.Err()
	case err != nil: // it does not serve yet: its content is not known
		return host.CheckResult{Change: "push " + describePush(o.Images)}, nil
	case len(missing) > 0:
		return host.CheckResult{Change: "push " + describePush(missing)}, nil
	}
	for _, img := range o.Images {
		for _, b := range imageBlobs(img.Platforms) {
			if hostfs.HasBlob(h, hostfs.PassingBlobs, b) {
				return host.CheckResult{Change: "remove the uploaded content"}, nil // a helper was killed before it removed it
			}
		}
	}
	return host.CheckResult{}, nil
}

// missingImages returns the images that a registry does not have in the wanted form.
func missingImages(ctx context.Context, h *host.Host, o op.PushImages) (missing []op.PushedImage, err error) {
	r, err := connectRegistry(h, o.RegistryClient)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for _, img := range o.Images {
		code, header, err := r.expect(ctx, http.MethodHead, r.urlOf(img.Repository, "manifests", tagOf(img)), content{},
			http.StatusOK, http.StatusNotFound)
		if err != nil {
			return nil, err
		}
		if code != http.StatusOK || header.Get("Docker-Content-Digest") != digestOf(img.Index) {
			missing = append(missing, img)
		}
	}
	return missing, nil
}

func describePush(images []op.PushedImage) string {
	var names []string
	for _, img := range images {
		name := img.Repository
		if img.Tag != "" {
			name += ":" + img.Tag
		}
		names = append(names, name)
	}
	return host.Summarize(names)
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// tagOf returns the tag or digest of an image.
func tagOf(img op.PushedImage) string {
	if img.Tag == "" {
		return digestOf(img.Index)
	}
	return img.Tag
}

// A push is a running push.
type push struct {
	*host.Host
	*registry
	in          map[string]string // blob → a repository that has it
	done, total int64
}

// Apply sends missing content: blobs before the manifests that name them, so that an
// interruption leaves no incomplete image.
func (x *PushImagesOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	missing, err := missingImages(ctx, h, o)
	if err != nil {
		return err
	}
	r, err := connectRegistry(h, o.RegistryClient)
	if err != nil {
		return err
	}
	defer r.close()
	p := &push{Host: h, registry: r, in: map[string]string{}}
	for _, img := range missing {
		p.total += TotalSize(img.Platforms)
	}
	for _, img := range missing {
		if err := p.pushImage(ctx, img); err != nil {
			return fmt.Errorf("pushing %s: %w", describePush([]op.PushedImage{img}), err)
		}
	}
	for _, img := range o.Images {
		if err := releaseImages(h, img.Platforms); err != nil {
			return err
		}
	}
	return nil
}

func (p *push) pushImage(ctx context.Context, img op.PushedImage) error {
	for _, one := range img.Platforms {
		for _, b := range one.Blobs {
			if err := p.pushBlob(ctx, img.Repository, b); err != nil {
				return err
			}
			p.done += b.Size
		}
		path, err := hostfs.GetBlob(ctx, p.Host, one.Manifest, p.done, p.total)
		if err != nil {
			return err
		}
		text, err := bounded.ReadFile(path, bounded.Config)
		if err != nil {
			return err
		}
		p.done += one.Manifest.Size
		if err := p.pushManifest(ctx, img.Repository, one.Manifest.Digest, one.MediaType, text); err != nil {
			return err
		}
	}
	return p.pushManifest(ctx, img.Repository, tagOf(img), MediaIndex, img.Index)
}

func (p *push) pushManifest(ctx context.Context, repository, name, media string, text []byte) error {
	_, _, err := p.expect(ctx, http.MethodPut, p.urlOf(repository, "manifests", name),
		content{media, int64(len(text)), bytes.NewReader(text)}, http.StatusCreated)
	return err
}

// pushBlob puts a blob into a repository. A blob that another repository has is not sent.
func (p *push) pushBlob(ctx context.Context, repository string, b op.Blob) error {
	code, _, err := p.expect(ctx, http.MethodHead, p.urlOf(repository, "blobs", b.Digest), content{}, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return err
	}
	if code == http.StatusOK {
		p.in[b.Digest] = repository
		return nil
	}
	begin := p.urlOf(repository, "blobs", "uploads", "")
	if from, ok := p.in[b.Digest]; ok {
		begin.RawQuery = url.Values{"mount": {b.Digest}, "from": {from}}.Encode()
	}
	code, header, err := p.expect(ctx, http.MethodPost, begin, content{}, http.StatusCreated, http.StatusAccepted)
	if err != nil || code == http.StatusCreated {
		return err
	}
	to, err := begin.Parse(header.Get("Location"))
	if err != nil || to.Host != p.Address || to.Scheme != "https" { // it gets the login
		return fmt.Errorf("the registry redirects uploads to another host: %q", header.Get("Location"))
	}
	query := to.Query()
	query.Set("digest", b.Digest)
	to.RawQuery = query.Encode()
	path, err := hostfs.GetBlob(ctx, p.Host, b, p.done, p.total)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, err := p.expect(ctx, http.MethodPut, to, content{"application/octet-stream", b.Size, f}, http.StatusCreated); err != nil {
		return err
	}
	p.in[b.Digest] = repository
	return nil
}
