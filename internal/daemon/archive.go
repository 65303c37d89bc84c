package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"slipway.dev/slipway/internal/server/diskspace"
	"slipway.dev/slipway/internal/store/kube/archive"
)

// withoutArchive is the value of --archive-dir for a server without an archive.
const withoutArchive = "none"

// archiveOpenTime limits the first opening of the archive. Later calls open it too.
const archiveOpenTime = 5 * time.Second

// A serverArchive is the archive of finished operations of a server.
type serverArchive interface {
	archive.Files
	Close() error
}

// openArchive returns the archive of a server, nil if it has none. path is the value of --archive-dir, and local the
// default, a directory on the disk of the database. A directory that cannot be used is only reported: the server starts,
// and uses the directory as soon as that is possible.
func openArchive(ctx context.Context, path, local string, log *slog.Logger) serverArchive {
	var out serverArchive
	var opening *archive.Directory
	switch path {
	case withoutArchive:
		return nil
	case "":
		path = local
		opening = archive.NewDirectory(path)
		out = &localArchive{opening, path, diskspace.ReadFree}
	default:
		opening = archive.NewDirectory(path)
		out = opening
	}
	ctx, cancel := context.WithTimeout(ctx, archiveOpenTime)
	defer cancel()
	if err := opening.Open(ctx); err != nil {
		log.Warn("the archive of operations cannot be used yet", "directory", path, "error", err)
	}
	return out
}

// A localArchive is an archive on the disk of the database. It leaves room for the database.
type localArchive struct {
	*archive.Directory
	path      string
	freeBytes func(dir string) (free, all int64, err error)
}

// Put writes a file unless the disk has little free space.
func (a *localArchive) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	free, all, err := a.freeBytes(a.path)
	if err == nil && free < diskspace.BackupReserve(all) {
		return fmt.Errorf("the disk of %s has only %d MiB of free space, which the database needs: %w", a.path, free>>20, syscall.ENOSPC)
	}
	return a.Directory.Put(ctx, name, write)
}
