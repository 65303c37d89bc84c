//go:build linux

package ledger

import (
	"encoding/json"
	"errors"
	"fmt"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// lostError reports a ledger that can no longer be trusted.
func lostError(format string, args ...any) error {
	return &op.Error{
		Reason:  op.IDLedgerLost,
		Message: fmt.Sprintf(format, args...) + ": Slipway no longer knows what it changed on this host, and changes nothing",
	}
}

func emptyOr(missing error) string {
	if missing != nil {
		return "missing"
	}
	return "empty"
}

// parseLine parses a line of the log. Entry numbers must be consecutive, and later lines must
// refer to an existing entry.
func (l *Ledger) parseLine(text []byte) error {
	var ln line
	if err := json.Unmarshal(text, &ln); err != nil {
		return err
	}
	known := true
	switch {
	case ln.Entry != nil:
		if ln.Entry.Seq != l.nextNumber() {
			return fmt.Errorf("it has entry %d instead of entry %d", ln.Entry.Seq, l.nextNumber())
		}
	case ln.Wrote != nil:
		known = l.FindEntry(KindPath, string(ln.Wrote.Path)) != nil
	case ln.Ended != nil:
		known = l.FindEntry(ln.Ended.Kind, string(ln.Ended.Key)) != nil
	default:
		return errors.New("it has a line of an unknown kind")
	}
	if !known {
		return errors.New("it refers to an entry that does not exist")
	}
	l.applyLine(ln)
	return nil
}

// verifyContent returns an error if the saved content of a file has changed.
func (l *Ledger) verifyContent(path string, w was) error {
	object := l.objectPath(w.Object)
	if !pathExists(object) {
		return lostError("%s, the original of %s in the ledger, is missing", object, path)
	}
	sum, err := atomicfile.SHA256(object)
	if err == nil && sum != w.SHA256 {
		return lostError("%s, the original of %s in the ledger, is damaged", object, path)
	}
	return err
}
