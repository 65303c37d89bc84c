package view

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/plan"
)

// WritePlan writes a plan for people, with its changes or, if brief, without them.
func WritePlan(w io.Writer, p *plan.Plan, brief bool, s Style) error {
	var b strings.Builder
	write := p.WriteText
	if brief {
		write = p.WriteBrief
	}
	if err := write(&b); err != nil {
		return err
	}
	text := s.Text(EscapeControls(b.String()))
	if s.Colour {
		text = paintPlan(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

func paintPlan(text string) string {
	codes := map[string]string{"+ ": green, "~ ": yellow, "- ": red}
	var b strings.Builder
	removes := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		bare := strings.TrimLeft(line, " ")
		indent := len(line) - len(bare)
		code := ""
		switch {
		case line == "This removes:":
			code, removes = red, true
		case indent == 0 && line != "":
			code, removes = bold, false
		case removes && bare != "":
			code = red
		case indent == 4 && len(bare) > 1:
			code = codes[bare[:2]]
		case indent >= 8 && strings.HasPrefix(bare, "+"):
			code = green
		case indent >= 8 && strings.HasPrefix(bare, "-"):
			code = red
		}
		b.WriteString(paint(true).in(code, line) + "\n")
	}
	return b.String()
}

// WriteDiagnostics writes problems for people, one below the other. A problem that
// several hosts have is written once.
func WriteDiagnostics(w io.Writer, list diag.List, s Style) {
	p := paint(s.Colour)
	shown := make(diag.List, len(list))
	for i, d := range list {
		d.File, d.Host, d.Path = diag.EscapeControls(d.File, ""), diag.EscapeControls(d.Host, ""), omitMiddle(diag.EscapeControls(d.Path, ""))
		d.Message, d.Hint = omitMiddle(EscapeControls(d.Message)), omitMiddle(EscapeControls(d.Hint))
		shown[i] = d
	}
	for _, d := range mergeFindings(shown) {
		text := s.Text(d.String())
		if d.Severity == diag.Warning {
			text = strings.Replace(text, "warning:", p.in(yellow, "warning:"), 1)
		} else {
			text = p.in(red, "error:") + " " + text
		}
		fmt.Fprintln(w, text)
	}
}

// WriteTable writes rows in columns, below a head if one is given.
func WriteTable(w io.Writer, head []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	if len(head) > 0 {
		fmt.Fprintln(t, strings.Join(head, "\t"))
	}
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = diag.EscapeControls(cell, "")
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// layoutControls holds the control characters that lay out a text of several lines.
const layoutControls = "\n\t"

// EscapeControls returns a text of several lines without characters that control the
// terminal.
func EscapeControls(text string) string { return diag.EscapeControls(text, layoutControls) }

// maxTextLength limits how much of a text is shown, in characters.
const maxTextLength = 4000

// omitMiddle returns a text, without its middle if it is longer than maxTextLength.
func omitMiddle(text string) string {
	all := []rune(text)
	left := len(all) - maxTextLength
	if left <= 0 {
		return text
	}
	return fmt.Sprintf("%s … (%d characters omitted) … %s", string(all[:maxTextLength/2]), left, string(all[len(all)-maxTextLength/2:]))
}
