package datadir

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"time"

	"slipway.dev/slipway/internal/server/privatefile"
	"slipway.dev/slipway/internal/version"
)

// Format is the format of data directories that this program writes. It also reads all
// earlier formats.
const Format = 1

// An Info describes a data directory.
type Info struct {
	Format   int       `json:"format"`
	ServerID string    `json:"id"`
	Created  time.Time `json:"created"`
	Program  string    `json:"program"` // version of the program that created the directory
	// Started reports whether the server has been ready once, or the directory was
	// restored. Until then, missing keys are created.
	Started bool `json:"started,omitempty"`
	// Kubernetes is the newest version of the API server that has used the directory.
	Kubernetes string `json:"kubernetes,omitempty"`
}

// idPattern matches a UUID.
var idPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// newInfo returns the description of a new server.
func newInfo() Info {
	return Info{Format: Format, ServerID: newID(), Created: time.Now().UTC().Truncate(time.Second), Program: version.Get().Version}
}

// newID returns a random UUID (version 4).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// ReadInfo returns the description of a data directory. It does not take the lock: the
// server may be running.
func ReadInfo(path string) (Info, error) {
	info, err := findInfo(path)
	if err != nil {
		return Info{}, fmt.Errorf("reading the data directory: %w", err)
	}
	return info, nil
}

func findInfo(path string) (Info, error) {
	path, have, err := checkExisting(path)
	if err != nil {
		return Info{}, err
	}
	switch have.kind {
	case empty:
		return Info{}, missingError(path, "is empty")
	case incomplete:
		return Info{}, incompleteError(path)
	case headless:
		return Info{}, headlessError(path, have.name)
	}
	return readInfo(path)
}

// checkExisting is checkPlace for a directory that must exist. It also returns the content
// of the directory, which is not foreign.
func checkExisting(path string) (string, content, error) {
	path, err := checkPlace(path)
	if err != nil {
		return "", content{}, err
	}
	if err := checkDir(path); errors.Is(err, fs.ErrNotExist) {
		return "", content{}, missingError(path, "does not exist")
	} else if err != nil {
		return "", content{}, err
	}
	have, err := inspectContent(path)
	if err != nil {
		return "", content{}, err
	}
	if have.kind == foreign {
		return "", content{}, foreignError(path, have.name)
	}
	if have.kind != empty { // Open corrects the mode of an empty directory
		err = checkMode(path)
	}
	return path, have, err
}

// readInfo reads server.json.
func readInfo(dir string) (Info, error) {
	path := filepath.Join(dir, infoFile)
	data, err := privatefile.Read(path, privatefile.Secret)
	if err != nil {
		return Info{}, err
	}
	// Later formats can have other fields: the format decides first.
	var format struct {
		Format  int    `json:"format"`
		Program string `json:"program"`
	}
	if err := json.Unmarshal(data, &format); err != nil {
		return Info{}, damagedError(path, err)
	}
	if format.Format > Format {
		return Info{}, newerError(dir, format.Format, format.Program)
	}
	var info Info
	if err := json.Unmarshal(data, &info); err != nil {
		return Info{}, damagedError(path, err)
	}
	if err := info.validate(); err != nil {
		return Info{}, damagedError(path, err)
	}
	return info, nil
}

// validate returns an error for a description that this program did not write.
func (i Info) validate() error {
	switch {
	case i.Format < 1:
		return fmt.Errorf("invalid format %d", i.Format)
	case !idPattern.MatchString(i.ServerID):
		return fmt.Errorf("invalid id %q", i.ServerID)
	case i.Created.IsZero():
		return errors.New("the time of creation is missing")
	}
	return nil
}

// writeInfo writes server.json: the directory is complete.
func (d *Dir) writeInfo() error {
	if err := writeJSON(d.Path(infoFile), d.info); err != nil {
		return explainWrite(d.path, err)
	}
	return d.maker.finishStep(infoFile)
}

// writeJSON replaces a file atomically and durably.
func writeJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return privatefile.Writer{}.Replace(path, append(data, '\n'))
}
