// Package transfer copies a file or a tree over a connection, with a sender on one end
// and a receiver on the other. A file gets its name complete and verified, or not at all;
// the received part of a large file is used by the next copy after a lost connection.
// Modes are kept, and the owners of replaced files; links are copied as links.
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
	// asked is the file size from which the sender asks for existing content.
	asked = 256 << 10
	// chunk is the size of a piece of content in one send.
	chunk = 64 << 10
	// maxFrame limits the description of a file.
	maxFrame = 64 << 10
	// maxSkipped limits how many skipped files are named, maxName and maxReason the bytes
	// of each: all must fit into a frame.
	maxSkipped = 10
	maxName    = 512
	maxReason  = 128
	// kept has the mode bits that are copied.
	kept = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
)

// A Progress is the progress of a copy, in bytes of content and in files.
type Progress struct {
	Done, Total     int64
	Files, AllFiles int
}

// A Summary is the result of a copy.
type Summary struct {
	// To is the path of the file or the tree.
	To    string `json:"to"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	// Skipped is the number of entries that could not be read and were skipped;
	// SkippedFiles are the first of them.
	Skipped      int       `json:"skipped,omitempty"`
	SkippedFiles []Skipped `json:"skippedFiles,omitempty"`
}

// Skipped is a skipped entry of a tree.
type Skipped struct {
	Path   string `json:"path"` // in the tree
	Reason string `json:"reason"`
}

// A missingError is a file that its sender could not read in its original state.
type missingError struct{ path, why string }

func (e *missingError) Error() string { return e.path + ": " + e.why }

// An Error is an error that the other end reported.
type Error struct{ Message string }

func (e *Error) Error() string { return e.Message }

// A BrokenError is a connection that was lost within a file. The received content is kept
// in Part, and the next copy continues with it.
type BrokenError struct {
	Part string
	Err  error
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("%v; the received part is in %s", e.Err, e.Part)
}

func (e *BrokenError) Unwrap() error { return e.Err }

type kind string

const (
	kindBegin kind = "begin" // from the sender: the following entries
	kindDir   kind = "dir"
	kindFile  kind = "file"
	kindLink  kind = "link"
	kindSkip  kind = "skip"  // from the sender: it cannot be read, Message is the reason
	kindEnd   kind = "end"   // from the sender: the end of the entries
	kindAt    kind = "at"    // from the receiver, first: everything is written to Path
	kindHave  kind = "have"  // from the receiver: continue at Size; in Path, which it keeps
	kindDone  kind = "done"  // from the receiver: everything is at its path
	kindError kind = "error" // from either: the copy has failed
)

// A frame is a description or an answer. The content of a file follows its frame in
// chunks: four bytes of length and the content. A length of 0 is followed by a frame with
// the reason why there is no more: a skip, or an error.
type frame struct {
	Kind kind `json:"kind"`
	// Path is relative to the tree, with slashes; "." is its root. A path from a receiver
	// is absolute.
	Path   string      `json:"path,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	Size   int64       `json:"size,omitempty"`
	Digest string      `json:"digest,omitempty"` // SHA-256, hex
	Link   string      `json:"link,omitempty"`
	// Name is the name of the root at the sender.
	Name  string `json:"name,omitempty"`
	Files int    `json:"files,omitempty"`
	// Entries is the number of frames between begin and end.
	Entries int      `json:"entries,omitempty"`
	Message string   `json:"message,omitempty"`
	Summary *Summary `json:"summary,omitempty"`
}

// plain is a frame whose names would change in JSON if they are not UTF-8.
type plain frame

// exactly has the unchanged names of a frame.
type exactly struct {
	*plain
	Path exact.Text `json:"path,omitempty"`
	Link exact.Text `json:"link,omitempty"`
	Name exact.Text `json:"name,omitempty"`
}

func (f frame) encodeFrame() ([]byte, error) {
	return json.Marshal(exactly{(*plain)(&f), exact.Text(f.Path), exact.Text(f.Link), exact.Text(f.Name)})
}

func (f *frame) decodeFrame(raw []byte) error {
	e := exactly{plain: (*plain)(f)}
	err := json.Unmarshal(raw, &e)
	f.Path, f.Link, f.Name = string(e.Path), string(e.Link), string(e.Name)
	return err
}

func (f frame) writeTo(w io.Writer) error {
	raw, err := f.encodeFrame()
	if err != nil {
		return fmt.Errorf("encoding a message of the copy: %w", err)
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
		return f, unexpectedEnd(err)
	}
	if err := f.decodeFrame(raw); err != nil {
		return f, fmt.Errorf("reading a message of the copy: %w", err)
	}
	if f.Kind == kindError {
		return f, &Error{f.Message}
	}
	return f, nil
}

func readLength(r io.Reader, most uint32) (uint32, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, unexpectedEnd(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > most {
		return 0, fmt.Errorf("the other side announced a block of %d bytes: this is not a copy", n)
	}
	return n, nil
}

// unexpectedEnd reports the end of a connection in the middle of a copy.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// sendReason sends the reason for the end to the other end, which may be gone.
func sendReason(w io.Writer, why error) {
	message := why.Error()
	if len(message) > maxFrame/16 {
		message = message[:maxFrame/16]
	}
	_ = frame{Kind: kindError, Message: message}.writeTo(w)
}
