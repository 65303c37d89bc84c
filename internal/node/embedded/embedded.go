// Package embedded holds the node helper's programs, one for each
// architecture, compressed. They are made by `make build` and are not in
// version control: a bare clone builds without them.
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

// ErrMissing is a program that was built without its helpers.
var ErrMissing = errors.New("this slipway was built without its node helper: run `make build`")

// A Helper is the node helper's program for one architecture.
type Helper struct {
	Arch string // GOARCH
	// SHA256 is of the program as it runs, in hex; Size is its bytes.
	SHA256 string
	Size   int64
	packed *io.SectionReader
}

// Packed reads the program, compressed, from its beginning. It is not copied:
// one may be on its way to a thousand hosts.
func (h Helper) Packed() *io.SectionReader {
	return io.NewSectionReader(h.packed, 0, h.packed.Size())
}

// Name is the helper's file name on a host: it says what the content is.
func (h Helper) Name() string { return "slipway-node-" + h.SHA256[:12] }

// Find gives the helper for a Linux host of the architecture (GOARCH).
func Find(arch string) (Helper, error) {
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
	return Parse(arch, io.NewSectionReader(f.(io.ReaderAt), 0, info.Size())) // embed.FS promises it
}

// Parse reads what Pack made. It looks at the header alone.
func Parse(arch string, packed *io.SectionReader) (Helper, error) {
	h := Helper{Arch: arch, packed: packed}
	zr, err := gzip.NewReader(h.Packed())
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
