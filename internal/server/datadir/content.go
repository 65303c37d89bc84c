package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"slipway.dev/slipway/internal/server/privatefile"
)

// A contentKind is the kind of content of a directory.
type contentKind int

const (
	// empty has nothing but a lock and empty directories: no server has ever used it.
	empty contentKind = iota
	// foreign has a name that this program does not use.
	foreign
	// incomplete is left by a restore that did not finish.
	incomplete
	// headless has data of a server, but no server.json.
	headless
	// complete has server.json.
	complete
)

// A content describes the content of a directory.
type content struct {
	kind contentKind
	name string // that decided, if the kind is foreign or headless
	// restoring is true if restore.json exists.
	restoring bool
	// hasData is true if there is more than a lock, restore.json and empty directories.
	hasData bool
}

// inspectContent returns the kind of content of a directory, from the names in it. It
// changes nothing.
func inspectContent(dir string) (content, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return content{}, err
	}
	var unknown, data string
	var have content
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == infoFile:
			have.kind = complete
		case name == restoreFile:
			have.restoring = true
		case name == lockFile, name == lostAndFound, isStaged(name):
		case name == holdFile:
			data = name
		case !slices.Contains(required, name) && !slices.Contains(optional, name):
			unknown = name
		default:
			full, err := isFull(filepath.Join(dir, name))
			if err != nil {
				return content{}, err
			}
			if full {
				data = name
			}
		}
	}
	have.hasData = data != "" || have.kind == complete
	switch {
	case have.kind == complete:
	case unknown != "":
		have.kind, have.name = foreign, unknown
	case have.restoring:
		have.kind = incomplete
	case data != "":
		have.kind, have.name = headless, data
	}
	return have, nil
}

// isStaged reports whether a name is the temporary name of a file of this package.
func isStaged(name string) bool {
	return slices.ContainsFunc([]string{infoFile, holdFile, restoreFile}, func(file string) bool {
		return privatefile.StagedPath(file) == name
	})
}

// isFull reports whether a path is anything but an empty directory. A file that is not a
// directory is full: it is never followed or opened.
func isFull(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.IsDir() {
		return true, err
	}
	entries, err := os.ReadDir(path)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != lostAndFound }), err
}
