// Package embedded contains the node helper programs, one for each architecture,
// compressed. `make build` creates them and they are not in version control: a fresh
// clone builds without them.
package embedded

import (
	"compress/gzip"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed *
var files embed.FS

// ErrMissing reports a program that was built without its helpers.
var ErrMissing = errors.New("this slipway was built without its node helper: run `make build`")

// A Helper is the node helper's program for one architecture.
type Helper struct {
	Arch string // GOARCH
	// SHA256 is the digest of the uncompressed program, in hex; Size is its size in
	// bytes.
	SHA256 string
	Size   int64
	packed *io.SectionReader
}

// PackedReader reads the compressed program from its beginning. It is not copied, because one
// may be sent to a thousand hosts.
func (h Helper) PackedReader() *io.SectionReader {
	return io.NewSectionReader(h.packed, 0, h.packed.Size())
}

// FileName returns the file name of the helper on a host, which identifies its content.
func (h Helper) FileName() string { return "slipway-node-" + h.SHA256[:12] }

// FindHelper returns the helper for a Linux host of the architecture (GOARCH).
func FindHelper(arch string) (Helper, error) {
	f, err := files.Open("slipway-node-linux-" + arch + ".gz")
	switch {
	case errors.Is(err, fs.ErrNotExist) && (arch == "amd64" || arch == "arm64"):
		return Helper{}, ErrMissing
	case err != nil:
		return Helper{}, fmt.Errorf("no node helper is available for the architecture %q", arch)
	}
	info, err := f.Stat()
	if err != nil {
		return Helper{}, fmt.Errorf("reading the node helper for %s: %w", arch, err)
	}
	return ParseHelper(arch, io.NewSectionReader(f.(io.ReaderAt), 0, info.Size())) // embed.FS guarantees it
}

// ParseHelper reads the output of Pack. It only reads the header.
func ParseHelper(arch string, packed *io.SectionReader) (Helper, error) {
	h := Helper{Arch: arch, packed: packed}
	zr, err := gzip.NewReader(h.PackedReader())
	if err != nil {
		return Helper{}, fmt.Errorf("reading the node helper for %s: %w", arch, err)
	}
	sum, size, _ := strings.Cut(zr.Comment, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	if b, herr := hex.DecodeString(sum); err != nil || herr != nil || len(b) != 32 || n <= 0 {
		return Helper{}, fmt.Errorf("reading the node helper for %s: it was not packed by `make build`", arch)
	}
	h.SHA256, h.Size = sum, n
	return h, nil
}
