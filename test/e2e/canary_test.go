package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
)

// secrets maps descriptions to secret texts.
type secrets map[string]string

// canaries holds the searched texts: all forms of each secret.
type canaries map[string][][]byte

func (s secrets) makeCanaries() canaries {
	c := canaries{}
	for name, secret := range s {
		for _, form := range secretForms(secret) {
			c[name] = append(c[name], []byte(form))
		}
	}
	return c
}

// findIn returns the names of the secrets that data contains: raw, as base64 at any
// alignment, or as hex.
func (c canaries) findIn(data []byte) []string {
	var names []string
	for name, forms := range c {
		if slices.ContainsFunc(forms, func(form []byte) bool { return bytes.Contains(data, form) }) {
			names = append(names, name)
		}
	}
	return names
}

// secretForms are how a secret may be written down: raw, in hex, in base64 at any
// alignment; and the same of its longest part that no quoting touches.
func secretForms(secret string) []string {
	out := formsOf(secret)
	if c := longestPart(secret); c != secret && len(c) >= shortest {
		out = append(out, formsOf(c)...)
	}
	return out
}

// shortest is the length that no accident has.
const shortest = 12

var unquoted = regexp.MustCompile(`[A-Za-z0-9-]+`)

func longestPart(secret string) (longest string) {
	for _, part := range unquoted.FindAllString(secret, -1) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

func formsOf(secret string) []string {
	out := []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret)))}
	for shift := range 3 {
		// The first and last characters also depend on the neighbours.
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + secret))
		text = text[(shift*8+5)/6 : len(text)-1]
		out = append(out, text, strings.NewReplacer("+", "-", "/", "_").Replace(text))
	}
	return out
}

// middleLine is a line of a key in PEM, as it would be quoted; the first lines
// hold its public half, which certificates do as well.
func middleLine(key string) string {
	lines := strings.Split(strings.TrimSpace(key), "\n")
	return lines[len(lines)/2]
}
