package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// partPrefix begins the names of incomplete files.
const partPrefix = ".slipway-copy-"

// A Place is the target of a copy.
type Place struct {
	Path string
	// Exact writes to this path although a directory exists there: an earlier attempt
	// created it, and it is not a directory to copy into.
	Exact bool
	// Most, if not 0, limits the size of the content in bytes: larger content is rejected
	// completely.
	Most int64
}

// ReceiveTree writes the data of a sender to a place: into it, if it is a directory or
// written as one, else at its path. Nothing is written outside of it, whatever the sender
// names, and nothing through a link below it. progress can be nil. ctx ends reading of
// existing content; everything else ends with conn.
func ReceiveTree(ctx context.Context, conn io.ReadWriter, to Place, progress func(Progress)) (Summary, error) {
	return (&receiver{progress: progress}).runReceive(ctx, conn, to)
}

// FetchTree receives from an untrusted sender: into a directory, with this name, whatever the
// sender names, and without setuid, setgid and sticky bits.
func FetchTree(ctx context.Context, conn io.ReadWriter, to Place, name string, progress func(Progress)) (Summary, error) {
	return (&receiver{foreign: true, name: name, progress: progress}).runReceive(ctx, conn, to)
}

type receiver struct {
	conn     *watched
	foreign  bool        // the sender is not trusted
	parent   *os.Root    // the directory of the file or the tree
	name     string      // its name in that directory
	root     *os.Root    // the base of paths: the tree, once it exists, else parent
	within   []directory // the directories for the next entry, the innermost last
	shut     []directory // complete directories whose modes would keep their owner out
	whole    []*part     // files that are not renamed yet
	chunk    []byte      // of content
	entries  int         // that may still arrive
	total    int64
	left     int64 // the part of total without an announced file
	done     int64
	files    int // received or skipped, of allFiles
	allFiles int
	summary  Summary
	progress func(Progress)
}

// A directory is a directory of the tree.
type directory struct {
	path string
	mode fs.FileMode
	made bool // created by this copy
}

// mostShut limits how many directories get their modes at the very end, so that an
// interrupted copy can continue in them. All others get theirs when they are complete.
const mostShut = 1 << 16

// watched is a connection that records whether it failed itself.
type watched struct {
	io.ReadWriter
	broke bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadWriter.Read(p)
	w.broke = w.broke || err != nil
	return n, err
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.ReadWriter.Write(p)
	w.broke = w.broke || err != nil
	return n, err
}

func (r *receiver) runReceive(ctx context.Context, conn io.ReadWriter, to Place) (Summary, error) {
	r.conn, r.chunk = &watched{ReadWriter: conn}, make([]byte, chunk)
	err := r.receiveEntries(ctx, to)
	var theirs *Error
	if err != nil && !errors.As(err, &theirs) {
		sendReason(r.conn, err)
	}
	return r.summary, err
}

func (r *receiver) receiveEntries(ctx context.Context, to Place) error {
	begin, err := readFrame(r.conn)
	if err == nil && begin.Kind != kindBegin {
		err = fmt.Errorf("the sender started with %q", begin.Kind)
	}
	if err != nil {
		return err
	}
	if to.Most > 0 && begin.Size > to.Most {
		return fmt.Errorf("it has %d bytes, but the limit is %d", begin.Size, to.Most)
	}
	r.total, r.left, r.entries, r.allFiles = begin.Size, begin.Size, begin.Entries, begin.Files
	if !r.foreign {
		r.name = begin.Name
	}
	if err := r.openTarget(to); err != nil {
		return err
	}
	defer r.closeParts()
	if err := r.checkFits(begin.Size, begin.Entries); err != nil {
		return err
	}
	if err := (frame{Kind: kindAt, Path: r.summary.To}).writeTo(r.conn); err != nil {
		return err
	}
	for {
		f, err := readFrame(r.conn)
		if err == nil && f.Kind == kindEnd {
			break
		}
		if err == nil {
			err = r.takeEntry(ctx, f)
		}
		if err != nil {
			return errors.Join(err, r.renameParts()) // complete files are kept
		}
	}
	if err := r.finishDirs(); err != nil {
		return err
	}
	return frame{Kind: kindDone, Summary: &r.summary}.writeTo(r.conn)
}

// leaveDirs finishes the directories that can get no more entries, because the next entry is
// in dir.
func (r *receiver) leaveDirs(dir string) error {
	for len(r.within) > 0 {
		last := r.within[len(r.within)-1]
		if last.path == dir {
			return nil
		}
		r.within = r.within[:len(r.within)-1]
		if !last.made {
			continue
		}
		if last.mode&0o300 != 0o300 && len(r.shut) < mostShut {
			r.shut = append(r.shut, last)
			continue
		}
		if last.mode&0o300 != 0o300 { // no later entry gets its name in there
			if err := r.renameParts(); err != nil {
				return err
			}
		}
		if err := r.root.Chmod(last.path, r.acceptedMode(last.mode)); err != nil {
			return err
		}
	}
	return nil
}

// finishDirs sets the modes of the remaining directories, the innermost first: a mode can
// forbid access.
func (r *receiver) finishDirs() error {
	if err := errors.Join(r.renameParts(), r.leaveDirs("")); err != nil {
		return err
	}
	for _, d := range r.shut {
		if err := r.root.Chmod(d.path, r.acceptedMode(d.mode)); err != nil {
			return err
		}
	}
	return nil
}

