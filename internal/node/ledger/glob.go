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

// glob is what matched a pattern before: the data of a KindGlob entry.
type glob struct {
	Existing []exact.Text `json:"existing,omitempty"`
	// OnlyEmpty: of what matches since, empty directories alone are ours.
	OnlyEmpty bool `json:"onlyEmpty,omitempty"`
}

// had reports whether a path matched before. Ledgers have been written in which U+FFFD
// stands for each byte that is not UTF-8: there, any such name was there before.
func (g glob) had(path string) bool {
	if slices.Contains(g.Existing, exact.Text(path)) {
		return true
	}
	return !utf8.ValidString(path) && slices.Contains(g.Existing, exact.Text([]rune(path)))
}

// SaveGlob records what matches a pattern before a program that may make such
// paths is run: the files that are there, and that the others are not.
func (l *Ledger) SaveGlob(pattern string, onlyEmpty bool) error {
	if l.Get(KindGlob, pattern) != nil {
		return nil
	}
	matches, err := l.match(pattern)
	if err != nil {
		return err
	}
	if !onlyEmpty {
		if err := l.saveMatches(pattern, matches); err != nil {
			return err
		}
	}
	return l.Save(KindGlob, pattern, glob{Existing: exact.Texts(matches), OnlyEmpty: onlyEmpty})
}

// SaveContent records what is in a directory of others, so that what comes into it
// goes again. It keeps no files: a program of ours writes over none of them.
func (l *Ledger) SaveContent(dir string) error {
	pattern := escape(dir) + "/*"
	if l.Get(KindGlob, pattern) != nil {
		return nil
	}
	matches, err := l.match(pattern)
	if err != nil {
		return err
	}
	return l.Save(KindGlob, pattern, glob{Existing: exact.Texts(matches)})
}

// escape makes a pattern of a path that matches that path alone.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// saveMatches keeps the files a program may write over, and notes the
// directories it will have to make first.
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

// WroteGlob records that the files matching a pattern are as our program left
// them.
func (l *Ledger) WroteGlob(pattern string) error {
	matches, err := l.match(pattern)
	if err != nil {
		return err
	}
	for _, m := range matches {
		if l.Get(KindPath, m) == nil {
			continue
		}
		state, err := State(l.onDisk(m))
		if err != nil {
			return fmt.Errorf("recording %s in the ledger: %w", m, err)
		}
		if err := l.Intend(m, state); err != nil {
			return err
		}
	}
	return nil
}

// match answers the paths that match, without the root, sorted.
func (l *Ledger) match(pattern string) ([]string, error) {
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

// globbed says that path matches a pattern and was not there before.
func (l *Ledger) globbed(path string) bool {
	for _, e := range l.order {
		if e.Kind != KindGlob {
			continue
		}
		var g glob
		if ok, err := filepath.Match(e.Key, path); err != nil || !ok || e.Decode(&g) != nil || g.OnlyEmpty {
			continue
		}
		if !g.had(path) {
			return true
		}
	}
	return false
}
