package cli

import (
	"context"
	"errors"
	"fmt"

	"slipway.dev/slipway/internal/cli/sandboxcmd"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/move"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// reportError prints an error and returns the exit code.
func (c *console) reportError(ctx context.Context, err error) int {
	if err == nil || isReaderGone(err) {
		return exitDone
	}
	code := exitCodeForError(ctx, err)
	var program *sandboxcmd.ExitError
	var exit *exitError
	if errors.As(err, &program) || errors.As(err, &exit) && exit.err == nil {
		return code // already reported
	}
	c.printError(err, code)
	return code
}

// A failureReport is an error as JSON or YAML.
type failureReport struct {
	Type        string    `json:"type"` // "error"
	ExitCode    int       `json:"exitCode"`
	Message     string    `json:"message"`
	Diagnostics diag.List `json:"diagnostics,omitempty"`
	Operation   string    `json:"operation,omitempty"` // the operation that holds the lock
	Difference  string    `json:"difference,omitempty"`
}

// printError prints an error: as text on stderr, and with -o json or yaml also on stdout.
func (c *console) printError(err error, code int) {
	rep := failureReport{Type: "error", ExitCode: code, Message: err.Error()}
	var (
		locked  *lifecycle.LockedError
		stale   *lifecycle.StaleError
		list    diag.List
		between *betweenError
	)
	switch {
	case errors.As(err, &list):
		rep.Diagnostics = list
	case errors.As(err, &locked):
		rep.Operation = locked.Operation
		hint := "to watch the operation: slipway operations watch " + locked.Operation + "; to stop it: slipway cancel " + locked.Cluster
		switch {
		case locked.Operation == move.Holder:
			hint = "wait until the move has ended"
		case locked.Elsewhere:
			hint = "watch or stop the operation on that manager; if that manager is gone, try again in a minute"
		}
		rep.Diagnostics = diag.List{{ID: idLocked, Severity: diag.Error, Message: locked.Error(), Hint: hint}}
	case errors.Is(err, savedstate.ErrNotFound):
		const hint = "list clusters and operations: slipway get clusters; slipway operations list"
		rep.Diagnostics = diag.List{{ID: idNotFound, Severity: diag.Error, Message: err.Error(), Hint: hint}}
	case errors.As(err, &stale):
		rep.Difference = stale.Difference
		rep.Diagnostics = diag.List{{ID: idStale, Severity: diag.Error, Message: stale.Error()}}
		fmt.Fprint(c.Err, view.EscapeControls(stale.Difference))
	}
	if errors.As(err, &between) {
		rep.Diagnostics = between.explainCause(rep.Diagnostics, code)
	}
	switch {
	case len(rep.Diagnostics) > 0:
		view.WriteDiagnostics(c.Err, rep.Diagnostics, c.errStyle())
	case code == exitInterrupted:
		fmt.Fprintln(c.Err, "Stopped; nothing was changed.")
	default:
		view.WriteDiagnostics(c.Err, diag.List{{Message: err.Error()}}, c.errStyle())
	}
	if c.format != view.Text {
		_ = view.WriteItem(c.Out, c.format, rep) // the exit code also reports the error
	}
}
