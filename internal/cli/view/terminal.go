package view

import (
	"os"

	"golang.org/x/term"
)

// IsTerminal reports whether f is a terminal of any kind.
func IsTerminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// TerminalSize returns the size of a terminal, or 80 × 24 if the size is unknown.
func TerminalSize(f *os.File) (columns, rows int) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return 80, 24
	}
	return w, h
}
