package inspect

import (
	"cmp"
	"fmt"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
)

// warnFunc adds a warning.
type warnFunc func(id, host, hint, format string, args ...any)

// warnInto returns the function that adds warnings to a list.
func warnInto(list *diag.List) warnFunc {
	return func(id, host, hint, format string, args ...any) {
		*list = append(*list, diag.Diagnostic{ID: id, Severity: diag.Warning, Host: host, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
}

// warnUnreachable warns about a host that could not be queried. The id is for errors
// without one.
func (h *Host) warnUnreachable(id string, warn warnFunc) {
	d := hostconn.Diagnose(h.Err)
	warn(cmp.Or(d.ID, id), h.Spec.Name, d.Hint, "%s", d.Message)
}
