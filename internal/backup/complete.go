package backup

import (
	"archive/tar"
	"errors"
	"io"
	"os"

	"filippo.io/age"

	"slipway.dev/slipway/internal/bounded"
)

// CheckComplete returns an *Error if the file of a set is incomplete. It reads the names and
// sizes of the members, and skips their content: a list of large sets takes little time, but
// a changed byte is not noticed. Of an encrypted set it can compare only the size: it notices
// nearly every set that was truncated.
func CheckComplete(file string, form Form, files []File) error {
	f, err := bounded.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	start := make([]byte, len(sealed))
	if _, err := f.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if string(start) == sealed {
		return checkSealedSize(f, info.Size())
	}
	return checkMembers(f, info.Size(), form, files)
}

// checkMembers compares the members of a set that is not encrypted, and its end.
func checkMembers(f *os.File, size int64, form Form, files []File) error {
	t := tar.NewReader(f) // it seeks over content
	want := int64(ending)
	for next := 0; next < len(files); {
		h, err := t.Next()
		if err != nil {
			return newError(Damaged, "the set is incomplete or damaged before %.80q", files[next].Name)
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		want = at + roundUp(h.Size) + ending
		if next == 0 && (h.Name == form.Header || h.Name == form.Signature) {
			continue
		}
		if is := files[next]; h.Name != is.Name || h.Size != is.Bytes {
			return newError(Damaged, "the set has %.80q (%d bytes) instead of %.80q (%d bytes)", h.Name, h.Size, is.Name, is.Bytes)
		}
		next++
	}
	if size != want {
		return newError(Damaged, "the set is incomplete or damaged at its end: it has %d bytes instead of %d", size, want)
	}
	return nil
}

func roundUp(bytes int64) int64 { return (bytes + block - 1) / block * block }

const (
	// sealedNonce, sealedChunk and sealedTag are sizes in the format of age: of the nonce
	// behind the header, of a chunk of data, and of the tag behind each chunk.
	sealedNonce = 16
	sealedChunk = 64 << 10
	sealedTag   = 16
)

// checkSealedSize compares the size of an encrypted set: the size of its content is a number
// of whole blocks.
func checkSealedSize(f *os.File, size int64) error {
	header, err := age.ExtractHeader(io.LimitReader(f, maxManifest))
	if err != nil {
		return newError(Damaged, "the set's encryption is damaged: %v", err)
	}
	left := size - int64(len(header)) - sealedNonce
	chunks := (left + sealedChunk + sealedTag - 1) / (sealedChunk + sealedTag)
	if plain := left - chunks*sealedTag; plain < ending || plain%block != 0 {
		return newError(Damaged, "the encrypted set is incomplete: %d bytes cannot be its size", size)
	}
	return nil
}
