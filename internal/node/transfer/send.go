package transfer

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// A Tree is a file or a directory to send, in the state in which it was read.
type Tree struct {
	root  string
	begin frame
	list  []frame
	chunk []byte
}

// ContentSize is the size of the content.
func (t *Tree) ContentSize() int64 { return t.begin.Size }

// ReadTree reads all of path, for its entries and digests; a link at path itself is followed.
// An entry that is not a file, directory or link, or cannot be read, is an error, and
// inside a directory it is skipped. read, which can be nil, is called with the number of
// bytes read so far.
func ReadTree(ctx context.Context, path string, read func(int64)) (*Tree, error) {
	name := filepath.Base(filepath.Clean(path))
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if name == "." || name == ".." || name == string(filepath.Separator) {
		name = filepath.Base(root)
	}
	var done int64
	more := func(n int64) {
		if done += n; read != nil {
			read(done)
		}
	}
	t := &Tree{root: root, begin: frame{Kind: kindBegin, Name: name}, chunk: make([]byte, chunk)}
	defer func() { t.begin.Entries, t.chunk = len(t.list), nil }()
	err = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		listed := err == nil
		if listed {
			err = t.addEntry(ctx, p, e, more)
		}
		if err == nil || p == root || ctx.Err() != nil {
			return err
		}
		rel, rerr := filepath.Rel(root, p)
		if rerr != nil {
			return rerr
		}
		t.list = append(t.list, frame{Kind: kindSkip, Path: filepath.ToSlash(rel), Message: reasonOf(err)})
		if listed && e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return t, err
}

var (
	errNeither = errors.New("not a file, a directory or a link")
	errShorter = errors.New("shrank during the copy")
)

// reasonOf returns why a file is skipped, without its name.
func reasonOf(err error) string {
	var at *fs.PathError
	switch {
	case errors.Is(err, errNeither):
		return "it is " + errNeither.Error()
	case errors.Is(err, errShorter):
		return "it " + errShorter.Error()
	case errors.Is(err, fs.ErrNotExist):
		return "it was deleted before it could be read"
	case errors.As(err, &at):
		return at.Err.Error()
	}
	return err.Error()
}

