package sandbox

import (
	"regexp"

	"slipway.dev/slipway/internal/diag"
)

// Identifiers of diagnostics, each with an entry in docs/guide/errors.md.
const (
	IDNeedsLinux     = "sandbox-needs-linux"
	IDNeedsRoot      = "sandbox-needs-root"
	IDMissingProgram = "sandbox-missing-program"
	IDHostSystem     = "sandbox-host-system"
	IDNoLoop         = "sandbox-no-loop"
	IDNoCgroups      = "sandbox-no-cgroups"
	IDNoSpace        = "sandbox-no-space"
	IDNoInternet     = "sandbox-no-internet"
	IDBadName        = "sandbox-bad-name"
	IDBadNumber      = "sandbox-bad-number"
	IDBadRange       = "sandbox-bad-range"
	IDBadFile        = "sandbox-bad-file"
	IDRangeTaken     = "sandbox-range-taken"
	IDNameTaken      = "sandbox-name-taken"
	IDOutputExists   = "output-exists"
	IDUnknown        = "sandbox-unknown"
	IDForeign        = "sandbox-foreign"
	IDMachineUnknown = "machine-unknown"
	IDMachineOff     = "machine-off"
)

// refuseWith returns a problem that the user can fix; nothing was changed.
func refuseWith(id, message, hint string) error {
	return diag.List{newProblem(id, message, hint)}
}

func newProblem(id, message, hint string) diag.Diagnostic {
	return diag.Diagnostic{ID: id, Severity: diag.Error, Message: message, Hint: hint}
}

// nameRE matches a valid label of a host name.
var nameRE = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)
