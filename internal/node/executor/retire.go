//go:build linux

package executor

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
	"slipway.dev/slipway/internal/node/op"
)

// retireOp executes op.Retire.
type retireOp struct{ o op.Retire }

// importedFile is the record of imports, below the state directory.
const importedFile = "imported.json"

// imported is the record of the images that Slipway imported into a runtime, or pinned
// there: all other images belong to others.
type imported struct {
	Docker bool `json:"docker,omitempty"`
	// Images maps names to digests: of manifests, or Docker's image IDs.
	Images map[string]string `json:"images"`
}

// imported reads the record. Imports into another runtime were removed with that runtime.
func (s *session) imported(docker bool) (map[string]string, error) {
	raw, err := atomicfile.ReadFile(s.state(importedFile), bounded.Record)
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
func (s *session) noteImported(docker bool, brings map[string]string) error {
	if len(brings) == 0 {
		return nil
	}
	known, err := s.imported(docker)
	if err != nil {
		return err
	}
	maps.Copy(known, brings)
	return s.keep(s.state(importedFile), imported{Docker: docker, Images: known})
}

// retired has content of earlier bundles that is no longer needed.
type retired struct {
	images []string // their names
	used   int      // more images, which containers use
	blobs  []string // their paths
	bytes  int64    // of the blobs
}

func (r retired) text(docker bool) string {
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
		part := do + counted(n, "image") + " of earlier bundles"
		if r.used > 0 {
			part += ", except images that are in use then"
		}
		parts = append(parts, part)
	}
	if n := len(r.blobs); n > 0 {
		parts = append(parts, "remove "+counted(n, "blob")+" of earlier bundles, "+bytesize.Bytes(r.bytes))
	}
	return strings.Join(parts, "; ")
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// errNoContainerd reports that nothing answers at the socket.
var errNoContainerd = errors.New("containerd does not answer on " + containerdSocket)

// retired finds it. An image that has changed since its import belongs to others.
func (s *session) retired(ctx context.Context, o op.Retire) (r retired, err error) {
	ours, err := s.imported(o.Docker)
	if err != nil {
		return r, err
	}
	maps.DeleteFunc(ours, func(ref, _ string) bool { return slices.Contains(o.Images, ref) })
	switch {
	case len(ours) == 0:
	case o.Docker:
		r.images, r.used, err = s.dockerUnused(ctx, ours)
	default:
		r.images, err = s.pinnedOf(ctx, ours)
	}
	if err != nil {
		return r, err
	}
	r.blobs, r.bytes, err = s.blobsBut(o.Blobs)
	return r, err
}

// pinnedOf returns the names of those of the images that containerd has, pinned.
func (s *session) pinnedOf(ctx context.Context, ours map[string]string) (out []string, err error) {
	have, up, err := s.images(ctx)
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

// dockerUnused returns the names of the images that Docker has without a container; used
// is the number of images with one.
func (s *session) dockerUnused(ctx context.Context, ours map[string]string) (out []string, used int, err error) {
	ctx, cancel := context.WithTimeout(ctx, dockerAsk)
	defer cancel()
	for _, ref := range slices.Sorted(maps.Keys(ours)) {
		id, err := s.dockerImage(ctx, ref)
		if err != nil {
			return nil, 0, err
		}
		if id == "" || id != ours[ref] {
			continue
		}
		uses, err := s.dockerUses(ctx, ref)
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

// dockerUses reports whether an image has a container, even an exited one.
func (s *session) dockerUses(ctx context.Context, ref string) (bool, error) {
	filter, err := json.Marshal(map[string][]string{"ancestor": {ref}})
	if err != nil {
		return false, fmt.Errorf("encoding a question to Docker: %w", err)
	}
	query := url.Values{"all": {"1"}, "filters": {string(filter)}}
	status, answer, err := s.askDocker(ctx, http.MethodGet, "/containers/json?"+query.Encode(), nil)
	var containers []struct{}
	switch {
	case err != nil:
		return false, errors.Join(ctx.Err(), fmt.Errorf("%w: %w", errNoDocker, err))
	case status != http.StatusOK || json.Unmarshal(answer, &containers) != nil:
		return false, dockerError("asking Docker for containers of "+ref, status, answer)
	}
	return len(containers) > 0, nil
}

// blobsBut returns the blobs of the store except some, and remains of transfers.
func (s *session) blobsBut(stay []string) (out []string, bytes int64, err error) {
	dir := s.state(keptBlobs, "sha256")
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

func (x *retireOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	r, err := s.retired(ctx, o)
	switch {
	case ctx.Err() != nil:
		return verdict{}, ctx.Err()
	case errors.Is(err, errNoContainerd):
		return verdict{change: "check again later: containerd is not running"}, nil
	case errors.Is(err, errNoDocker):
		return verdict{change: "check again later: Docker is not running"}, nil
	}
	return verdict{change: r.text(o.Docker)}, err
}

func (x *retireOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	r, err := s.retired(ctx, o)
	if errors.Is(err, errNoContainerd) || errors.Is(err, errNoDocker) {
		return &op.Error{Reason: "NoRuntime", Message: err.Error()}
	}
	if err != nil {
		return err
	}
	if err := s.letImagesBe(ctx, o.Docker, r.images); err != nil {
		return err
	}
	for _, path := range r.blobs {
		if err := s.disk.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// letImagesBe releases images, and then removes them from the record: from now on they do
// not belong to Slipway.
func (s *session) letImagesBe(ctx context.Context, docker bool, refs []string) error {
	if len(refs) == 0 {
		return nil
	}
	ours, err := s.imported(docker)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		went, err := s.letImageBe(ctx, docker, ref)
		if err != nil {
			return err
		}
		if went {
			delete(ours, ref)
		}
	}
	return s.keep(s.state(importedFile), imported{Docker: docker, Images: ours})
}

// letImageBe unpins the image in containerd, or removes it from Docker. An image that a
// container uses meanwhile is kept.
func (s *session) letImageBe(ctx context.Context, docker bool, ref string) (went bool, err error) {
	if !docker {
		_, err := s.output(ctx, ctr("images", "label", ref, unpinnedLabel)...)
		return err == nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dockerAsk)
	defer cancel()
	status, answer, err := s.askDocker(ctx, http.MethodDelete, dockerPath(ref), nil)
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
