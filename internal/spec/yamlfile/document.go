// Package yamlfile reads YAML files strictly: it decodes them into Go values by their
// json tags, and records the place of every field and every problem. It also writes YAML
// with comments.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/internal/diag"
)

// ReadDocuments returns the non-empty documents of a file, at least one, or a
// diagnostic.
func ReadDocuments(file string, data []byte) ([]*yaml.Node, *diag.Diagnostic) {
	var found []*yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			problem := syntaxError(file, data, err)
			return nil, &problem
		}
		if len(doc.Content) > 0 && doc.Content[0].ShortTag() != "!!null" {
			found = append(found, &doc)
		}
	}
	if len(found) == 0 {
		return nil, &diag.Diagnostic{
			ID: idEmptyFile, Severity: diag.Error, File: file,
			Message: "the file is empty", Hint: "run 'slipway create config' to write a complete file",
		}
	}
	return found, nil
}

// badCharacter returns the offset of the first byte that is not UTF-8 or begins a control
// character that YAML does not allow; -1 if there is none.
func badCharacter(data []byte) int {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r) {
			return at
		}
		at += size
	}
	return -1
}

var syntaxLine = regexp.MustCompile(`line (\d+): `)

// syntaxError adds a place to an error of the YAML parser, which has only a line.
func syntaxError(file string, data []byte, err error) diag.Diagnostic {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	out := diag.Diagnostic{
		ID: idSyntax, Severity: diag.Error, File: file,
		Hint: "check the indentation, colons and quotes on this line and above it",
	}
	if m := syntaxLine.FindStringSubmatch(text); m != nil {
		out.Line, _ = strconv.Atoi(m[1]) // digits by the expression
		text = strings.Replace(text, m[0], "", 1)
	}
	out.Message = "the file is not valid YAML: " + text
	if at := badCharacter(data); out.Line == 0 && at >= 0 {
		out.Line, out.Column = bytes.Count(data[:at], []byte("\n"))+1, at-bytes.LastIndexByte(data[:at], '\n')
		out.Message = fmt.Sprintf("the file is not text in UTF-8: the byte 0x%02x at this place is not allowed", data[at])
		out.Hint = "remove the byte, or save the file as text in UTF-8"
		return out
	}
	lines := strings.Split(string(data), "\n")
	if out.Line > 0 && out.Line <= len(lines) {
		line := lines[out.Line-1]
		plain := strings.TrimLeft(line, " \t")
		out.Column = len(line) - len(plain) + 1
		if strings.Contains(line[:out.Column-1], "\t") {
			out.Hint = "use spaces to indent: YAML does not allow tabs"
		}
	}
	return out
}
