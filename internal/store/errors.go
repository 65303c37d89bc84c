package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/fileowner"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idDamaged    = "record-damaged"
	idUnwritable = "records-unwritable"
	idForeign    = "records-foreign"
)

// foreignFileError returns the error for a file or directory in the state directory that root does
// not use on behalf of another user.
func foreignFileError(err *fileowner.ForeignError) error {
	return diag.List{{
		ID: idForeign, Severity: diag.Error, Message: err.Error(),
		Hint: "replace it with a file or directory that your user owns, or set SLIPWAY_HOME to another directory",
	}}
}

// damagedFileError returns the error for a file in the state directory that cannot be read. Its
// content is not guessed.
func damagedFileError(path string, err error) error {
	if errors.As(err, new(diag.List)) {
		return err // the content is not the problem
	}
	d := diag.Diagnostic{
		ID: idDamaged, Severity: diag.Error, Message: fmt.Sprintf("%s is damaged: %v", path, err),
		Hint: "restore the file from a backup, or move it away: only its content is lost then",
	}
	var errno syscall.Errno
	if errors.As(err, &errno) { // the message already has the path
		d.Message = fmt.Sprintf("%s cannot be read: %v", path, errno)
	}
	if errors.Is(err, fs.ErrPermission) {
		d.Hint = "give this user read permission, or run the command as the owner of the file"
	}
	return diag.List{d}
}

// addWriteHint adds a hint to errors for which nothing can be written. It returns any other
// error unchanged.
func addWriteHint(path string, err error) error {
	var remedy string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		remedy = "free disk space for the state directory, then run the command again"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		remedy = "give this user write permission there, or set SLIPWAY_HOME to another directory"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		remedy = "set SLIPWAY_HOME to another directory: no directory can be created at this path"
	default:
		return err
	}
	var errno syscall.Errno
	if errors.As(err, &errno) { // the message already has the path
		err = errno
	}
	return diag.List{{ID: idUnwritable, Severity: diag.Error, Message: fmt.Sprintf("writing %s: %v", path, err), Hint: remedy}}
}
