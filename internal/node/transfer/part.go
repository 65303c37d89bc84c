package transfer

import (
	"context"
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

func (r *receiver) receiveFile(ctx context.Context, f frame) error {
	end := r.done + f.Size
	if f.Size >= asked && r.hasContent(ctx, f) {
		r.countCopied(f.Size)
		r.reportProgress(f.Size)
		return frame{Kind: kindHave, Size: f.Size}.writeTo(r.conn)
	}
	old, err := r.findReplaced(f)
	if err != nil {
		return err
	}
	p, err := r.openPart(ctx, f)
	if err != nil {
		return err
	}
	if err = r.fillPart(p, f); err == nil {
		err = r.setMetadata(p, f, old)
	}
	if err == nil {
		r.countCopied(f.Size)
		return r.keepPart(p)
	}
	_ = p.file.Close()
	if r.conn.broke && p.lasts && p.have > 0 {
		return &BrokenError{Part: filepath.Join(r.root.Name(), p.name), Err: err}
	}
	if rerr := r.root.Remove(p.name); rerr != nil {
		return errors.Join(err, rerr)
	}
	var missing *missingError
	if errors.As(err, &missing) && r.root != r.parent {
		r.skipEntry(f.Path, missing.why)
		r.reportProgress(end - r.done)
		return nil
	}
	return err
}

func (r *receiver) countCopied(n int64) {
	r.summary.Files++
	r.summary.Bytes += n
}

// fillPart fetches the missing content of a part.
func (r *receiver) fillPart(p *part, f frame) error {
	if f.Size >= asked {
		if free, known := freeSpace(p.file); known && free < f.Size-p.have {
			return noRoom(r.root.Name(), f.Size-p.have, free)
		}
		have := frame{Kind: kindHave, Size: p.have}
		if p.lasts {
			have.Path = filepath.Join(r.root.Name(), p.name)
		}
		if err := have.writeTo(r.conn); err != nil {
			return err
		}
		r.reportProgress(p.have)
	}
	if err := r.readContent(p, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(p.sum.Sum(nil)); got != f.Digest {
		return &missingError{f.Path, "it changed during the copy"}
	}
	return nil
}

// findReplaced returns the file that will be replaced, nil if there is none. It is an error
// if only root could replace it with a file of the same owner.
func (r *receiver) findReplaced(f frame) (fs.FileInfo, error) {
	info, err := r.root.Lstat(f.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if uid, _ := ownerOf(info); uid != permissionUser() && permissionUser() != 0 {
		return nil, fmt.Errorf("%s belongs to another user (%d), and only root can replace it and keep its owner",
			filepath.Join(r.root.Name(), f.Path), uid)
	}
	return info, nil
}

func ownerOf(info fs.FileInfo) (uid, gid int) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return permissionUser(), os.Getegid()
	}
	return int(st.Uid), int(st.Gid)
}

// setMetadata sets the mode of a complete file: its own, or owner, group and mode of the
// replaced file.
func (r *receiver) setMetadata(p *part, f frame, old fs.FileInfo) error {
	if old == nil {
		return p.file.Chmod(r.acceptedMode(f.Mode))
	}
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	uid, gid := ownerOf(old)
	if u, g := ownerOf(info); u != uid || g != gid {
		if err := p.file.Chown(uid, gid); err != nil {
			return fmt.Errorf("preserving the owner and group of %s: %w", filepath.Join(r.root.Name(), f.Path), err)
		}
	}
	return p.file.Chmod(r.acceptedMode(old.Mode())) // after the owner, which clears mode bits
}

// hasContent reports whether a file already exists with the same content.
func (r *receiver) hasContent(ctx context.Context, f frame) bool {
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
	_, err = readAll(ctx, h, file, r.chunk, nil)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == f.Digest
}

// A part is an incomplete file.
type part struct {
	name  string
	to    string // the name of the file
	lasts bool   // its name identifies its content: another copy finds it
	file  *os.File
	have  int64
	sum   hash.Hash // of the existing content
}

// openPart opens the part of a file from an earlier copy, else a new one.
func (r *receiver) openPart(ctx context.Context, f frame) (*part, error) {
	p := &part{name: r.tempName(f.Path), to: f.Path, sum: sha256.New()}
	if f.Size < asked {
		return p, p.openFile(r.root, os.O_EXCL)
	}
	if len(f.Digest) != 2*sha256.Size || strings.Trim(f.Digest, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("the sender sent the invalid digest %q", f.Digest)
	}
	another := p.name
	p.name = path.Join(path.Dir(f.Path), partPrefix+f.Digest[:24])
	if info, err := r.root.Lstat(p.name); err == nil && !info.Mode().IsRegular() {
		p.name = another
	}
	if err := p.openFile(r.root, syscall.O_NOFOLLOW); err != nil {
		return nil, err
	}
	if !p.isMine(r.root) {
		_ = p.file.Close()
		p.name = another
		return p, p.openFile(r.root, os.O_EXCL)
	}
	p.lasts = p.name != another
	var err error
	if p.have, err = readAll(ctx, p.sum, p.file, r.chunk, nil); err == nil && p.have > f.Size {
		p.have = 0
		p.sum.Reset()
		_, err = p.file.Seek(0, io.SeekStart)
		err = errors.Join(err, p.file.Truncate(0))
	}
	if err != nil {
		_ = p.file.Close()
	}
	return p, err
}

// isMine reports whether the part belongs to this user, who will own the file, and whether
// no other process copies the same content to the same place right now. A file with a
// second name is not accepted: a user with access to the directory could link a file
// there that the user cannot write.
func (p *part) isMine(root *os.Root) bool {
	if syscall.Flock(int(p.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false
	}
	// Or another process has just finished: then the file is already at its path.
	ours, err1 := p.file.Stat()
	there, err2 := root.Lstat(p.name)
	if err1 != nil || err2 != nil || !os.SameFile(ours, there) {
		return false
	}
	uid, _ := ownerOf(ours)
	return uid == permissionUser() && hardLinkCount(ours) == 1
}

// hardLinkCount returns the number of hard links of a file.
func hardLinkCount(info fs.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(st.Nlink) //nolint:unconvert // it is of another width elsewhere
}

func (p *part) openFile(root *os.Root, flag int) (err error) {
	p.file, err = root.OpenFile(p.name, os.O_RDWR|os.O_CREATE|flag, 0o600)
	if errors.Is(err, fs.ErrPermission) && permissionUser() != 0 {
		dir := filepath.Join(root.Name(), path.Dir(p.name))
		return fmt.Errorf("user %d cannot write to %s (%w); use --sudo to write as root on hosts", permissionUser(), dir, fs.ErrPermission)
	}
	return err
}

// readContent reads the missing content of a file.
func (r *receiver) readContent(p *part, f frame) error {
	buf := r.chunk
	for p.have < f.Size {
		n, err := readLength(r.conn, chunk)
		if err != nil {
			return err
		}
		if n == 0 {
			why, err := readFrame(r.conn)
			if err == nil {
				err = &missingError{f.Path, why.Message}
			}
			return err
		}
		if int64(n) > f.Size-p.have {
			return fmt.Errorf("the sender sent more than it announced")
		}
		if _, err := io.ReadFull(r.conn, buf[:n]); err != nil {
			return unexpectedEnd(err)
		}
		if _, err := p.file.Write(buf[:n]); err != nil {
			if free, known := freeSpace(p.file); known && errors.Is(err, syscall.ENOSPC) {
				err = noRoom(r.root.Name(), f.Size-p.have, free)
			}
			return err
		}
		_, _ = p.sum.Write(buf[:n]) // a hash accepts all data
		p.have += int64(n)
		r.reportProgress(int64(n))
	}
	return nil
}
