//go:build linux

package hostfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// BaselineFileOp executes op.BaselineFile.
type BaselineFileOp struct{ Op op.BaselineFile }

func (x *BaselineFileOp) Paths() []string {
	return []string{x.Op.Target()}
}

// BaselineDir has, below the state directory, files in the state in which programs left
// them.
const BaselineDir = "kept"

// A baseline is a file in the state in which a program left it.
type baseline struct {
	Path    string      `json:"path"`
	By      string      `json:"by"` // the program
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode"`
	UID     int         `json:"uid"`
	GID     int         `json:"gid"`
}

func (k baseline) fileMeta() atomicfile.Meta {
	return atomicfile.Meta{Mode: k.Mode, UID: k.UID, GID: k.GID}
}

func baselinePath(h *host.Host, path string) string {
	return h.StatePath(BaselineDir, host.Digest([]byte(path))+".json")
}

// ReadBaseline returns the saved state of a file, nil if nothing was saved.
func ReadBaseline(h *host.Host, path string) (*baseline, error) {
	raw, err := atomicfile.ReadFile(baselinePath(h, path), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	k := &baseline{}
	if err == nil {
		err = json.Unmarshal(raw, k)
	}
	if err != nil {
		return nil, fmt.Errorf("reading how %s was left: %w", path, err)
	}
	return k, nil
}

// ForgetBaseline removes the saved state of a file before Slipway writes the file again,
// so that after a crash the old saved state is not restored over the new content.
func ForgetBaseline(h *host.Host, paths ...string) error {
	for _, p := range paths {
		if !host.Exists(baselinePath(h, p)) {
			continue
		}
		if err := h.Disk.RemovePath(baselinePath(h, p)); err != nil {
			return fmt.Errorf("removing the saved state of %s: %w", p, err)
		}
	}
	return nil
}

// ForgetBaselines calls forget for everything that a program may write.
func ForgetBaselines(h *host.Host, o op.Exec) error {
	files, err := MatchingFiles(h, o)
	if err != nil {
		return err
	}
	return ForgetBaseline(h, slices.Concat(files, o.Replaces, o.Keeps)...)
}

// RememberBaselines saves the results of a successful program. A file that the program
// did not create is not saved.
func RememberBaselines(h *host.Host, o op.Exec) error {
	for _, p := range o.Keeps {
		content, err := atomicfile.ReadFile(h.DiskPath(p), bounded.Config)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		m, err := atomicfile.ReadMeta(h.DiskPath(p))
		if err != nil {
			return err
		}
		k := baseline{Path: p, By: filepath.Base(o.Argv[0]), Content: content, Mode: m.Mode.Perm(), UID: m.UID, GID: m.GID}
		if err := h.WriteRecord(baselinePath(h, p), k); err != nil {
			return err
		}
	}
	return nil
}

func (x *BaselineFileOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if _, will := h.Predicted[o.Path]; will { // it is created again
		return host.CheckResult{}, nil
	}
	k, err := ReadBaseline(h, o.Path)
	if k == nil || err != nil {
		return host.CheckResult{}, err
	}
	v, err := CompareFile(h, op.File{Path: k.Path, Content: k.Content}, k.fileMeta(), "")
	if v.Change == "create" {
		v.Change, v.Diff = "it is missing", "" // the whole content would not be a useful diff
	}
	if v.Change != "" {
		v.Change = fmt.Sprintf("restore %s's version: %s", k.By, v.Change)
	}
	return v, err
}

// Apply restores a file. The ledger does not need an entry for it: nothing existed
// there before the program.
func (x *BaselineFileOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	k, err := ReadBaseline(h, o.Path)
	if k == nil || err != nil {
		return err
	}
	if o.Serves == nil || health.IsServing(ctx, h, *o.Serves) {
		if err := health.AwaitGate(ctx, h, o.Gate); err != nil {
			return err
		}
	}
	write := func(path string, content []byte, m atomicfile.Meta) error { return putFile(h, path, content, m) }
	if h.Ledger.WasAbsent(o.Path) {
		write = func(path string, content []byte, m atomicfile.Meta) error { return replaceFile(h, path, content, m) }
		err = SaveParents(h, o.Path)
	}
	if err == nil {
		err = write(o.Path, k.Content, k.fileMeta())
	}
	if err != nil {
		return err
	}
	return health.AwaitGate(ctx, h, o.Then)
}

// MatchingFiles returns the regular files that match a program's patterns, sorted;
// without any, an empty list.
func MatchingFiles(h *host.Host, o op.Exec) ([]string, error) {
	out := []string{}
	for _, pattern := range slices.Concat(o.Creates, o.Declares) {
		matches, err := filepath.Glob(h.DiskPath(pattern))
		if err != nil {
			return nil, host.Invalid("pattern %q: %v", pattern, err)
		}
		for _, m := range matches {
			if info, err := os.Lstat(m); err == nil && info.Mode().IsRegular() {
				out = append(out, h.HostPath(m))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
