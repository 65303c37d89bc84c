package filesfrom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Changes has the sorted names of files that differ between two resolutions.
type Changes struct {
	Added, Removed, Changed []string
}

// Compare returns the changes from one resolution to the next one. The names are keys of
// Secrets: show them only to users that may read the Secrets, or write them to a log.
func Compare(before, after Files) Changes {
	var c Changes
	for _, name := range slices.Sorted(maps.Keys(after)) {
		old, ok := before[name]
		switch {
		case !ok:
			c.Added = append(c.Added, name)
		case !old.Equal(after[name]):
			c.Changed = append(c.Changed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; !ok {
			c.Removed = append(c.Removed, name)
		}
	}
	return c
}

// IsEmpty reports whether no file differs.
func (c Changes) IsEmpty() bool { return len(c.Added)+len(c.Removed)+len(c.Changed) == 0 }

// maxShown limits the names of one kind of change in a text.
const maxShown = 5

// String returns the changes for a message: "added a.sh, b.sh; changed id_ed25519".
func (c Changes) String() string {
	var parts []string
	for _, p := range []struct {
		verb  string
		names []string
	}{{"added", c.Added}, {"removed", c.Removed}, {"changed", c.Changed}} {
		if len(p.names) == 0 {
			continue
		}
		text := p.verb + " " + strings.Join(p.names[:min(len(p.names), maxShown)], ", ")
		if more := len(p.names) - maxShown; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "no changes"
	}
	return strings.Join(parts, "; ")
}
