// Package diag defines diagnostics for the user: the problem, its place, and what to do.
// Every diagnostic has a stable ID with an entry in docs/guide/errors.md.
package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity is the severity of a diagnostic.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// A Diagnostic is one problem.
type Diagnostic struct {
	ID       string   `json:"id"` // "unknown-field"
	Severity Severity `json:"severity"`
	// File, Line and Column (from 1) are the place; 0 is unknown.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Path is the field: "spec.hosts[2].address".
	Path    string `json:"path,omitempty"`
	Host    string `json:"host,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// String returns one line, with the hint on a second line.
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(d.File)
		if d.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", d.Line, d.Column)
		}
		b.WriteString(": ")
	}
	if d.Host != "" {
		b.WriteString(d.Host + ": ")
	}
	if d.Path != "" {
		b.WriteString(d.Path + ": ")
	}
	if d.Severity == Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(d.Message)
	if d.ID != "" {
		b.WriteString(" [" + d.ID + "]")
	}
	if d.Hint != "" {
		b.WriteString("\n    hint: " + d.Hint)
	}
	return b.String()
}

// A List has all problems at once. As an error it means rejected input: nothing was
// changed.
type List []Diagnostic

func (l List) Error() string {
	lines := make([]string, len(l))
	for i, d := range l {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// Refuse returns the error for input that is refused for one reason.
func Refuse(id, message, hint string) List {
	return List{{ID: id, Severity: Error, Message: message, Hint: hint}}
}

// Errors returns the diagnostics that are not warnings.
func (l List) Errors() List {
	var out List
	for _, d := range l {
		if d.Severity != Warning {
			out = append(out, d)
		}
	}
	return out
}

// Err returns the list of errors, nil if there are none.
func (l List) Err() error {
	if e := l.Errors(); len(e) > 0 {
		return e
	}
	return nil
}

// Warnings returns the warnings.
func (l List) Warnings() List {
	var out List
	for _, d := range l {
		if d.Severity == Warning {
			out = append(out, d)
		}
	}
	return out
}

// Sort sorts by place in the file; diagnostics without a place come last, in their
// original order.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b Diagnostic) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
