package module

import (
	"slices"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// A Renewal selects the certificates to renew. The zero value selects
// certificates in the last fifth of their lifetime.
type Renewal struct {
	// All selects all certificates, whatever their remaining lifetime.
	All bool
	// Within selects certificates that expire within this time, if it is not 0.
	Within time.Duration
	// Names, if not empty, selects only these certificates, whatever their remaining
	// lifetime.
	Names []string
}

// DueFor returns when a certificate is renewed. wanted reports whether the certificate is
// selected.
func (r Renewal) DueFor(name string) (due op.Due, withinSeconds int64, wanted bool) {
	named := slices.Contains(r.Names, name)
	if r.All || named {
		return op.DueAlways, 0, len(r.Names) == 0 || named
	}
	return "", int64(r.Within / time.Second), len(r.Names) == 0
}
