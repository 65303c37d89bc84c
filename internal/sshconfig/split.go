package sshconfig

import (
	"errors"
	"strings"
)

const blank = " \t\r\f"

// splitLine takes a line apart: its keyword in lower case, and its values. A line
// without any has no keyword.
func splitLine(line string) (key string, args []string, err error) {
	line = strings.Trim(line, blank)
	if line == "" || line[0] == '#' {
		return "", nil, nil
	}
	end := strings.IndexAny(line, blank+"=")
	if end < 0 {
		return strings.ToLower(line), nil, nil
	}
	rest := strings.TrimLeft(line[end:], blank)
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), blank)
	key = strings.ToLower(line[:end])
	if key == "proxycommand" { // the rest of the line, whatever it is
		return key, []string{rest}, nil
	}
	args, err = splitWords(rest)
	if err != nil && !used[key] {
		return key, nil, nil // what its words are does not matter
	}
	return key, args, err
}

// splitWords are separated by blanks, with quotes as in ssh; a word that begins with
// # begins a comment.
func splitWords(text string) (out []string, err error) {
	for {
		text = strings.TrimLeft(text, blank)
		if text == "" || text[0] == '#' {
			return out, nil
		}
		var word strings.Builder
		var quote byte
		for ; text != "" && (quote != 0 || !strings.ContainsRune(blank, rune(text[0]))); text = text[1:] {
			c := text[0]
			switch {
			case c == '\\' && isEscape(text, quote):
				word.WriteByte(text[1])
				text = text[1:]
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case quote != 0 && c == quote:
				quote = 0
			default:
				word.WriteByte(c)
			}
		}
		if quote != 0 {
			return nil, errors.New("a quote is not closed")
		}
		out = append(out, word.String())
	}
}

// isEscape reports whether a backslash is for the byte after it.
func isEscape(text string, quote byte) bool {
	return len(text) > 1 && (strings.IndexByte(`"'\`, text[1]) >= 0 || quote == 0 && text[1] == ' ')
}
