package view

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/plan"
)

// Plan writes a plan for people, with all its changes or in brief.
func Plan(w io.Writer, p *plan.Plan, brief bool, s Style) error {
	var b strings.Builder
	write := p.Text
	if brief {
		write = p.Brief
	}
	if err := write(&b); err != nil {
		return err
	}
	text := s.Text(b.String())
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

// Diagnostics writes problems for people, one below the other.
func Diagnostics(w io.Writer, list diag.List, s Style) {
	p := paint(s.Colour)
	for _, d := range list {
		text := s.Text(d.String())
		if d.Severity == diag.Warning {
			text = strings.Replace(text, "warning:", p.in(yellow, "warning:"), 1)
		} else {
			text = p.in(red, "error:") + " " + text
		}
		fmt.Fprintln(w, text)
	}
}

// Table writes rows below a head, if there is one, in columns.
func Table(w io.Writer, head []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	if len(head) > 0 {
		fmt.Fprintln(t, strings.Join(head, "\t"))
	}
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}
