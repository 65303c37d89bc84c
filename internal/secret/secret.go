// Package secret defines a string that redacts itself wherever it is printed, and the
// sources of secrets.
package secret

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// Redacted is the printed form of a secret.
const Redacted = "[redacted]"

// A String is a secret. Only Reveal returns its text: fmt, slog, JSON and YAML print
// Redacted. The zero value holds no secret and prints as "".
type String struct {
	// A pointer, because fmt reads unexported fields of structs that hold a String
	// without calling its methods; for a pointer it prints the address.
	text *string
}

var (
	_ fmt.Formatter  = String{}
	_ slog.LogValuer = String{}
)

// New returns a secret with this text; "" is the zero value.
func New(text string) String {
	if text == "" {
		return String{}
	}
	return String{text: &text}
}

// Reveal returns the text. It must not be stored in anything that is printed.
func (s String) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no secret.
func (s String) IsZero() bool { return s.text == nil }

// Equal compares in a time that does not depend on the contents.
func (s String) Equal(other String) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String returns Redacted, or "" for no secret.
func (s String) String() string {
	if s.text == nil {
		return ""
	}
	return Redacted
}

// Format prints String for every verb: %x, %d and %#v reveal no more than %v.
func (s String) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' {
		text = `"` + text + `"`
	}
	_, _ = io.WriteString(f, text) // a fmt.State never fails
}

// LogValue returns String.
func (s String) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns String: for JSON, XML and map keys.
func (s String) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML returns String.
func (s String) MarshalYAML() (any, error) { return s.String(), nil }
