//go:build linux

package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/op"
)

// PruneOp executes op.Prune.
type PruneOp struct{ Op op.Prune }

// ImportedFile is the record of imports, below the state directory.
const ImportedFile = "imported.json"

// imported is the record of the images that Slipway imported into a runtime, or pinned
// there: all other images belong to others.
type imported struct {
	Docker bool `json:"docker,omitempty"`
	// Images maps names to digests: of manifests, or Docker's image IDs.
	Images map[string]string `json:"images"`
}

// readImported reads the record. Imports into another runtime were removed with that
// runtime.
func readImported(h *host.Host, docker bool) (map[string]string, error) {
	raw, err := atomicfile.ReadFile(h.StatePath(ImportedFile), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	var rec imported
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err != nil {
		return nil, fmt.Errorf("reading which images were imported: %w", err)
	}
	if rec.Docker != docker || rec.Images == nil {
		return map[string]string{}, nil
	}
	return rec.Images, nil
}

// noteImported adds images to the record before their import, so that after a crash every
// imported image is known to belong to Slipway.
func noteImported(h *host.Host, docker bool, brings map[string]string) error {
	if len(brings) == 0 {
		return nil
	}
	known, err := readImported(h, docker)
	if err != nil {
		return err
	}
	maps.Copy(known, brings)
	return h.WriteRecord(h.StatePath(ImportedFile), imported{Docker: docker, Images: known})
}

// prunable has content of earlier bundles that is no longer needed.
type prunable struct {
	images []string // their names
	used   int      // more images, which containers use
	blobs  []string // their paths
	bytes  int64    // of the blobs
}

func (r prunable) describe(docker bool) string {
	n := len(r.images) + r.used
	if n == r.used && len(r.blobs) == 0 {
		return "" // content in use is removed another time
	}
	var parts []string
	if n > 0 {
		do := "unpin "
		if docker {
			do = "remove "
		}
		part := do + countOf(n, "image") + " of earlier bundles"
		if r.used > 0 {
			part += ", except images that are in use then"
		}
		parts = append(parts, part)
	}
	if n := len(r.blobs); n > 0 {
		parts = append(parts, "remove "+countOf(n, "blob")+" of earlier bundles, "+bytesize.Format(r.bytes))
	}
	return strings.Join(parts, "; ")
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// errNoContainerd reports that nothing answers at the socket.
var errNoContainerd = errors.New("containerd does not answer on " + process.ContainerdSocket)

// findPrunable finds it. An image that has changed since its import belongs to others.
func findPrunable(ctx context.Context, h *host.Host, o op.Prune) (r prunable, err error) {
	ours, err := readImported(h, o.Docker)
	if err != nil {
		return r, err
	}
	maps.DeleteFunc(ours, func(ref, _ string) bool { return slices.Contains(o.Images, ref) })
	switch {
	case len(ours) == 0:
	case o.Docker:
		r.images, r.used, err = unusedDockerImages(ctx, h, ours)
	default:
		r.images, err = pinnedImages(ctx, h, ours)
	}
	if err != nil {
		return r, err
	}
	r.blobs, r.bytes, err = blobsExcept(h, o.Blobs)
	return r, err
}

// pinnedImages returns the names of the images that are pinned in containerd and have the
// imported digest.
func pinnedImages(ctx context.Context, h *host.Host, ours map[string]string) (out []string, err error) {
	have, up, err := listImages(ctx, h)
	if err == nil && !up {
		err = errNoContainerd
	}
	for ref, digest := range ours {
		if img := have[ref]; img.pinned && img.digest == digest {
			out = append(out, ref)
		}
	}
	slices.Sort(out)
	return out, err
}

// unusedDockerImages returns the names of the images that Docker has without a container;
// used is the number of images with one.
func unusedDockerImages(ctx context.Context, h *host.Host, ours map[string]string) (out []string, used int, err error) {
	ctx, cancel := context.WithTimeout(ctx, dockerAsk)
	defer cancel()
	for _, ref := range slices.Sorted(maps.Keys(ours)) {
		id, err := dockerImage(ctx, h, ref)
		if err != nil {
			return nil, 0, err
		}
		if id == "" || id != ours[ref] {
			continue
		}
		uses, err := usedDockerImages(ctx, h, ref)
		switch {
		case err != nil:
			return nil, 0, err
		case uses:
			used++
		default:
			out = append(out, ref)
		}
	}
	return out, used, nil
}

// usedDockerImages reports whether an image has a container, even an exited one.
func usedDockerImages(ctx context.Context, h *host.Host, ref string) (bool, error) {
	filter, err := json.Marshal(map[string][]string{"ancestor": {ref}})
	if err != nil {
		return false, fmt.Errorf("encoding a question to Docker: %w", err)
	}
	query := url.Values{"all": {"1"}, "filters": {string(filter)}}
	status, answer, err := askDocker(ctx, h, http.MethodGet, "/containers/json?"+query.Encode(), nil)
	var containers []struct{}
	switch {
	case err != nil:
		return false, errors.Join(ctx.Err(), fmt.Errorf("%w: %w", errNoDocker, err))
	case status != http.StatusOK || json.Unmarshal(answer, &containers) != nil:
		return false, dockerError("listing Docker containers that use image "+ref, status, answer)
	}
	return len(containers) > 0, nil
}

// blobsExcept returns the blobs of the store except some, and remains of transfers.
func blobsExcept(h *host.Host, stay []string) (out []string, bytes int64, err error) {
	dir := h.StatePath(hostfs.KeptBlobs, "sha256")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	for _, e := range entries {
		if slices.Contains(stay, "sha256:"+strings.TrimSuffix(e.Name(), ".part")) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, 0, err
		}
		out, bytes = append(out, filepath.Join(dir, e.Name())), bytes+info.Size()
	}
	return out, bytes, nil
}

func (x *PruneOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	r, err := findPrunable(ctx, h, o)
	switch {
	case ctx.Err() != nil:
		return host.CheckResult{}, ctx.Err()
	case errors.Is(err, errNoContainerd):
		return host.CheckResult{Change: "check again later: containerd is not running"}, nil
	case errors.Is(err, errNoDocker):
		return host.CheckResult{Change: "check again later: Docker is not running"}, nil
	}
	return host.CheckResult{Change: r.describe(o.Docker)}, err
}

func (x *PruneOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	r, err := findPrunable(ctx, h, o)
	if errors.Is(err, errNoContainerd) || errors.Is(err, errNoDocker) {
		return &op.Error{Reason: "NoRuntime", Message: err.Error()}
	}
	if err != nil {
		return err
	}
	if err := unpinImages(ctx, h, o.Docker, r.images); err != nil {
		return err
	}
	for _, path := range r.blobs {
		if err := h.Disk.RemovePath(path); err != nil {
			return err
		}
	}
	return nil
}

// unpinImages releases images, and then removes them from the record: from now on they do
// not belong to Slipway.
func unpinImages(ctx context.Context, h *host.Host, docker bool, refs []string) error {
	if len(refs) == 0 {
		return nil
	}
	ours, err := readImported(h, docker)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		went, err := unpinImage(ctx, h, docker, ref)
		if err != nil {
			return err
		}
		if went {
			delete(ours, ref)
		}
	}
	return h.WriteRecord(h.StatePath(ImportedFile), imported{Docker: docker, Images: ours})
}

// unpinImage unpins the image in containerd, or removes it from Docker. An image that a
// container uses meanwhile is kept.
func unpinImage(ctx context.Context, h *host.Host, docker bool, ref string) (went bool, err error) {
	if !docker {
		_, err := h.Output(ctx, ctrCommand("images", "label", ref, unpinnedLabel)...)
		return err == nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dockerAsk)
	defer cancel()
	status, answer, err := askDocker(ctx, h, http.MethodDelete, dockerPath(ref), nil)
	switch {
	case err != nil:
		return false, errors.Join(ctx.Err(), fmt.Errorf("removing image %s from Docker: %w", ref, err))
	case status == http.StatusOK, status == http.StatusNotFound:
		return true, nil
	case status == http.StatusConflict:
		return false, nil
	}
	return false, dockerError("removing image "+ref+" from Docker", status, answer)
}
