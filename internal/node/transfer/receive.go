package transfer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// partPrefix begins the names of files that are not whole yet.
const partPrefix = ".slipway-copy-"

// Receive puts what a sender sends to dest: into it, if it is a directory or
// written as one, else in its place. Nothing that comes leads out of there,
// whatever it is called, and no link below dest is written through. progress
// may be nil.
func Receive(conn io.ReadWriter, dest string, progress func(Progress)) (Summary, error) {
	return (&receiver{conn: conn, progress: progress}).run(dest)
}

// Fetch receives from a sender that is not believed: in a directory it is
// called name, whatever the sender calls it, and nothing of it is setuid,
// setgid or sticky.
func Fetch(conn io.ReadWriter, dest, name string, progress func(Progress)) (Summary, error) {
	return (&receiver{conn: conn, foreign: true, name: name, progress: progress}).run(dest)
}

type receiver struct {
	conn     io.ReadWriter
	foreign  bool     // the sender is not believed
	parent   *os.Root // the directory that the file or the tree is in
	name     string   // what it is called there
	root     *os.Root // what paths are below: the tree, once there is one, else parent
	dirs     map[string]bool
	made     []frame // directories, with the modes they are to have
	total    int64
	left     int64 // of total, what no file was announced of
	done     int64
	summary  Summary
	progress func(Progress)
}

func (r *receiver) run(dest string) (Summary, error) {
	err := r.receive(dest)
	var theirs *Error
	if err != nil && !errors.As(err, &theirs) {
		tell(r.conn, err)
	}
	return r.summary, err
}

func (r *receiver) receive(dest string) error {
	begin, err := readFrame(r.conn)
	if err == nil && begin.Kind != kindBegin {
		err = fmt.Errorf("the sender begins with %q", begin.Kind)
	}
	if err != nil {
		return err
	}
	r.total, r.left, r.dirs = begin.Size, begin.Size, map[string]bool{}
	if !r.foreign {
		r.name = begin.Name
	}
	if err := r.open(dest); err != nil {
		return err
	}
	defer r.close()
	for {
		f, err := readFrame(r.conn)
		if err != nil {
			return err
		}
		if f.Kind == kindEnd {
			break
		}
		if err := r.take(f); err != nil {
			return err
		}
	}
	for i := len(r.made) - 1; i >= 0; i-- { // the innermost first: one may forbid to be entered
		if err := r.root.Chmod(r.made[i].Path, r.mode(r.made[i].Mode)); err != nil {
			return err
		}
	}
	return frame{Kind: kindDone, Summary: &r.summary}.write(r.conn)
}

func (r *receiver) close() {
	if r.root != r.parent {
		_ = r.root.Close()
	}
	_ = r.parent.Close()
}

// mode is what of a sender's mode is taken.
func (r *receiver) mode(m fs.FileMode) fs.FileMode {
	if r.foreign {
		return m & fs.ModePerm
	}
	return m & kept
}

// open finds where what comes is to be.
func (r *receiver) open(dest string) error {
	info, err := os.Stat(dest)
	switch {
	case err == nil && info.IsDir():
		if name := r.name; name == "." || !filepath.IsLocal(name) || strings.ContainsRune(name, filepath.Separator) {
			return fmt.Errorf("what comes is called %q, which is no name", name)
		}
		dest = filepath.Join(dest, r.name)
	case errors.Is(err, fs.ErrNotExist) && IsDir(dest):
		return fmt.Errorf("there is no directory %s", dest)
	case err == nil: // a link to a file stays one
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
		return fmt.Errorf("there is no directory %s", filepath.Dir(dest))
	}
	r.root = r.parent
	return err
}

// take puts one file, directory or link in its place.
func (r *receiver) take(f frame) error {
	if err := r.allowed(f); err != nil {
		return err
	}
	switch f.Kind {
	case kindDir:
		return r.dir(f)
	case kindLink:
		tmp := r.temp(f.Path)
		if err := r.root.Symlink(f.Link, tmp); err != nil {
			return err
		}
		return r.rename(tmp, f.Path)
	case kindFile:
		if f.Path == "." {
			f.Path = r.name
		}
		return r.file(f)
	}
	return fmt.Errorf("the sender sends %q", f.Kind)
}

