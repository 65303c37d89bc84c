package archive

import (
	"context"
	"errors"
	"fmt"

	"slipway.dev/slipway/internal/diag"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idUnavailable = "archive-unavailable"
	idDamaged     = "archive-damaged"
)

// errSlow is the error for an archive that does not respond before the deadline of a call.
var errSlow = errors.New("it did not respond in time")

// unavailableError returns the error for files that cannot be listed, read or written.
func unavailableError(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return UnavailableError(errSlow)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case IsUnavailable(err):
		return err
	}
	return UnavailableError(err)
}

// UnavailableError returns the error for an archive that is full or cannot be reached.
func UnavailableError(err error) error {
	return diag.Refuse(idUnavailable, "the archive of operations cannot be used: "+err.Error(),
		"make the archive reachable and writable, and give it enough space")
}

// damagedError returns the error for a file whose content is not correct. Its content is not guessed.
func damagedError(name string, err error) error {
	return diag.Refuse(idDamaged, fmt.Sprintf("file %s of the archive of operations is damaged: %v", name, err),
		"restore the file from a copy of the archive")
}

// isDamaged reports whether an error is of damagedError.
func isDamaged(err error) bool {
	var list diag.List
	return errors.As(err, &list) && list[0].ID == idDamaged
}

// IsUnavailable reports whether an archive is full or cannot be reached.
func IsUnavailable(err error) bool {
	var list diag.List
	return errors.As(err, &list) && list[0].ID == idUnavailable
}
