package cli

import (
	"fmt"

	"slipway.dev/slipway/internal/diag"
)

// Identifiers of this package's diagnostics.
const (
	idUsage        = "usage"
	idLocked       = "locked"
	idStale        = "plan-stale"
	idPlanChanged  = "plan-changed"
	idNoCluster    = "no-cluster"
	idNotFound     = "not-found"
	idWhichCluster = "which-cluster"
	idNameMismatch = "name-mismatch"
	idOldCgroups   = "old-cgroups"
	idName         = "invalid-name"
	idFile         = "file-unreadable"
	idCacheForeign = "cache-foreign"
	idNoTerminal   = "no-terminal"
	idNotConfirmed = "not-confirmed"
	idRemoval      = "removal-not-allowed"
	idNoOperation  = "no-operation"
	idPluginFailed = "plugin-failed"
	idCopySkipped  = "copy-skipped"
	idBetween      = "upgrade-between-minors"
)

// newProblem returns an error with one diagnostic.
func newProblem(id, hint, format string, args ...any) error {
	return diag.List{{ID: id, Severity: diag.Error, Message: fmt.Sprintf(format, args...), Hint: hint}}
}
