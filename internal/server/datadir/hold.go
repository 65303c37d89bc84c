package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"slipway.dev/slipway/internal/server/privatefile"
)

// A Hold keeps the controllers of a server from running, for example after a restore.
type Hold struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// Hold returns the hold, and whether the controllers are on hold. After an error, they must
// not run.
func (d *Dir) Hold() (Hold, bool, error) {
	path := d.Path(holdFile)
	data, err := privatefile.Read(path, privatefile.Secret)
	if errors.Is(err, fs.ErrNotExist) {
		return Hold{}, false, nil
	}
	if err != nil {
		return Hold{}, false, fmt.Errorf("reading the hold: %w", err)
	}
	var h Hold
	if err := json.Unmarshal(data, &h); err != nil {
		return Hold{}, false, fmt.Errorf("reading the hold: %w", damagedError(path, err))
	}
	return h, true, nil
}

// SetHold puts the controllers on hold, also after a restart.
func (d *Dir) SetHold(h Hold) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := writeJSON(d.Path(holdFile), h); err != nil {
		return fmt.Errorf("writing the hold: %w", explainWrite(d.path, err))
	}
	return nil
}

// Release ends the hold, also if its file is damaged.
func (d *Dir) Release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := removeFile(d.Path(holdFile)); err != nil {
		return fmt.Errorf("removing the hold: %w", explainWrite(d.path, err))
	}
	return nil
}
