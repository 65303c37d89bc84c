package module

import (
	"slices"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// A Renewal says which certificates are renewed: those in the last fifth of
// their time, if it says nothing.
type Renewal struct {
	// All are renewed whatever is left of their time.
	All bool
	// Within is how long before its end one is renewed, if it is not 0.
	Within time.Duration
	// Names, if any, are the only ones, whatever is left of their time.
	Names []string
}

// Due is when a certificate is renewed; wanted says whether it is one of those
// that are meant.
func (r Renewal) Due(name string) (due op.Due, withinSeconds int64, wanted bool) {
	named := slices.Contains(r.Names, name)
	if r.All || named {
		return op.DueAlways, 0, len(r.Names) == 0 || named
	}
	return "", int64(r.Within / time.Second), len(r.Names) == 0
}
