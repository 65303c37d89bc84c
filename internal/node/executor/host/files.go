//go:build linux

package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
)

// Digest returns the SHA-256 of content, in hexadecimal.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ReadFile reads a file of the host; a missing one is empty.
func (h *Host) ReadFile(path string) ([]byte, error) {
	raw, err := atomicfile.ReadFile(h.DiskPath(path), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// MaxRead is the size limit of the results of op.ReadFile and op.PodLog, in bytes.
const MaxRead = 8 << 20

// HostPath returns the host's path for a path on disk.
func (h *Host) HostPath(p string) string {
	return strings.TrimPrefix(p, strings.TrimSuffix(filepath.Clean(h.Root), "/"))
}

// IsEmptyFile reports whether a path on disk is an empty file.
func IsEmptyFile(p string) bool {
	info, err := os.Lstat(p)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// IsFileName reports whether a name can be part of a file name and a unit name.
func IsFileName(name string) bool {
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(".-_", c)) {
			return false
		}
	}
	return name != "" && name[0] != '.' && name[0] != '-' && len(name) <= 100
}

// ReadText returns the content of the first readable file, trimmed.
func (h *Host) ReadText(paths ...string) string {
	for _, p := range paths {
		if raw, err := atomicfile.ReadFile(h.DiskPath(p), bounded.Config); err == nil {
			return strings.TrimSpace(string(raw))
		}
	}
	return ""
}

// Summarize names a few of many.
func Summarize(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

// NonEmpty returns the given paths.
func NonEmpty(paths ...string) []string {
	return slices.DeleteFunc(paths, func(p string) bool { return p == "" })
}

// StatOf returns the attributes of a file on Linux.
func StatOf(info fs.FileInfo) *syscall.Stat_t {
	st, _ := info.Sys().(*syscall.Stat_t)
	return st
}

// Exists reports whether there is a file, directory or link at a path on disk.
func Exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}
