package yamlfile

import (
	"strconv"
	"strings"
)

// A Position is a place in a file, from 1.
type Position struct{ Line, Column int }

// Positions maps the paths of the fields in a file to their places.
type Positions map[string]Position

// At returns the place of the field at path, or of the nearest parent that is in the
// file.
func (p Positions) At(path string) Position {
	for {
		if at, ok := p[path]; ok || path == "" {
			return at
		}
		path = parentPath(path)
	}
}

// IndexPath returns "path[i]".
func IndexPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// KeyPath returns "path[key]".
func KeyPath(path, key string) string { return path + "[" + key + "]" }

// JoinPath returns "path.name".
func JoinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// IsWithin reports whether the field at path is the field at outer, or a part of it.
func IsWithin(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
}

// parentPath removes the last field, index or [key].
func parentPath(path string) string {
	if strings.HasSuffix(path, "]") {
		if i := strings.LastIndex(path, "["); i >= 0 {
			return path[:i]
		}
	}
	return path[:max(strings.LastIndex(path, "."), 0)]
}

// DocumentedPath returns a path in the form of the documentation, without list indexes:
// "spec.hosts[].name".
func DocumentedPath(path string) string {
	var b strings.Builder
	for path != "" {
		before, rest, ok := strings.Cut(path, "[")
		b.WriteString(before)
		if !ok {
			break
		}
		_, path, _ = strings.Cut(rest, "]")
		b.WriteString("[]")
	}
	return b.String()
}
