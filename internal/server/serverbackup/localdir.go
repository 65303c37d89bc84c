package serverbackup

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
)

// A localDir is a directory of sets, encrypted or not, as a target of package copies. That
// package has only names of encrypted files, so names without ".age" get it here.
type localDir struct {
	path      string
	dir       copies.Target
	encrypted bool // of sets that Put writes
}

// openDir returns the sets in an existing directory. It keeps nothing open.
func openDir(path string, encrypted bool) (localDir, error) {
	dir, err := copies.OpenDirectory(path)
	if err != nil {
		return localDir{}, fmt.Errorf("opening the directory for backups: %w", err)
	}
	return localDir{path: path, dir: dir, encrypted: encrypted}, nil
}

// Close implements copies.Target.
func (d localDir) Close() error { return d.dir.Close() }

// partOfPlain matches the name of an incomplete set without encryption.
var partOfPlain = regexp.MustCompile(`^(\..+\.tar)(\.[A-Z2-7]{8}\.part)$`)

// List returns the files with the names of encrypted sets. A set exists once, encrypted or
// not: another file with the same name is left out.
func (d localDir) List(ctx context.Context, begin string) ([]copies.File, error) {
	files, err := d.dir.List(ctx, begin)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, f := range files {
		seen[f.Name] = true
	}
	var out []copies.File
	for _, f := range files {
		if _, encrypted, ok := parseFileName(f.Name); ok && !encrypted {
			f.Name += sealedSuffix
			if seen[f.Name] {
				continue
			}
		} else if part := partOfPlain.FindStringSubmatch(f.Name); part != nil {
			f.Name = part[1] + sealedSuffix + part[2]
		}
		out = append(out, f)
	}
	return out, nil
}

// actualName returns the name of the file for a name that List has returned.
func (d localDir) actualName(ctx context.Context, name string) (string, error) {
	files, err := d.dir.List(ctx, "")
	if err != nil {
		return "", err
	}
	plain := strings.Replace(name, ".tar"+sealedSuffix, ".tar", 1)
	for _, f := range files {
		if f.Name == name {
			return name, nil
		}
	}
	return plain, nil
}

// Fetch implements copies.Target.
func (d localDir) Fetch(ctx context.Context, name string, to io.Writer) error {
	name, err := d.actualName(ctx, name)
	if err != nil {
		return err
	}
	return d.dir.Fetch(ctx, name, to)
}

// Remove implements copies.Target.
func (d localDir) Remove(ctx context.Context, name string) error {
	name, err := d.actualName(ctx, name)
	if err != nil {
		return err
	}
	return d.dir.Remove(ctx, name)
}

// Put implements copies.Target. It does not replace a set.
func (d localDir) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	files, err := d.List(ctx, "")
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Name == name {
			return newError(backup.Exists, "%s already exists in %s", name, d.path)
		}
	}
	if !d.encrypted {
		name = strings.TrimSuffix(name, sealedSuffix)
	}
	return d.dir.Put(ctx, name, func(w io.Writer) error { return write(&roomWriter{to: w, dir: d.path}) })
}
