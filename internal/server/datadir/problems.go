package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"slipway.dev/slipway/internal/diag"
)

// Message ids of data directories; see docs/guide/errors.md. They never change.
const (
	idMissing     = "data-dir-missing"
	idForeign     = "data-dir-foreign"
	idNewer       = "data-dir-newer"
	idDamaged     = "data-dir-damaged"
	idInUse       = "data-dir-in-use"
	idUnsafe      = "data-dir-unsafe"
	idPathTooLong = "data-dir-path-too-long"
	idIncomplete  = "data-dir-incomplete"
	idExists      = "data-dir-exists"
	idFull        = "data-dir-full"
	idUnwritable  = "data-dir-unwritable"
	idMounted     = "data-dir-mounted"
)

func missingError(dir, problem string) error {
	return diag.Refuse(idMissing, fmt.Sprintf("data directory %s %s", dir, problem),
		"name the data directory of a server that has run on this machine")
}

func foreignError(dir, name string) error {
	return diag.Refuse(idForeign, fmt.Sprintf("%s is not a data directory: it has %s, and no %s", dir, name, infoFile),
		"name another directory, which is empty or does not exist")
}

func newerError(dir string, format int, program string) error {
	hint := "install a later version of slipwayd"
	if program != "" {
		hint = fmt.Sprintf("install slipwayd %s or later", program)
	}
	return diag.Refuse(idNewer,
		fmt.Sprintf("data directory %s has format %d, but this program supports only formats up to %d", dir, format, Format), hint)
}

func damagedError(path string, err error) error {
	return diag.Refuse(idDamaged, fmt.Sprintf("%s is damaged: %v", path, err),
		fmt.Sprintf("restore a backup: slipwayd restore --replace --data-dir %s", filepath.Dir(path)))
}

// headlessError is the error for a directory with data but without server.json.
func headlessError(dir, name string) error {
	return damagedError(filepath.Join(dir, infoFile), fmt.Errorf("it is missing, but %s has data", filepath.Join(dir, name)))
}

// memberMissingError is the error for a missing directory whose loss is a loss of data.
func memberMissingError(dir, name string) error {
	return diag.Refuse(idDamaged, fmt.Sprintf("data directory %s: the directory %s is missing", dir, name),
		fmt.Sprintf("mount the disk with %s, or restore a backup with 'slipwayd restore --replace'", filepath.Join(dir, name)))
}

func inUseError(dir string, h Holder) error {
	return diag.Refuse(idInUse, fmt.Sprintf("data directory %s is in use by %s", dir, h),
		"stop the server, or name another data directory")
}

// incompleteError is the error for a directory that a restore has not completed.
func incompleteError(dir string) error {
	r := readRestore(dir)
	message := fmt.Sprintf("data directory %s is incomplete: a restore has not finished", dir)
	if !r.Started.IsZero() {
		message += ", which began at " + r.Started.Format(time.RFC3339)
	}
	hint := fmt.Sprintf("remove %s, and restore the backup again", dir)
	if r.Previous != "" {
		hint = fmt.Sprintf("remove %s, then rename %s to it or restore the backup again", dir, r.Previous)
	}
	return diag.Refuse(idIncomplete, message, hint)
}

func existsError(dir string) error {
	return diag.Refuse(idExists, fmt.Sprintf("data directory %s already has the data of a server", dir),
		"use --replace, which keeps the existing directory under another name")
}

// explainWrite returns a diagnostic for errors for which nothing can be written in a data
// directory. It returns any other error unchanged.
func explainWrite(dir string, err error) error {
	var id, hint string
	switch {
	case errors.As(err, new(diag.List)):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		id, hint = idFull, "free disk space there"
	case errors.Is(err, syscall.EROFS):
		id, hint = idUnwritable, "mount its file system for writing, or name another directory"
	case errors.Is(err, fs.ErrPermission):
		id, hint = idUnwritable, hintUser(ownerOf(dir))+", or name another directory"
	default:
		return err
	}
	return diag.Refuse(id, fmt.Sprintf("data directory %s: %v", dir, err), hint)
}

// hintUser returns the hint to run a command as another user, the owner of a directory.
func hintUser(uid int) string {
	id := strconv.Itoa(uid)
	switch u, err := user.LookupId(id); {
	case uid == os.Geteuid():
		return "correct the permissions of the directory"
	case uid == 0:
		return "run the command as root"
	case err != nil:
		return fmt.Sprintf("run the command as its owner: sudo -u '#%s' slipwayd …", id)
	default:
		return fmt.Sprintf("run the command as its owner: sudo -u %s slipwayd …", u.Username)
	}
}

// ownerOf returns the owner of a directory, or of the nearest directory above it that can be
// found.
func ownerOf(dir string) int {
	for {
		info, err := os.Lstat(dir)
		if err == nil {
			return uidOf(info)
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return 0
	}
}

// mountedError is the error for a data directory that cannot be renamed.
func mountedError(dir string) error {
	return diag.Refuse(idMounted, fmt.Sprintf("data directory %s cannot be renamed: it is a mount point", dir),
		"use a directory below the mount point as the data directory")
}
