package view

import (
	"strings"
	"unicode/utf8"
)

// span is a piece of text in one colour.
type span struct{ text, code string }

// fitSpans cuts a line to a width.
func fitSpans(line []span, width int, unicode bool) []span {
	left := width
	for i, s := range line {
		n := utf8.RuneCountInString(s.text)
		if n > left {
			line[i].text = truncate(s.text, left, unicode)
			return line[:i+1]
		}
		left -= n
	}
	return line
}

func joinText(line []span) string {
	var b strings.Builder
	for _, s := range line {
		b.WriteString(s.text)
	}
	return b.String()
}

func paintSpans(line []span, p paint) string {
	var b strings.Builder
	for _, s := range line {
		if s.code == "" {
			b.WriteString(s.text)
			continue
		}
		b.WriteString(p.in(s.code, s.text))
	}
	return b.String()
}
