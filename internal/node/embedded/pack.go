package embedded

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
)

// Pack compresses a helper program. The comment in the header has digest and size, so
// that neither needs decompression at run time; equal programs give equal bytes.
func Pack(program []byte) ([]byte, error) {
	var b bytes.Buffer
	zw, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("packing a node helper: %w", err)
	}
	zw.Comment = fmt.Sprintf("%x %d", sha256.Sum256(program), len(program))
	if _, err := zw.Write(program); err != nil {
		return nil, fmt.Errorf("packing a node helper: %w", err)
	}
	if err := zw.Close(); err != nil {
		return nil, fmt.Errorf("packing a node helper: %w", err)
	}
	return b.Bytes(), nil
}
