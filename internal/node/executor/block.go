//go:build linux

package executor

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
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// blockOp executes op.Block.
type blockOp struct{ o op.Block }

func (x *blockOp) Check(_ context.Context, s *session) (verdict, error) {
	v, err := s.checkBlock(x.o)
	if v.change != "" {
		v.wrote = map[string]string{x.o.Path: ""} // other blocks of the file can change, too
	}
	return v, err
}

func (x *blockOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	return s.applyBlock(ctx, x.o)
}

func (x *blockOp) Paths() []string {
	return []string{x.o.Path}
}

func (x *blockOp) LedgerEntries() ([]subject, bool) {
	return []subject{{ledger.KindBlock, x.o.Target()}, {ledger.KindPath, x.o.Path}}, true
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
		return nil, invalid("the block %q has no end marker (%q)", name, end)
	}
	if !found && len(block) > 0 && len(before) > 0 && before[len(before)-1] != '\n' {
		before = append(before, '\n')
	}
	return append(append(before, block...), after...), nil
}

// behind returns the path on disk of a file of the host, after links are followed. It may
// not exist.
func (s *session) behind(path string) (string, error) {
	p := s.path(path)
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
		return invalid("%q is not a valid block name", o.Name)
	}
	for _, l := range o.Lines {
		mark := strings.HasPrefix(l, "# BEGIN slipway ") || strings.HasPrefix(l, "# END slipway ")
		if strings.ContainsAny(l, "\r\n\x00") || mark {
			return invalid("the line %q is not allowed in a block", l)
		}
	}
	return nil
}

func (s *session) checkBlock(o op.Block) (verdict, error) {
	if err := checkLines(o); err != nil {
		return verdict{}, err
	}
	old, err := s.read(o.Path)
	if err != nil {
		return verdict{}, err
	}
	text, err := setBlock(old, o.Name, o.Lines)
	if err != nil || bytes.Equal(old, text) {
		return verdict{}, err
	}
	v := verdict{change: "write the block", diff: unified(o.Path, o.Path, old, text)}
	if len(o.Lines) == 0 {
		v.change = "remove the block"
	}
	v.wrote = map[string]string{o.Path: ledger.FileState(digest(text))}
	return v, nil
}

func (s *session) applyBlock(ctx context.Context, o op.Block) error {
	if err := checkLines(o); err != nil {
		return err
	}
	if err := s.pass(ctx, o.Gate); err != nil {
		return err
	}
	was, err := s.foreign(o.Path)
	if err != nil {
		return err
	}
	if err := s.ledger.SaveParents(o.Path); err != nil {
		return err
	}
	if err := s.ledger.Save(ledger.KindBlock, o.Target(), was); err != nil {
		return err
	}
	old, err := s.read(o.Path)
	if err != nil {
		return err
	}
	text, err := setBlock(old, o.Name, o.Lines)
	if err != nil {
		return err
	}
	if err := s.disk.MkdirAll(filepath.Dir(s.path(o.Path)), atomicfile.Meta{Mode: 0o755}); err != nil {
		return err
	}
	return s.rewrite(o.Path, text)
}

func (s *session) restoreBlock(e *ledger.Entry) error {
	var was foreign
	if err := e.Decode(&was); err != nil {
		return err
	}
	now, err := s.read(was.Path)
	if err != nil {
		return err
	}
	kept, err := setBlock(now, strings.TrimPrefix(e.Key, was.Path+"#"), nil)
	if err != nil {
		return err
	}
	return s.restoreForeign(was, now, kept)
}
