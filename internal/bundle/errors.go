package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/safefile"
)

// Identifiers of this package's diagnostics, each with an entry in
// docs/guide/errors.md.
const (
	IDNotFound     = "bundle-not-found"
	IDInvalid      = "bundle-invalid"
	IDCorrupt      = "bundle-corrupt"
	IDUnreadable   = "bundle-unreadable"
	IDTruncated    = "bundle-truncated"
	IDArchMissing  = "bundle-arch-missing"
	IDPartMissing  = "bundle-part-missing"
	IDNoDocker     = "bundle-without-docker"
	IDDiskFull     = "disk-full"
	IDPull         = "bundle-pull-failed"
	IDUnknownArch  = "unknown-architecture"
	IDUnknownName  = "unknown-bundle-source"
	IDOut          = "bundle-out-unusable"
	IDPush         = "bundle-push-failed"
	IDReference    = "bundle-reference-invalid"
	IDCredentials  = "registry-credentials-unusable"
	IDRegistryCA   = "registry-ca-unusable"
	IDKey          = "bundle-key-invalid"
	IDKeyThere     = "bundle-key-exists"
	IDUnsigned     = "bundle-unsigned"
	IDSignature    = "bundle-signature-wrong"
	IDOldSignature = "bundle-signature-old"
	IDBase         = "bundle-base-missing"
	IDMerge        = "bundles-do-not-fit"
	IDWanted       = "bundle-manifest-invalid"
	IDExtra        = "extra-image-missing"
	IDUntagged     = "extra-image-untagged"
	IDForeign      = "cache-foreign"
)

func newProblem(id, hint, format string, args ...any) diag.List {
	return diag.List{{ID: id, Severity: diag.Error, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// explainError turns an error of reading or writing the bundle at path into a diagnostic if
// its cause is known.
func explainError(path string, err error) error {
	var d diag.List
	switch {
	case err == nil, errors.As(err, &d):
		return err
	case errors.As(err, new(*safefile.ForeignError)):
		return newProblem(IDForeign, "remove the link, or use the directory that the link points to",
			"%s cannot be used while Slipway runs as root: %v", path, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return newProblem(IDDiskFull, "free disk space, or move the cache with SLIPWAY_CACHE", "no space left for %s: %v", path, err)
	case errors.Is(err, layout.ErrArchive):
		return newProblem(IDTruncated, "copy the file again, and compare its size and checksum with the original", "%s: %v", path, err)
	case errors.Is(err, layout.ErrCorrupt), errors.Is(err, layout.ErrForm), errors.Is(err, fs.ErrNotExist) && layout.IsLayout(path):
		return newProblem(IDCorrupt, "copy or build the bundle again", "%s: %v", path, err)
	case errors.Is(err, fs.ErrNotExist):
		return newProblem(IDNotFound,
			"give a bundle directory, a .tar.zst file or a registry reference, or create a bundle: slipway bundle build",
			"%s: bundle not found: %v", path, err)
	}
	if errors.As(err, new(*fs.PathError)) {
		return newProblem(IDUnreadable, "check the permissions of the path, and check the disk", "%s: %v", path, err)
	}
	return fmt.Errorf("reading bundle %s: %w", path, err)
}
