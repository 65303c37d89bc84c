//go:build linux

package hostfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// BlockOp executes op.Block.
type BlockOp struct{ Op op.Block }

func (x *BlockOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	v, err := CheckBlock(h, x.Op)
	if v.Change != "" {
		v.Wrote = map[string]string{x.Op.Path: ""} // other blocks of the file can change, too
	}
	return v, err
}

func (x *BlockOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	return ApplyBlock(ctx, h, x.Op)
}

func (x *BlockOp) Paths() []string {
	return []string{x.Op.Path}
}

func (x *BlockOp) LedgerEntries() ([]host.Subject, bool) {
	return []host.Subject{{Kind: ledger.KindBlock, Key: x.Op.Target()}, {Kind: ledger.KindPath, Key: x.Op.Path}}, true
}

// setBlock writes the named block with lines into text, at its place or at the end;
// without lines it removes the block. All other bytes are kept, except that the last line
// gets a line break before a block that follows it.
func setBlock(text []byte, name string, lines []string) ([]byte, error) {
	begin, end := "# BEGIN slipway "+name, "# END slipway "+name
	var block []byte
	if len(lines) > 0 {
		block = []byte(begin + "\n" + strings.Join(lines, "\n") + "\n" + end + "\n")
	}
	var before, after []byte
	found, inside := false, false
	for line := range bytes.Lines(text) {
		mark := strings.TrimRight(string(line), "\r\n")
		switch {
		case !found && mark == begin:
			found, inside = true, true
		case inside && mark == end:
			inside = false
		case inside:
		case found:
			after = append(after, line...)
		default:
			before = append(before, line...)
		}
	}
	if inside {
		return nil, host.Invalid("the block %q has no end marker (%q)", name, end)
	}
	if !found && len(block) > 0 && len(before) > 0 && before[len(before)-1] != '\n' {
		before = append(before, '\n')
	}
	return append(append(before, block...), after...), nil
}

// resolveLink returns the path on disk of a file of the host, after links are followed.
// It may not exist.
func resolveLink(h *host.Host, path string) (string, error) {
	p := h.DiskPath(path)
	info, err := os.Lstat(p)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return p, err
	}
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", path, err)
	}
	return real, nil
}

func checkLines(o op.Block) error {
	if o.Name == "" || strings.ContainsAny(o.Name, "\r\n") {
		return host.Invalid("%q is not a valid block name", o.Name)
	}
	for _, l := range o.Lines {
		mark := strings.HasPrefix(l, "# BEGIN slipway ") || strings.HasPrefix(l, "# END slipway ")
		if strings.ContainsAny(l, "\r\n\x00") || mark {
			return host.Invalid("the line %q is not allowed in a block", l)
		}
	}
	return nil
}

// CheckBlock compares a block with its file.
func CheckBlock(h *host.Host, o op.Block) (host.CheckResult, error) {
	if err := checkLines(o); err != nil {
		return host.CheckResult{}, err
	}
	old, err := h.ReadFile(o.Path)
	if err != nil {
		return host.CheckResult{}, err
	}
	text, err := setBlock(old, o.Name, o.Lines)
	if err != nil || bytes.Equal(old, text) {
		return host.CheckResult{}, err
	}
	v := host.CheckResult{Change: "write the block", Diff: UnifiedDiff(o.Path, o.Path, old, text)}
	if len(o.Lines) == 0 {
		v.Change = "remove the block"
	}
	v.Wrote = map[string]string{o.Path: ledger.FileState(host.Digest(text))}
	return v, nil
}

// ApplyBlock writes a block into its file.
func ApplyBlock(ctx context.Context, h *host.Host, o op.Block) error {
	if err := checkLines(o); err != nil {
		return err
	}
	if err := health.AwaitGate(ctx, h, o.Gate); err != nil {
		return err
	}
	was, err := ReadSharedFile(h, o.Path)
	if err != nil {
		return err
	}
	if err := h.Ledger.SaveParents(o.Path); err != nil {
		return err
	}
	if err := h.Ledger.SaveEntry(ledger.KindBlock, o.Target(), was); err != nil {
		return err
	}
	old, err := h.ReadFile(o.Path)
	if err != nil {
		return err
	}
	text, err := setBlock(old, o.Name, o.Lines)
	if err != nil {
		return err
	}
	if err := h.Disk.MkdirAll(filepath.Dir(h.DiskPath(o.Path)), atomicfile.Meta{Mode: 0o755}); err != nil {
		return err
	}
	return RewriteSharedFile(h, o.Path, text)
}

// RestoreBlock removes a block from its file.
func RestoreBlock(h *host.Host, e *ledger.Entry) error {
	var was SharedFile
	if err := e.DecodeData(&was); err != nil {
		return err
	}
	now, err := h.ReadFile(was.Path)
	if err != nil {
		return err
	}
	kept, err := setBlock(now, strings.TrimPrefix(e.Key, was.Path+"#"), nil)
	if err != nil {
		return err
	}
	return RestoreSharedFile(h, was, now, kept)
}
