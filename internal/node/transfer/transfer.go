// Package transfer copies a file or a tree of them over a connection: the
// sender on one end, the receiver on the other, the same at both. A file comes
// to its name whole and verified or not at all; what a broken connection left
// of a large one is gone on with. Modes are kept, those of files that are
// replaced with their owners; links stay links.
package transfer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"slipway.dev/slipway/internal/exact"
)

const (
	// asked is the size from which the receiver is asked what it has already.
	asked = 256 << 10
	// chunk is how much of a file's content is sent at a time.
	chunk = 64 << 10
	// maxFrame bounds a description of a file.
	maxFrame = 64 << 10
	// maxSkipped is how many skipped files are named, maxName and maxReason how
	// much of each in bytes: all must fit into a frame.
	maxSkipped = 10
	maxName    = 512
	maxReason  = 128
	// kept are the bits of a mode that are kept.
	kept = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
)

// A Progress is how far a copy is, in bytes of content and in files.
type Progress struct {
	Done, Total     int64
	Files, AllFiles int
}

// A Summary is what was copied.
type Summary struct {
	// To is where the file or the tree is now.
	To    string `json:"to"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	// Skipped is how much of a tree could not be read and was left out;
	// SkippedFiles are the first of that.
	Skipped      int       `json:"skipped,omitempty"`
	SkippedFiles []Skipped `json:"skippedFiles,omitempty"`
}

// Skipped is what was left out of a tree.
type Skipped struct {
	Path   string `json:"path"` // in the tree
	Reason string `json:"reason"`
}

// A missingError is a file that its sender could not read as it was looked at.
type missingError struct{ path, why string }

func (e *missingError) Error() string { return e.path + ": " + e.why }

// An Error is why the other end cannot go on, in its words.
type Error struct{ Message string }

func (e *Error) Error() string { return e.Message }

// A BrokenError is a connection that broke within a file. What came of that is
// kept in Part, where it was received, and the next copy goes on with it.
type BrokenError struct {
	Part string
	Err  error
}

func (e *BrokenError) Error() string { return fmt.Sprintf("%v; the received part is in %s", e.Err, e.Part) }

func (e *BrokenError) Unwrap() error { return e.Err }

type kind string

const (
	kindBegin kind = "begin" // from the sender: what is to come
	kindDir   kind = "dir"
	kindFile  kind = "file"
	kindLink  kind = "link"
	kindSkip  kind = "skip"  // from the sender: it cannot be read, Message says why
	kindEnd   kind = "end"   // from the sender: that was all
	kindAt    kind = "at"    // from the receiver, first: all comes to Path
	kindHave  kind = "have"  // from the receiver: go on at Size; in Path, which it keeps
	kindDone  kind = "done"  // from the receiver: all is in its place
	kindError kind = "error" // from either: it is over
)

// A frame is a description or an answer. A file's content follows its frame in
// chunks: four bytes of length and so many bytes; a length of 0 is followed by
// a frame that says why there is no more: a skip, or an error.
type frame struct {
	Kind kind `json:"kind"`
	// Path is relative to the tree, with slashes; "." is its root. A
	// receiver's is absolute.
	Path   string      `json:"path,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	Size   int64       `json:"size,omitempty"`
	Digest string      `json:"digest,omitempty"` // SHA-256, hex
	Link   string      `json:"link,omitempty"`
	// Name is what the root is called where it comes from.
	Name  string `json:"name,omitempty"`
	Files int    `json:"files,omitempty"`
	// Entries is how many frames are to come between begin and end.
	Entries int      `json:"entries,omitempty"`
	Message string   `json:"message,omitempty"`
	Summary *Summary `json:"summary,omitempty"`
}

// plain is a frame whose names JSON would change if they are not UTF-8.
type plain frame

// exactly has the names of a frame as they are.
type exactly struct {
	*plain
	Path exact.Text `json:"path,omitempty"`
	Link exact.Text `json:"link,omitempty"`
	Name exact.Text `json:"name,omitempty"`
}

func (f frame) encode() ([]byte, error) {
	return json.Marshal(exactly{(*plain)(&f), exact.Text(f.Path), exact.Text(f.Link), exact.Text(f.Name)})
}

func (f *frame) decode(raw []byte) error {
	e := exactly{plain: (*plain)(f)}
	err := json.Unmarshal(raw, &e)
	f.Path, f.Link, f.Name = string(e.Path), string(e.Link), string(e.Name)
	return err
}

func (f frame) write(w io.Writer) error {
	raw, err := f.encode()
	if err != nil {
		return fmt.Errorf("encoding what is copied: %w", err)
	}
	if len(raw) > maxFrame {
		return fmt.Errorf("the name %.40q… is too long", f.Path)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...))
	return err
}

// readFrame reads a frame; an error of the other end is *Error.
func readFrame(r io.Reader) (f frame, err error) {
	n, err := readLength(r, maxFrame)
	if err != nil {
		return f, err
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(r, raw); err != nil {
		return f, unexpected(err)
	}
	if err := f.decode(raw); err != nil {
		return f, fmt.Errorf("reading what is copied: %w", err)
	}
	if f.Kind == kindError {
		return f, &Error{f.Message}
	}
	return f, nil
}

func readLength(r io.Reader, most uint32) (uint32, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, unexpected(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > most {
		return 0, fmt.Errorf("the other side announced a block of %d bytes: this is not a copy", n)
	}
	return n, nil
}

// unexpected is the end of a connection in the middle of a copy.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// tell says to the other end why it is over. That end may be gone.
func tell(w io.Writer, why error) {
	message := why.Error()
	if len(message) > maxFrame/16 {
		message = message[:maxFrame/16]
	}
	_ = frame{Kind: kindError, Message: message}.write(w)
}
