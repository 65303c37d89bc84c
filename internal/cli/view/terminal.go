package view

import (
	"os"

	"golang.org/x/term"
)

// IsTerminal says whether f is a terminal, of whatever kind.
func IsTerminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// TerminalSize is the size of a terminal; one that does not know it has 80 × 24.
func TerminalSize(f *os.File) (columns, rows int) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return 80, 24
	}
	return w, h
}
