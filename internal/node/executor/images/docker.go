//go:build linux

package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/op"
)

const (
	dockerSocket = "/run/docker.sock"
	// dockerAsk limits a request to Docker, and dockerLoad an import.
	dockerAsk  = 30 * time.Second
	dockerLoad = 30 * time.Minute
	// mostAnswer limits how much of a response is read, in bytes.
	mostAnswer = 4 << 20
)

// dockerClient returns a client for Docker on this host. Each request has a separate
// connection.
func dockerClient(h *host.Host) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", h.DiskPath(dockerSocket))
		},
	}}
}

// askDocker sends a request to Docker and returns the response.
func askDocker(ctx context.Context, h *host.Host, method, path string, body io.Reader) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := dockerClient(h).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = bounded.ReadAll(resp.Body, mostAnswer)
	return resp.StatusCode, answer, err
}

// errNoDocker reports that nothing answers at the socket.
var errNoDocker = errors.New("docker does not answer on " + dockerSocket)

// dockerImage returns the digest of the config of the image with a name in Docker, which
// Docker uses as its ID; "" if there is none.
func dockerImage(ctx context.Context, h *host.Host, ref string) (string, error) {
	status, answer, err := askDocker(ctx, h, http.MethodGet, dockerPath(ref)+"/json", nil)
	var has struct {
		ID string `json:"Id"`
	}
	switch {
	case err != nil:
		return "", errors.Join(ctx.Err(), fmt.Errorf("%w: %w", errNoDocker, err))
	case status == http.StatusNotFound:
	case status != http.StatusOK:
		return "", dockerError("querying Docker for "+ref, status, answer)
	case json.Unmarshal(answer, &has) != nil:
		return "", dockerError("parsing the reply of Docker for "+ref, status, answer)
	}
	return has.ID, nil
}

// dockerPath returns the path of an image in Docker's API.
func dockerPath(ref string) string { return "/images/" + (&url.URL{Path: ref}).EscapedPath() }

// missingFromDocker returns the images that Docker does not have under their names.
func missingFromDocker(ctx context.Context, h *host.Host, images []op.Image) ([]op.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, dockerAsk)
	defer cancel()
	var out []op.Image
	for _, img := range images {
		if len(img.Blobs) == 0 {
			return nil, host.Invalid("image %s has no config", img.Ref)
		}
		id, err := dockerImage(ctx, h, img.Ref)
		if err != nil {
			return nil, err
		}
		if id != img.Blobs[0].Digest {
			out = append(out, img)
		}
	}
	return out, nil
}

func dockerError(doing string, status int, answer []byte) error {
	return &op.Error{
		Reason:  "CommandFailed",
		Message: fmt.Sprintf("%s: Docker returned %d: %s", doing, status, strings.TrimSpace(string(answer[:min(len(answer), 500)]))),
	}
}

func checkDockerImages(ctx context.Context, h *host.Host, o op.ImportImages) (host.CheckResult, error) {
	if err := checkImageNames(o.Images); err != nil {
		return host.CheckResult{}, err
	}
	if !host.Exists(h.DiskPath(dockerSocket)) {
		return host.CheckResult{Change: imagePlan{load: o.Images}.String()}, nil
	}
	lacks, err := missingFromDocker(ctx, h, o.Images)
	switch {
	case errors.Is(err, errNoDocker) && ctx.Err() == nil:
		return host.CheckResult{Change: "check again later: Docker is not running"}, nil
	case err != nil:
		return host.CheckResult{}, err
	case len(lacks) > 0:
		return host.CheckResult{Change: imagePlan{load: lacks}.String()}, nil
	}
	for _, b := range imageBlobs(o.Images) {
		if hostfs.HasBlob(h, hostfs.PassingBlobs, b) {
			return host.CheckResult{Change: "remove the imported content"}, nil // a helper was killed before it removed them
		}
	}
	return host.CheckResult{}, nil
}

// applyDockerImages loads missing images into Docker. An interrupted load leaves no image
// with a name, and is started again.
func applyDockerImages(ctx context.Context, h *host.Host, o op.ImportImages) error {
	lacks, err := missingFromDocker(ctx, h, o.Images)
	if errors.Is(err, errNoDocker) {
		return &op.Error{Reason: "NoRuntime", Message: "Docker: " + err.Error()}
	}
	if err != nil {
		return err
	}
	if len(lacks) > 0 {
		brings := map[string]string{}
		for _, img := range lacks {
			brings[img.Ref] = img.Blobs[0].Digest
		}
		if err := noteImported(h, true, brings); err != nil {
			return err
		}
		if err := loadDocker(ctx, h, lacks); err != nil {
			return err
		}
		if lacks, err = missingFromDocker(ctx, h, o.Images); err != nil {
			return err
		}
		if len(lacks) > 0 {
			return &op.Error{Reason: "CommandFailed", Message: "Docker loaded the images, but does not have " + lacks[0].Ref}
		}
	}
	return releaseImages(h, o.Images)
}

func loadDocker(ctx context.Context, h *host.Host, images []op.Image) error {
	manifest, err := dockerManifest(images)
	if err != nil {
		return err
	}
	layout, err := writeImageLayout(ctx, h, images)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dockerLoad)
	defer cancel()
	read, write := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := layout(write, layoutFile{"manifest.json", manifest})
		wrote <- errors.Join(err, write.CloseWithError(err))
	}()
	status, answer, err := askDocker(ctx, h, http.MethodPost, "/images/load?quiet=1", read)
	unread := errors.Join(read.Close(), <-wrote) // it may respond before it has read everything
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("loading images into Docker: %w", errors.Join(err, unread))
	case status != http.StatusOK || strings.Contains(string(answer), `"errorDetail"`):
		return dockerError("loading images into Docker", status, answer)
	}
	return nil
}

// dockerManifest is the manifest for a Docker import.
func dockerManifest(images []op.Image) ([]byte, error) {
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var list []entry
	for _, img := range images {
		e := entry{Config: blobName(img.Blobs[0]), RepoTags: []string{img.Ref}}
		for _, b := range img.Blobs[1:] {
			e.Layers = append(e.Layers, blobName(b))
		}
		list = append(list, e)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encoding a list of images: %w", err)
	}
	return raw, nil
}