// allowed refuses what a sender that tells the truth does not say. All that
// comes is in a directory that came before it: one, and no link to one.
func (r *receiver) allowed(f frame) error {
	switch {
	case !fs.ValidPath(f.Path):
		return fmt.Errorf("the sender calls a file %q, which is no name", f.Path)
	case f.Path == "." && (f.Kind == kindLink || r.root != r.parent):
		return fmt.Errorf("the sender sends %q in the place of all", f.Kind)
	case f.Path != "." && !r.dirs[path.Dir(f.Path)]:
		return fmt.Errorf("the sender sends %q, and no directory that it is in", f.Path)
	case f.Size < 0 || f.Size > r.left:
		return fmt.Errorf("the sender sends more than it said")
	}
	r.left -= f.Size
	return nil
}

// dir makes a directory. One that is there keeps its mode; a link to one, which
// may have come with an earlier copy, is none.
func (r *receiver) dir(f frame) error {
	name := f.Path
	if name == "." {
		name = r.name
	}
	err := r.root.Mkdir(name, f.Mode.Perm()|0o700)
	if err == nil {
		r.made = append(r.made, f)
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := r.root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is there already, and no directory", filepath.Join(r.root.Name(), name))
	}
	if err != nil {
		return err
	}
	r.dirs[f.Path] = true
	if f.Path == "." {
		tree, err := r.parent.OpenRoot(name)
		if err != nil {
			return err
		}
		r.root = tree
	}
	return nil
}

func (r *receiver) temp(of string) string {
	return path.Join(path.Dir(of), partPrefix+strings.ToLower(rand.Text()[:12]))
}

// rename puts a finished file in its place, or takes it away.
func (r *receiver) rename(from, to string) error {
	if err := r.root.Rename(from, to); err != nil {
		return errors.Join(err, r.root.Remove(from))
	}
	return nil
}

func (r *receiver) file(f frame) error {
	r.summary.Files++
	r.summary.Bytes += f.Size
	if f.Size >= asked && r.has(f) {
		r.told(f.Size)
		if err := (frame{Kind: kindHave, Size: f.Size}).write(r.conn); err != nil {
			return err
		}
		return nil
	}
	old, err := r.replaced(f)
	if err != nil {
		return err
	}
	p, err := r.part(f)
	if err != nil {
		return err
	}
	defer p.file.Close()
	if f.Size >= asked {
		if err := (frame{Kind: kindHave, Size: p.have}).write(r.conn); err != nil {
			return err
		}
		r.told(p.have)
	}
	if err := r.content(p, f.Size-p.have); err != nil {
		if f.Size < asked { // nobody would go on with it
			err = errors.Join(err, r.root.Remove(p.name))
		}
		return err
	}
	if got := hex.EncodeToString(p.sum.Sum(nil)); got != f.Digest {
		return errors.Join(fmt.Errorf("%s changed while it was copied: copy it again", path.Base(f.Path)), r.root.Remove(p.name))
	}
	if err := errors.Join(r.adorn(p, f, old), p.file.Sync()); err != nil {
		return errors.Join(err, r.root.Remove(p.name))
	}
	return r.rename(p.name, f.Path)
}

// replaced is the file that another comes in the place of, nil if there is none.
// One that only root can replace by one of the same owner is refused here.
func (r *receiver) replaced(f frame) (fs.FileInfo, error) {
	info, err := r.root.Lstat(f.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if uid, _ := owner(info); uid != os.Geteuid() && os.Geteuid() != 0 {
		return nil, fmt.Errorf("%s belongs to another user (%d), and only root can replace it and keep that", filepath.Join(r.root.Name(), f.Path), uid)
	}
	return info, nil
}

func owner(info fs.FileInfo) (uid, gid int) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return os.Geteuid(), os.Getegid()
	}
	return int(st.Uid), int(st.Gid)
}

