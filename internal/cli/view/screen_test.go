package view

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// screen is a terminal with the functions that a live view needs. An unknown escape
// sequence fails the test. Lines that scroll off the top remain in lines.
type screen struct {
	t             *testing.T
	columns, rows int
	lines         [][]rune
	row, col      int
	hidden        bool
	writes        int
}

func (s *screen) Write(b []byte) (int, error) {
	s.writes++
	text := string(b)
	for len(text) > 0 {
		if strings.HasPrefix(text, "\x1b[") {
			end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' })
			if end < 0 {
				s.t.Fatalf("an escape sequence is split: %q", text)
			}
			s.applySequence(text[2:2+end], text[2+end])
			text = text[3+end:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		s.putRune(r)
	}
	return len(b), nil
}

func (s *screen) applySequence(arg string, final byte) {
	switch {
	case final == 'm':
	case final == 'A':
		n, err := strconv.Atoi(arg)
		if err != nil {
			s.t.Fatal(err)
		}
		s.row = max(s.row-n, max(0, len(s.lines)-s.rows)) // never above the top
	case final == 'K' && arg == "":
		s.ensureRow(s.row)
		s.lines[s.row] = s.lines[s.row][:min(s.col, len(s.lines[s.row]))]
	case final == 'J' && arg == "":
		s.ensureRow(s.row)
		s.lines = s.lines[:s.row+1]
		s.lines[s.row] = s.lines[s.row][:min(s.col, len(s.lines[s.row]))]
	case arg == "?25" && (final == 'l' || final == 'h'):
		s.hidden = final == 'l'
	default:
		s.t.Fatalf("unknown sequence %q%c", arg, final)
	}
}

func (s *screen) putRune(r rune) {
	switch {
	case r == '\n':
		s.row, s.col = s.row+1, 0
		s.ensureRow(s.row)
	case r == '\r':
		s.col = 0
	case r < ' ':
		s.t.Fatalf("control character %q", r)
	default:
		if s.col == s.columns {
			s.row, s.col = s.row+1, 0
		}
		s.ensureRow(s.row)
		for len(s.lines[s.row]) <= s.col {
			s.lines[s.row] = append(s.lines[s.row], ' ')
		}
		s.lines[s.row][s.col] = r
		s.col++
	}
}

func (s *screen) ensureRow(row int) {
	for len(s.lines) <= row {
		s.lines = append(s.lines, nil)
	}
}

// resize wraps lines again, as terminals do.
func (s *screen) resize(columns int) {
	var out [][]rune
	for i, l := range s.lines {
		if i == s.row {
			s.row = len(out)
		}
		for len(l) > columns {
			out, l = append(out, l[:columns]), l[columns:]
		}
		out = append(out, l)
	}
	s.lines, s.columns = out, columns
}

// String returns everything that was on the screen and was not overwritten.
func (s *screen) String() string {
	var b strings.Builder
	for _, l := range s.lines {
		b.WriteString(strings.TrimRight(string(l), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
