package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/safefile"
)

// writeGeneratedFile writes a generated file to out, or prints it if out is "".
func (w *workspace) writeGeneratedFile(out string, text []byte, next string) error {
	if out == "" {
		return w.writeDocument(text)
	}
	if err := w.writeNewFile(out, text, 0o644); err != nil {
		return err
	}
	if w.format != view.Text {
		return view.WriteData(w.Out, w.format, map[string]string{"file": out})
	}
	w.printMessage("Wrote %s.\nNext: %s %s", out, next, out)
	return nil
}

// writeNewFile writes a file for the user. It overwrites an existing file only with
// --yes, and never anything that is not a regular file.
func (w *workspace) writeNewFile(path string, content []byte, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return newProblem(idFile, "give a file, or leave out --out to print the content", "%s exists and is not a regular file", path)
	}
	d, err := w.findDirectories()
	if err != nil {
		return err
	}
	if w.yes {
		err = replaceFile(path, content, mode, d.Owner)
	} else {
		err = createFile(path, content, mode, d.Owner)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return newProblem(idFile, "give another file, or use --yes to overwrite it", "%s already exists", path)
	case errors.As(err, new(*fileowner.ForeignError)):
		return newProblem(idFile, "give another file, or remove the link", "%v", err)
	case err != nil:
		return newProblem(idFile, "give a file in a writable directory with enough free space", "writing %s: %v", path, unwrapPath(err))
	}
	return nil
}

// replaceFile writes a file atomically: on an error the old file is kept. It follows
// the user's own links, but not as root on behalf of a user.
func replaceFile(path string, content []byte, mode fs.FileMode, to *fileowner.Owner) error {
	if to == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
	}
	return to.ReplaceFile(path, content, mode)
}

// createFile writes a file that must not exist.
func createFile(path string, content []byte, mode fs.FileMode, to *fileowner.Owner) error {
	f, err := safefile.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if to != nil {
		err = errors.Join(err, f.Chown(to.UID, to.GID))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, safefile.Remove(path)) // do not leave an incomplete file
	}
	return nil
}
