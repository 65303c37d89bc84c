package filesdir

import (
	"context"
	"errors"

	"slipway.dev/slipway/internal/records"
)

// NoFiles are the files of a service that only reads the records.
type NoFiles struct{}

var (
	_ records.Files = NoFiles{}

	errNoFiles = errors.New("the records were opened without files")
)

// KnownHosts returns "": there are no host keys.
func (NoFiles) KnownHosts() string { return "" }

// Kubeconfig returns an error.
func (NoFiles) Kubeconfig(context.Context, string, []byte) (string, func(), error) {
	return "", nil, errNoFiles
}

// ClusterFile returns an error.
func (NoFiles) ClusterFile(context.Context, string, string) (string, error) { return "", errNoFiles }

// TempDir returns "": there is no directory.
func (NoFiles) TempDir() string { return "" }

// Close does nothing.
func (NoFiles) Close() error { return nil }