func (r *receiver) closeParts() {
	if r.root != r.parent {
		_ = r.root.Close()
	}
	_ = r.parent.Close()
}

// acceptedMode returns the accepted bits of a sender's mode.
func (r *receiver) acceptedMode(m fs.FileMode) fs.FileMode {
	if r.foreign {
		return m & fs.ModePerm
	}
	return m & kept
}

// openTarget finds the target path.
func (r *receiver) openTarget(to Place) error {
	dest := to.Path
	info, err := os.Stat(dest)
	switch {
	case err == nil && info.IsDir() && !to.Exact:
		if name := r.name; name == "." || !filepath.IsLocal(name) || strings.ContainsRune(name, filepath.Separator) {
			return fmt.Errorf("the sender sent the invalid name %q", name)
		}
		dest = filepath.Join(dest, r.name)
	case errors.Is(err, fs.ErrNotExist) && IsDir(dest):
		return fmt.Errorf("the directory %s does not exist", dest)
	case err == nil: // a link to a file remains one
		if dest, err = filepath.EvalSymlinks(dest); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if dest, err = filepath.Abs(dest); err != nil {
		return err
	}
	r.name = filepath.Base(dest)
	r.summary.To = dest
	r.parent, err = os.OpenRoot(filepath.Dir(dest))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the directory %s does not exist", filepath.Dir(dest))
	}
	r.root = r.parent
	return err
}

// takeEntry writes one file, directory or link to its path.
func (r *receiver) takeEntry(ctx context.Context, f frame) error {
	if err := r.checkAllowed(f); err != nil {
		return err
	}
	switch f.Kind {
	case kindSkip:
		r.skipEntry(f.Path, f.Message)
		return nil
	case kindDir:
		return r.makeDir(f)
	case kindLink:
		tmp := r.tempName(f.Path)
		if err := r.root.Symlink(f.Link, tmp); err != nil {
			return err
		}
		return r.renameFinished(tmp, f.Path)
	case kindFile:
		if f.Path == "." {
			f.Path = r.name
		}
		err := r.receiveFile(ctx, f)
		r.files++
		r.reportProgress(0)
		return err
	}
	return fmt.Errorf("the sender sent %q", f.Kind)
}

// checkAllowed rejects entries that an honest sender does not send. Every entry must be in a
// directory that came before it and is not complete, and not behind a link.
func (r *receiver) checkAllowed(f frame) error {
	if r.entries--; r.entries < 0 {
		return errors.New("the sender sent more files and directories than it announced")
	}
	if !isValidPath(f.Path) {
		return fmt.Errorf("the sender sent the invalid file name %q", f.Path)
	}
	if f.Path != "." {
		if err := r.leaveDirs(path.Dir(f.Path)); err != nil {
			return err
		}
	}
	switch {
	case f.Path == "." && (f.Kind == kindLink || f.Kind == kindSkip || r.root != r.parent):
		return fmt.Errorf("the sender sent %q instead of the root of the copy", f.Kind)
	case f.Path != "." && len(r.within) == 0:
		return fmt.Errorf("the sender sent %q before its directory", f.Path)
	case f.Size < 0 || f.Size > r.left:
		return fmt.Errorf("the sender sent more than it announced")
	}
	r.left -= f.Size
	return nil
}

// isValidPath reports whether a path is relative, does not leave its base, and is in the
// canonical form of senders. Unlike fs.ValidPath it accepts bytes that are not UTF-8.
func isValidPath(p string) bool {
	return filepath.IsLocal(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}

// makeDir creates a directory. An existing one keeps its mode; a link to one, which an
// earlier copy may have created, is replaced.
func (r *receiver) makeDir(f frame) error {
	name := f.Path
	if name == "." {
		name = r.name
	}
	err := r.root.Mkdir(name, f.Mode.Perm()|0o700)
	made := err == nil
	if !made && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := r.root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s exists and is not a directory", filepath.Join(r.root.Name(), name))
	}
	if err != nil {
		return err
	}
	r.within = append(r.within, directory{f.Path, f.Mode, made})
	if f.Path == "." {
		tree, err := r.parent.OpenRoot(name)
		if err != nil {
			return err
		}
		r.root = tree
	}
	return nil
}

// skipEntry records a skipped entry.
func (r *receiver) skipEntry(path, why string) {
	r.summary.Skipped++
	if len(r.summary.SkippedFiles) < maxSkipped {
		if len(path) > maxName {
			path = "…" + path[len(path)-maxName:]
		}
		r.summary.SkippedFiles = append(r.summary.SkippedFiles, Skipped{path, why[:min(len(why), maxReason)]})
	}
}

func (r *receiver) tempName(of string) string {
	return path.Join(path.Dir(of), partPrefix+strings.ToLower(rand.Text()[:12]))
}

// renameFinished moves a finished file to its path, or removes it.
func (r *receiver) renameFinished(from, to string) error {
	if err := r.root.Rename(from, to); err != nil {
		return errors.Join(err, r.root.Remove(from))
	}
	return nil
}

func (r *receiver) reportProgress(n int64) {
	r.done += n
	if r.progress != nil {
		r.progress(Progress{r.done, r.total, r.files, r.allFiles})
	}
}
