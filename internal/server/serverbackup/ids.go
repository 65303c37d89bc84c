package serverbackup

import (
	"errors"
	"fmt"
	"syscall"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
)

// The diagnostics of this package; see docs/guide/errors.md.
const (
	idKeyMissing  = "server-backup-key-missing"
	idKeyDamaged  = "server-backup-key-damaged"
	idUnverified  = "server-backup-unverified"
	idKeysOnly    = "server-backup-keys-only"
	idNewer       = "server-backup-newer"
	idNoRoom      = "server-backup-no-room"
	idRunning     = "server-backup-running"
	idIncomplete  = "server-backup-incomplete"
	idNoTarget    = "server-backup-target-unknown"
	idChangedKeys = "server-backup-keys-changed"
	idBadRequest  = "server-backup-request"
	idBadFile     = "server-backup-file"
	// These ids are the same as for cluster files.
	idInvalidValue    = "invalid-value"
	idInvalidDuration = "invalid-duration"
)

// explainSet replaces the error of a set by a diagnostic with the name of its file.
func explainSet(file string, err error) error {
	var bad *backup.Error
	if !errors.As(err, &bad) {
		return explainRoom(err)
	}
	hint := map[backup.Reason]string{
		backup.Damaged:   "use another set",
		backup.Encrypted: "name the file with the private key of a recipient: --identity FILE",
		backup.Unknown:   "name a file that 'slipwayd backup' has written",
		backup.Exists:    "name another file",
	}[bad.Reason]
	return diag.Refuse(string(bad.Reason), file+": "+bad.Message, hint)
}

// explainRoom replaces an error of a full disk by a diagnostic.
func explainRoom(err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return diag.Refuse(idNoRoom, "the disk is full: "+err.Error(), "free space on that disk, or use a directory on another disk")
}

// idOf returns the id of the first diagnostic of an error, "" if there is none.
func idOf(err error) string {
	var list diag.List
	if errors.As(err, &list) && len(list) > 0 {
		return list[0].ID
	}
	return ""
}

func refuseFile(name, format string, args ...any) error {
	return diag.Refuse(idBadFile, name+" "+fmt.Sprintf(format, args...), "move the file out of the data directory")
}
