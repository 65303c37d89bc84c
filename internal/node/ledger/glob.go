//go:build linux

package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"slipway.dev/slipway/internal/exact"
)

// glob lists the earlier matches of a pattern: the data of a KindGlob entry.
type glob struct {
	Existing []exact.Text `json:"existing,omitempty"`
	// OnlyEmpty: of new matches, only empty directories belong to Slipway.
	OnlyEmpty bool `json:"onlyEmpty,omitempty"`
}

// hadMatch reports whether a path matched before. Old ledgers have U+FFFD for each byte that
// is not UTF-8: there, any such name matched before.
func (g glob) hadMatch(path string) bool {
	if slices.Contains(g.Existing, exact.Text(path)) {
		return true
	}
	return !utf8.ValidString(path) && slices.Contains(g.Existing, exact.Text([]rune(path)))
}

// SaveGlob records the matches of a pattern before a program that may create such paths
// runs: the existing files, and that the others do not exist.
func (l *Ledger) SaveGlob(pattern string, onlyEmpty bool) error {
	if l.FindEntry(KindGlob, pattern) != nil {
		return nil
	}
	matches, err := l.matchPaths(pattern)
	if err != nil {
		return err
	}
	if !onlyEmpty {
		if err := l.saveMatches(pattern, matches); err != nil {
			return err
		}
	}
	return l.SaveEntry(KindGlob, pattern, glob{Existing: exact.ToTexts(matches), OnlyEmpty: onlyEmpty})
}

// SaveContent records the content of a directory of other software, so that new content
// is removed later. It saves no files, because Slipway's programs overwrite none of them.
func (l *Ledger) SaveContent(dir string) error {
	pattern := escapePattern(dir) + "/*"
	if l.FindEntry(KindGlob, pattern) != nil {
		return nil
	}
	matches, err := l.matchPaths(pattern)
	if err != nil {
		return err
	}
	return l.SaveEntry(KindGlob, pattern, glob{Existing: exact.ToTexts(matches)})
}

// escapePattern returns a pattern that matches only this path.
func escapePattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// saveMatches saves the files that a program may overwrite, and records the directories
// that it must create first.
func (l *Ledger) saveMatches(pattern string, matches []string) error {
	fixed := pattern
	for strings.ContainsAny(fixed, `*?[\`) {
		fixed = filepath.Dir(fixed)
	}
	if err := l.SaveParents(filepath.Join(fixed, "x")); err != nil {
		return err
	}
	for _, m := range matches {
		info, err := os.Lstat(l.onDisk(m))
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := l.SavePath(m); err != nil {
			return err
		}
	}
	return nil
}

// WroteGlob records that the files that match a pattern are in the state in which
// Slipway's program left them.
func (l *Ledger) WroteGlob(pattern string) error {
	matches, err := l.matchPaths(pattern)
	if err != nil {
		return err
	}
	for _, m := range matches {
		if l.FindEntry(KindPath, m) == nil {
			continue
		}
		state, err := PathState(l.onDisk(m))
		if err != nil {
			return fmt.Errorf("recording %s in the ledger: %w", m, err)
		}
		if err := l.RecordIntent(m, state); err != nil {
			return err
		}
	}
	return nil
}

// matchPaths returns the matching paths, without the root, sorted.
func (l *Ledger) matchPaths(pattern string) ([]string, error) {
	found, err := filepath.Glob(l.onDisk(pattern))
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	prefix := strings.TrimSuffix(filepath.Clean(l.root), "/")
	for i, f := range found {
		found[i] = strings.TrimPrefix(f, prefix)
	}
	slices.Sort(found)
	return found, nil
}

// isGlobbed reports whether path matches a pattern and did not exist before.
func (l *Ledger) isGlobbed(path string) bool {
	for _, e := range l.order {
		if e.Kind != KindGlob {
			continue
		}
		var g glob
		if ok, err := filepath.Match(e.Key, path); err != nil || !ok || e.DecodeData(&g) != nil || g.OnlyEmpty {
			continue
		}
		if !g.hadMatch(path) {
			return true
		}
	}
	return false
}
