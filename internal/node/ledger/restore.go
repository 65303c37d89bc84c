//go:build linux

package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
)

// OrigSuffix is the suffix of an original next to a file that other software edited after
// Slipway.
const OrigSuffix = ".slipway-orig"

// An Outcome is the result for one path: one line for people, or nothing.
type Outcome struct {
	Path string
	Did  string // "restored", "removed", "" if there was nothing to do
	// Left is the reason why the path was not restored: "edited since".
	Left string
}

// hadContent is the reason why a directory may differ from its original state.
const hadContent = "it had content before the install; files that this cluster wrote into its directories remain"

// A fate is the action for a path when its entry is restored.
type fate int

const (
	fateNone    fate = iota // it is in its original state
	fateMeta                // its content is original; mode, owner or attributes are not
	fateTree                // the directory that was moved away is moved back
	fateNoDir               // a directory that did not exist
	fateRemove              // Slipway's file or link at a path that did not exist
	fateChmod               // a directory that existed
	fateMkdir               // a directory that Slipway removed
	fatePutBack             // an original file or link that replaces Slipway's
	fateLeave               // other software changed it after Slipway
)

func (l *Ledger) fateOf(e *Entry, w was) (fate, error) {
	p := l.onDisk(e.Key)
	if w.Type == typeTree {
		if pathExists(l.objectPath(w.Object)) {
			return fateTree, nil
		}
		return fateNone, nil // never moved, or already moved back
	}
	now, err := PathState(p)
	if err != nil {
		return fateNone, err
	}
	ours := slices.Contains(e.Wrote, now)
	switch {
	case now == w.stateText() && w.Type == typeFile && len(e.Wrote) > 0:
		m, err := atomicfile.ReadMeta(p)
		if err != nil || sameMeta(m, w.metaOf()) {
			return fateNone, err
		}
		return fateMeta, nil
	case now == w.stateText():
		return fateNone, nil
	case w.Type == Absent && strings.HasPrefix(now, "dir "):
		return fateNoDir, nil
	case w.Type == Absent && ours:
		return fateRemove, nil
	case w.Type == typeDir && ours && strings.HasPrefix(now, "dir "):
		return fateChmod, nil
	case w.Type == typeDir && ours && now == Absent:
		return fateMkdir, nil
	case ours:
		return fatePutBack, nil
	}
	return fateLeave, nil
}

// WouldRestore describes what RestorePath would do with a path, and changes nothing: ""
// means nothing.
func (l *Ledger) WouldRestore(e *Entry) (string, error) {
	var w was
	if err := e.DecodeData(&w); err != nil {
		return "", err
	}
	full, left, err := l.IsFilled(e.Key)
	switch {
	case err != nil:
		return "", err
	case left != "":
		return "leave " + e.Key + " (" + left + ")", nil
	case full:
		return "remove everything in " + e.Key, nil
	}
	f, err := l.fateOf(e, w)
	switch {
	case err != nil || f == fateNone:
		return "", err
	case f == fateNoDir && !e.Exclusive:
		rest, err := atomicfile.ReadDir(l.onDisk(e.Key))
		if err != nil || len(rest) > 0 {
			return "", err // in use by other software, or by something that is removed first
		}
		return "remove " + e.Key, nil
	case f == fateNoDir, f == fateRemove:
		return "remove " + e.Key, nil
	case f == fateLeave:
		return "leave " + e.Key + " (changed by other software since then)", nil
	}
	return "restore " + e.Key, nil
}

// RestorePath restores a path, unless other software changed it after Slipway. It can be
// interrupted and called again.
func (l *Ledger) RestorePath(e *Entry) (Outcome, error) {
	out := Outcome{Path: e.Key}
	var w was
	if err := e.DecodeData(&w); err != nil {
		return out, err
	}
	p := l.onDisk(e.Key)
	if err := os.Remove(atomicfile.TempPath(p)); err != nil && !isGone(err) {
		return out, err
	}
	out, err := l.clearContent(out, w)
	if err != nil || out.Left != "" {
		return out, err
	}
	f, err := l.fateOf(e, w)
	if err == nil && e.Exclusive && w.Type == typeDir && w.EmptyOn == "" && pathExists(p) {
		out.Left = hadContent
	}
	if err != nil || f == fateNone {
		return out, err
	}
	out.Did = "restored"
	switch f {
	case fateTree:
		return l.restoreTree(out, w)
	case fateNoDir:
		return l.restoreNoDir(out, e.Exclusive)
	case fateRemove:
		out.Did = "removed"
		return out, l.disk.RemovePath(p)
	case fateMeta, fateChmod:
		return out, atomicfile.SetMeta(p, w.metaOf())
	case fateMkdir:
		return out, l.disk.MakeDir(p, w.metaOf())
	case fatePutBack:
		return out, l.putBack(p, w)
	}
	out.Did, out.Left = "", "changed by other software since then"
	if w.Type != typeFile && w.Type != typeLink || !pathExists(p) && !pathExists(filepath.Dir(p)) {
		return out, nil
	}
	out.Left += "; the original is next to it as " + filepath.Base(p) + OrigSuffix
	return out, l.putBack(p+OrigSuffix, w)
}

