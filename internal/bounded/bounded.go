// Package bounded reads bytes that others have written, up to a limit: no host, pod,
// registry or file can make its reader take all memory. The limits are in limits.go.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A LimitError reports that something has more bytes than its reader takes.
type LimitError struct{ Limit int64 }

func (e *LimitError) Error() string { return fmt.Sprintf("it has more than %d bytes", e.Limit) }

// ReadAll reads r to its end. Of more than limit bytes it returns the first limit, and
// a *LimitError.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(data)) > limit {
		return data[:limit], &LimitError{limit}
	}
	return data, err
}

// ReadFile reads a regular file as ReadAll does. Anything else, such as a pipe, is an
// error at once. All errors are *fs.PathError.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f, limit)
}

// ReadArgument reads a file that the user names. Unlike ReadFile it takes a pipe, which
// shells make of <(…), and a device.
func ReadArgument(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f, limit)
}

func readLimited(f *os.File, limit int64) ([]byte, error) {
	data, err := ReadAll(f, limit)
	var over *LimitError
	if errors.As(err, &over) {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: over}
	}
	return data, err
}
