package messages

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const head = `<!-- Generated from internal/diag/messages by 'go test ./internal/diag/messages -update'. -->

# Messages and what to do

Every message about a problem that you can fix has a stable id in brackets:

` + "```" + `
prod.yaml:12:15: spec.hosts[1].roles[0]: there is no role "wroker" [unknown-role]
    hint: did you mean worker?
` + "```" + `

The parts are: file, line and column, the field, the problem, the id, and a hint.
All problems of a file are reported at once, in the order of the file. Nothing
has been changed, and the exit code is 2. A file with only warnings is accepted.

This page has an entry for each id: the problem, its cause, and the remedy. Search the page for the
id. [The description of the file](../spec/v1alpha1/cluster.md) lists the values that each field accepts.

## Error codes

Each entry names its error code. If an operation ends with the problem, its status has the code in
` + "`status.errorCode`, and the id in `status.reason`: see `slipway operations show ID -o json`" + `. A problem
without an id has a code too.

| code | meaning |
|---|---|
| ` + "`UserInput`" + ` | The request cannot be carried out. Correct the file, the command or the host. |
| ` + "`Credentials`" + ` | A login was refused, or a key or certificate cannot be used. |
| ` + "`Unreachable`" + ` | A host, the API or a download did not respond in time. Another attempt may succeed. |
| ` + "`Capacity`" + ` | Disk space, memory or another resource is used up. |
| ` + "`Conflict`" + ` | Another operation, change or program interferes. |
| ` + "`Internal`" + ` | Any other cause. |

## Sections

`

// lineLength is the length at which the page wraps text.
const lineLength = 98

// Page returns docs/guide/errors.md.
func Page() string {
	var b strings.Builder
	b.WriteString(head)
	for _, s := range Table() {
		b.WriteString("- [" + s.Title + "](#" + anchor(s.Title) + ")\n")
	}
	for _, s := range Table() {
		b.WriteString("\n## " + s.Title + "\n\n")
		if s.Intro != "" {
			writeText(&b, s.Intro)
		}
		for i, m := range s.Messages {
			if i > 0 || s.Intro != "" {
				b.WriteByte('\n')
			}
			b.WriteString("### `" + m.ID + "`\n")
			writeText(&b, m.problem())
			b.WriteByte('\n')
			writeText(&b, m.remedy())
		}
	}
	return b.String()
}

// problem returns the error code, the summary and the cause.
func (m Message) problem() string {
	text := "**" + m.Summary + "**"
	if m.IsWarning {
		text = "A warning. " + text
	} else {
		text = "`" + string(m.Code) + "`: " + text
	}
	if m.Cause != "" {
		text += " " + m.Cause
	}
	return text
}

// remedy returns the remedy with its label.
func (m Message) remedy() string {
	return "*Remedy:* " + m.Remedy
}

// anchor returns the name that GitHub gives to a heading.
func anchor(title string) string {
	return strings.ReplaceAll(strings.ToLower(title), " ", "-")
}

// writeText writes paragraphs, lists and code blocks, and wraps all but code.
func writeText(b *strings.Builder, text string) {
	inCode := false
	for i, block := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, line := range strings.Split(block, "\n") {
			isFence := strings.HasPrefix(line, "```")
			switch {
			case inCode || isFence:
				b.WriteString(line + "\n")
			case strings.HasPrefix(line, "- "):
				b.WriteString("- " + wrap(line[len("- "):], lineLength-2, "\n  ") + "\n")
			default:
				b.WriteString(wrap(line, lineLength, "\n") + "\n")
			}
			inCode = inCode != isFence
		}
	}
}

// word matches a word, or code with the text next to it, which a line break may not divide.
var word = regexp.MustCompile("(?:`[^`]*`|[^\\s`])+")

// wrap breaks text into lines.
func wrap(text string, length int, newline string) string {
	var b strings.Builder
	column := 0
	for _, w := range word.FindAllString(text, -1) {
		size := utf8.RuneCountInString(w)
		switch {
		case column == 0:
		case column+1+size > length:
			b.WriteString(newline)
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(w)
		column += size
	}
	return b.String()
}