// putBack writes the original file or link.
func (l *Ledger) putBack(p string, w was) error {
	if err := l.disk.MkdirAll(filepath.Dir(p), atomicfile.Meta{Mode: 0o755}); err != nil {
		return err
	}
	if w.Type == typeLink {
		return l.disk.ReplaceLink(p, string(w.To), w.metaOf())
	}
	if err := l.verifyContent(p, w); err != nil {
		return err
	}
	src, err := os.Open(l.objectPath(w.Object))
	if err != nil {
		return err
	}
	defer src.Close()
	return l.disk.ReplaceFile(p, src, w.metaOf())
}

func sameMeta(a, b atomicfile.Meta) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.MTime.Equal(b.MTime) && sameAttrs(a, b)
}

func sameAttrs(a, b atomicfile.Meta) bool {
	if len(a.XAttrs) != len(b.XAttrs) {
		return false
	}
	for k, v := range a.XAttrs {
		if !bytes.Equal(v, b.XAttrs[k]) {
			return false
		}
	}
	return true
}

// restoreNoDir removes a directory that did not exist before.
func (l *Ledger) restoreNoDir(out Outcome, exclusive bool) (Outcome, error) {
	p := l.onDisk(out.Path)
	out.Did = "removed"
	if exclusive {
		return l.removeTree(out)
	}
	err := l.disk.RemovePath(p)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) {
		out.Did, out.Left = "", "not empty"
		return out, nil
	}
	return out, err
}

// removeTree removes everything below a path, except mounts.
func (l *Ledger) removeTree(out Outcome) (Outcome, error) {
	p := l.onDisk(out.Path)
	mounted, err := MountedBelow(p)
	if err != nil {
		return out, err
	}
	if len(mounted) > 0 {
		out.Did, out.Left = "", "still mounted: "+strings.Join(mounted, ", ")
		return out, nil
	}
	return out, l.disk.RemoveAll(p)
}

// RemoveAbsent removes a path with its content if it did not exist according to the
// ledger.
func (l *Ledger) RemoveAbsent(path string) (Outcome, error) {
	out := Outcome{Path: path}
	if !pathExists(l.onDisk(path)) {
		return out, nil
	}
	if !l.WasAbsent(path) {
		out.Left = "it existed before"
		return out, nil
	}
	out.Did = "removed"
	return l.removeTree(out)
}

func (l *Ledger) restoreTree(out Outcome, w was) (Outcome, error) {
	p, object := l.onDisk(out.Path), l.objectPath(w.Object)
	if pathExists(p) {
		if err := l.disk.RemovePath(p); err != nil {
			out.Did, out.Left = "", "changed by other software since then; the original is next to it as "+filepath.Base(p)+OrigSuffix
			p += OrigSuffix
		}
	}
	if err := l.disk.MkdirAll(filepath.Dir(p), atomicfile.Meta{Mode: 0o755}); err != nil {
		return out, err
	}
	return out, l.disk.MovePath(object, p)
}

// RestoreGlob removes the new matches of a pattern.
func (l *Ledger) RestoreGlob(e *Entry) ([]Outcome, error) {
	var g glob
	if err := e.DecodeData(&g); err != nil {
		return nil, err
	}
	matches, err := l.matchPaths(e.Key)
	if err != nil {
		return nil, err
	}
	var outs []Outcome
	for _, m := range matches {
		if g.hadMatch(m) {
			continue
		}
		out, err := l.restoreMatch(m, g.OnlyEmpty)
		if err != nil {
			return outs, fmt.Errorf("removing %s: %w", m, err)
		}
		outs = append(outs, out)
	}
	return outs, nil
}

func (l *Ledger) restoreMatch(path string, onlyEmpty bool) (Outcome, error) {
	if !onlyEmpty {
		return l.removeTree(Outcome{Path: path, Did: "removed"})
	}
	out, err := l.restoreNoDir(Outcome{Path: path}, false)
	out.Left = "" // now a directory of other software
	return out, err
}

// MountedBelow returns the mount points at or below a path.
func MountedBelow(path string) ([]string, error) {
	raw, err := bounded.ReadFile("/proc/self/mountinfo", bounded.Proc)
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		if isGone(err) {
			return nil, nil
		}
		return nil, err
	}
	var out []string
	for _, m := range MountPoints(raw) {
		if m == real || strings.HasPrefix(m, strings.TrimSuffix(real, "/")+"/") {
			out = append(out, m)
		}
	}
	return out, nil
}

// MountPoints parses /proc/<pid>/mountinfo: the mount points in its order.
func MountPoints(mountinfo []byte) []string {
	var out []string
	for text := range strings.Lines(string(mountinfo)) {
		if f := strings.Fields(text); len(f) >= 5 {
			out = append(out, unescapeOctal(f[4]))
		}
	}
	return out
}

// unescapeOctal decodes the kernel's octal escapes of spaces and backslashes.
func unescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && isOctal(s[i+1]) && isOctal(s[i+2]) && isOctal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }

func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}
