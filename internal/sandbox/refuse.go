package sandbox

import (
	"regexp"

	"slipway.dev/slipway/internal/diag"
)

// refuse is a problem the user can mend; nothing was touched.
func refuse(id, message, hint string) error {
	return diag.List{problem(id, message, hint)}
}

func problem(id, message, hint string) diag.Diagnostic {
	return diag.Diagnostic{ID: id, Severity: diag.Error, Message: message, Hint: hint}
}

// nameRE is what a host name's label allows.
var nameRE = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)