func (t *Tree) addEntry(ctx context.Context, path string, e fs.DirEntry, more func(int64)) error {
	rel, err := filepath.Rel(t.root, path)
	if err != nil {
		return err
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	f := frame{Path: filepath.ToSlash(rel), Mode: info.Mode() & kept}
	switch mode := info.Mode(); {
	case mode.IsDir():
		f.Kind = kindDir
	case mode&fs.ModeSymlink != 0:
		f.Kind = kindLink
		if f.Link, err = os.Readlink(path); err != nil {
			return err
		}
	case mode.IsRegular():
		f.Kind = kindFile
		if f.Size, f.Digest, err = t.digestFile(ctx, path, more); err != nil {
			return err
		}
		t.begin.Files++
		t.begin.Size += f.Size
	default:
		return fmt.Errorf("%s is %w", path, errNeither)
	}
	t.list = append(t.list, f)
	return nil
}

func (t *Tree) digestFile(ctx context.Context, path string, more func(int64)) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	size, err = readAll(ctx, h, f, t.chunk, more)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// readAll hashes a whole file with buf, until ctx ends. more, which can be nil, is called
// with byte counts.
func readAll(ctx context.Context, h hash.Hash, file io.Reader, buf []byte, more func(int64)) (size int64, err error) {
	for ctx.Err() == nil {
		n, err := file.Read(buf)
		_, _ = h.Write(buf[:n]) // a hash accepts all data
		size += int64(n)
		if more != nil && n > 0 {
			more(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err != nil {
			return size, err
		}
	}
	return size, context.Cause(ctx)
}

// Send sends the tree over conn and waits until the receiver has all of it. The summary
// has the target path also after an error, if it was announced. progress, which can be
// nil, is not called concurrently. After an error conn must be closed: until then, a
// goroutine reads from it.
func (t *Tree) Send(conn io.ReadWriter, progress func(Progress)) (Summary, error) {
	s := &sender{conn: conn, tree: t, answers: make(chan answer), over: make(chan struct{}), progress: progress, chunk: make([]byte, 4+chunk)}
	s.out = bufio.NewWriterSize(s, chunk)
	defer close(s.over)
	go s.readAnswers() // ends with the receiver's last frame, or the connection
	err := s.sendTree()
	var theirs *Error
	var lost *lostError
	switch {
	case errors.As(err, &lost):
		// An error from the receiver before it closed the connection is the better
		// reason.
		if a := <-s.answers; errors.As(a.err, &theirs) {
			err = theirs
		}
	case err != nil && !errors.As(err, &theirs):
		sendReason(s.out, err)
		_ = s.out.Flush() // the other end may be gone
	}
	if err != nil && s.part != "" && !errors.As(err, &theirs) {
		err = &BrokenError{Part: s.part, Err: err}
	}
	if to := s.to.Load(); err != nil && to != nil {
		s.summary.To = *to
	}
	return s.summary, err
}

// A lostError is a connection that can no longer be written to.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// Write writes to the receiver.
func (s *sender) Write(p []byte) (int, error) {
	n, err := s.conn.Write(p)
	if err != nil {
		err = &lostError{err}
	}
	return n, err
}

// SendError sends, instead of a tree, the reason why there is none.
func SendError(conn io.Writer, why error) { sendReason(conn, why) }

type answer struct {
	frame
	err error
}

type sender struct {
	conn     io.ReadWriter
	out      *bufio.Writer // to the receiver; flushed before an answer is awaited
	chunk    []byte
	tree     *Tree
	answers  chan answer
	over     chan struct{} // closed when answers are no longer read
	to       atomic.Pointer[string]
	part     string // what the receiver keeps if the connection is lost now
	summary  Summary
	done     int64
	files    int // sent or skipped
	progress func(Progress)
}

// readAnswers reads answers up to the last one.
func (s *sender) readAnswers() {
	for {
		f, err := readFrame(s.conn)
		if err == nil && f.Kind == kindAt {
			s.to.Store(&f.Path)
			continue
		}
		select {
		case s.answers <- answer{f, err}:
		case <-s.over:
			return
		}
		if err != nil || f.Kind == kindDone {
			return
		}
	}
}

func (s *sender) sendTree() error {
	if err := s.tree.begin.writeTo(s.out); err != nil {
		return err
	}
	for _, f := range s.tree.list {
		if err := f.writeTo(s.out); err != nil {
			return err
		}
		if f.Kind == kindFile {
			if err := s.sendContent(f); err != nil {
				return err
			}
			s.part = ""
			s.files++
			s.reportProgress(0)
		}
	}
	if err := (frame{Kind: kindEnd}).writeTo(s.out); err != nil {
		return err
	}
	if err := s.out.Flush(); err != nil {
		return err
	}
	a := <-s.answers
	if a.err == nil && (a.Kind != kindDone || a.Summary == nil) {
		a.err = fmt.Errorf("the receiver sent %q to the end of the copy", a.Kind)
	}
	if a.err != nil {
		return a.err
	}
	s.summary = *a.Summary
	if to := s.to.Load(); to != nil {
		s.summary.To = *to // which is exact
	}
	return nil
}

// sendContent sends a file, or the content that the receiver lacks. A file of a tree that has
// changed since is skipped, and content that was appended since is not sent.
func (s *sender) sendContent(f frame) error {
	end := s.done + f.Size
	at, err := s.askReceived(f)
	if err != nil {
		return err
	}
	s.reportProgress(at)
	if at == f.Size {
		return nil
	}
	why, err := s.streamFile(f, at)
	if why == nil || err != nil {
		return err
	}
	if _, err := s.out.Write(make([]byte, 4)); err != nil {
		return err
	}
	s.part = "" // the receiver removes it
	if f.Path == "." {
		return why
	}
	s.reportProgress(end - s.done)
	return frame{Kind: kindSkip, Path: f.Path, Message: reasonOf(why)}.writeTo(s.out)
}

// askReceived returns how much of a file the receiver has.
func (s *sender) askReceived(f frame) (int64, error) {
	if f.Size < asked {
		return 0, nil
	}
	if err := s.out.Flush(); err != nil {
		return 0, err
	}
	a := <-s.answers
	if a.err == nil && (a.Kind != kindHave || a.Size < 0 || a.Size > f.Size) {
		a.err = fmt.Errorf("unexpected reply from the receiver: kind %q", a.Kind)
	}
	if a.err != nil {
		return 0, a.err
	}
	s.part = a.Path
	return a.Size, nil
}

// streamFile sends a file from at on. why is a problem of the file, and err a problem of the
// copy.
func (s *sender) streamFile(f frame, at int64) (why, err error) {
	path := filepath.Join(s.tree.root, filepath.FromSlash(f.Path))
	file, err := os.Open(path)
	if err != nil {
		return err, nil
	}
	defer file.Close()
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return err, nil
	}
	buf := s.chunk
	for left := f.Size - at; left > 0; {
		select {
		case a := <-s.answers: // unrequested: it cannot continue
			if a.err == nil {
				a.err = fmt.Errorf("the receiver sent %q without a question", a.Kind)
			}
			return nil, a.err
		default:
		}
		n, err := io.ReadFull(file, buf[4:4+min(left, chunk)])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%s %w", path, errShorter), nil
		}
		if err != nil {
			return err, nil
		}
		binary.BigEndian.PutUint32(buf, uint32(n))
		if _, err := s.out.Write(buf[:4+n]); err != nil {
			return nil, err
		}
		left -= int64(n)
		s.reportProgress(int64(n))
	}
	return nil, nil
}

func (s *sender) reportProgress(n int64) {
	s.done += n
	if s.progress != nil {
		s.progress(Progress{s.done, s.tree.begin.Size, s.files, s.tree.begin.Files})
	}
}

// IsDir reports whether a name means a directory: it ends with a slash.
func IsDir(path string) bool { return strings.HasSuffix(path, "/") }