// adorn gives a file that is whole its mode: its own, or owner, group and mode
// of the one that it replaces.
func (r *receiver) adorn(p *part, f frame, old fs.FileInfo) error {
	if old == nil {
		return p.file.Chmod(r.mode(f.Mode))
	}
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	uid, gid := owner(old)
	if u, g := owner(info); u != uid || g != gid {
		if err := p.file.Chown(uid, gid); err != nil {
			return fmt.Errorf("keeping the owner and the group of %s: %w", filepath.Join(r.root.Name(), f.Path), err)
		}
	}
	return p.file.Chmod(r.mode(old.Mode())) // after the owner, which clears bits
}

// has says that a file is there already, with the same content.
func (r *receiver) has(f frame) bool {
	info, err := r.root.Lstat(f.Path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != f.Size {
		return false
	}
	file, err := r.root.Open(f.Path)
	if err != nil {
		return false
	}
	defer file.Close()
	h := sha256.New()
	_, err = io.Copy(h, file)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == f.Digest
}

// A part is a file that is not whole yet.
type part struct {
	name string
	file *os.File
	have int64
	sum  hash.Hash // of what is there
}

// part opens the part of a file that an earlier copy has left, else a new one.
func (r *receiver) part(f frame) (*part, error) {
	p := &part{name: r.temp(f.Path), sum: sha256.New()}
	if f.Size < asked {
		return p, p.open(r.root, os.O_EXCL)
	}
	if len(f.Digest) != 2*sha256.Size || strings.Trim(f.Digest, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("the sender sends %q for a digest", f.Digest)
	}
	another := p.name
	p.name = path.Join(path.Dir(f.Path), partPrefix+f.Digest[:24])
	if info, err := r.root.Lstat(p.name); err == nil && !info.Mode().IsRegular() {
		p.name = another
	}
	if err := p.open(r.root, 0); err != nil {
		return nil, err
	}
	if !p.mine(r.root) {
		_ = p.file.Close()
		p.name = another
		return p, p.open(r.root, os.O_EXCL)
	}
	var err error
	if p.have, err = io.Copy(p.sum, p.file); err != nil || p.have <= f.Size {
		return p, err
	}
	p.have = 0
	p.sum.Reset()
	_, err = p.file.Seek(0, io.SeekStart)
	return p, errors.Join(err, p.file.Truncate(0))
}

// mine says that nobody else copies the same to the same place at this moment.
func (p *part) mine(root *os.Root) bool {
	if syscall.Flock(int(p.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false
	}
	// Or has just done so: then the file is in its place by now.
	ours, err1 := p.file.Stat()
	there, err2 := root.Lstat(p.name)
	return err1 == nil && err2 == nil && os.SameFile(ours, there)
}

func (p *part) open(root *os.Root, flag int) (err error) {
	p.file, err = root.OpenFile(p.name, os.O_RDWR|os.O_CREATE|flag, 0o600)
	return err
}

// content reads what is missing of a file.
func (r *receiver) content(p *part, left int64) error {
	buf := make([]byte, chunk)
	for left > 0 {
		n, err := readLength(r.conn, chunk)
		if err != nil {
			return err
		}
		if n == 0 {
			_, err := readFrame(r.conn)
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if int64(n) > left {
			return fmt.Errorf("the sender sends more than it said")
		}
		if _, err := io.ReadFull(r.conn, buf[:n]); err != nil {
			return unexpected(err)
		}
		if _, err := p.file.Write(buf[:n]); err != nil {
			return err
		}
		_, _ = p.sum.Write(buf[:n]) // a hash takes all
		left -= int64(n)
		r.told(int64(n))
	}
	return nil
}

func (r *receiver) told(n int64) {
	r.done += n
	if r.progress != nil {
		r.progress(Progress{Done: r.done, Total: r.total})
	}
}
