package supportbundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// idIncomplete is the id of warnings. It has an entry in docs/guide/errors.md, and never
// changes.
const idIncomplete = "dump-incomplete"

// addMissing notes that data is missing.
func (d *archive) addMissing(what string, err error) {
	reason := d.plainReason(err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missing = append(d.missing, what+": "+reason)
}

// plainReason returns the text of an error for people, without secrets and on one line.
func (d *archive) plainReason(err error) string {
	text := strings.NewReplacer(
		context.DeadlineExceeded.Error(), "no response within the time limit",
		context.Canceled.Error(), "the query was cancelled", "\n", "; ",
	).Replace(err.Error())
	return string(d.redactor.redactText([]byte(text)))
}

// formatMissing returns the list of missing data.
func (d *archive) formatMissing() []byte {
	if len(d.missing) == 0 {
		return []byte("No data is missing.\n")
	}
	slices.Sort(d.missing)
	return []byte("The support bundle lacks this data. Each line has the name of a file, and the reason.\n\n" +
		strings.Join(d.missing, "\n") + "\n")
}

func (d *archive) warn(host, message, hint string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.warnings = append(d.warnings, diag.Diagnostic{ID: idIncomplete, Severity: diag.Warning, Host: host, Message: message, Hint: hint})
}

// reportHost notes and warns that data of a host is missing: all of it, or files.
func (d *archive) reportHost(h *inspect.Host, files []string) {
	at, cause, hint := "hosts/"+h.Spec.Name, "", "make the host reachable, and run the command again"
	if h.Err != nil {
		is := hostconn.Diagnose(h.Err)
		cause, hint = d.plainReason(errors.New(is.Message)), cmp.Or(is.Hint, hint)
	}
	switch {
	case h.Err == nil && len(files) == 0:
	case h.Err == nil:
		d.warn(h.Spec.Name, "the support bundle lacks data of this host, whose programs did not end in time: "+listNames(files),
			"check whether the host or its disk is overloaded: slipway ssh "+h.Spec.Name)
	case len(files) == 0: // it was not reached
		d.addMissing(at, h.Err)
		d.warn(h.Spec.Name, "the support bundle has no data of this host: "+cause, hint)
	default:
		d.addMissing(at, fmt.Errorf("%s: %w", strings.Join(files, ", "), h.Err))
		d.warn(h.Spec.Name, "the support bundle lacks data of this host ("+listNames(files)+"): "+cause, hint)
	}
}

// listNames lists names in a message: the first ones, and the number of the others.
func listNames(names []string) string {
	const most = 3
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
