package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/owner"
)

// Identifiers of what is refused here, each with an entry in
// docs/guide/errors.md; they never change.
const (
	idDamaged    = "record-damaged"
	idUnwritable = "records-unwritable"
	idForeign    = "records-foreign"
)

// foreign is a file or directory among the records that root does not use for
// another user.
func foreign(err *owner.ForeignError) error {
	return diag.List{{
		ID: idForeign, Severity: diag.Error, Message: err.Error(),
		Hint: "move it away, and put a file or directory of the user there; or name another directory with SLIPWAY_HOME",
	}}
}

// damaged is a record that is there and cannot be read. What it said is not
// guessed.
func damaged(path string, err error) error {
	if errors.As(err, new(diag.List)) {
		return err // it is not the content
	}
	d := diag.Diagnostic{
		ID: idDamaged, Severity: diag.Error, Message: fmt.Sprintf("%s is damaged: %v", path, err),
		Hint: "put it back from a backup, or move it away: what it recorded is then unknown, and nothing else is lost",
	}
	var errno syscall.Errno
	if errors.As(err, &errno) { // the path has been said
		d.Message = fmt.Sprintf("%s cannot be read: %v", path, errno)
	}
	if errors.Is(err, fs.ErrPermission) {
		d.Hint = "let this user read it, or be the one whom it belongs to"
	}
	return diag.List{d}
}

// unwritable gives the reasons for which nothing can be written a remedy. Any
// other error is answered as it is.
func unwritable(path string, err error) error {
	var remedy string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		remedy = "make room on the disk of the records, and go on with what was begun"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		remedy = "let this user write there, or name another directory with SLIPWAY_HOME"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		remedy = "no directory can be made there: name another one with SLIPWAY_HOME"
	default:
		return err
	}
	var errno syscall.Errno
	if errors.As(err, &errno) { // the path has been said
		err = errno
	}
	return diag.List{{ID: idUnwritable, Severity: diag.Error, Message: fmt.Sprintf("writing %s: %v", path, err), Hint: remedy}}
}
