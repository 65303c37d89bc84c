package archtest

import (
	"regexp"
	"strings"
)

var (
	htmlComment = regexp.MustCompile(`(?s)<!--.*?-->`)
	anchor      = regexp.MustCompile(`<a id="[^"]*">`) // old links use its name
	codeSpan    = regexp.MustCompile("``[^`]+``|`[^`]+`")
	link        = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	listItem    = regexp.MustCompile(`^\s*(?:[-*+]|\d+[.)])\s+`)
	heading     = regexp.MustCompile(`^#+\s+`)
	tableRule   = regexp.MustCompile(`^\s*\|?[\s:|-]+\|[\s:|-]*$`)
	measured    = regexp.MustCompile(`^docs/(?:test-long|benchmarks)\.md$`) // programs write their tables
)

// markdownTexts returns the paragraphs, headings, list items and table cells
// of a page, without code. A code span is one word, X.
func markdownTexts(page mdFile) []text {
	keepLines := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	source := htmlComment.ReplaceAllStringFunc(page.source, keepLines)
	var out []text
	var paragraph []string
	begin, fenced := 0, false
	flush := func() {
		if len(paragraph) > 0 {
			body := plainMarkdown(strings.Join(paragraph, "\n"))
			out = append(out, text{kind: kindMarkdown, file: page.name, line: begin, body: body, wraps: true})
		}
		paragraph = nil
	}
	for i, line := range strings.Split(source, "\n") {
		trimmed := strings.TrimSpace(line)
		isFence := strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~")
		switch {
		case isFence:
			flush()
			fenced = !fenced
		case fenced:
		case trimmed == "", tableRule.MatchString(line):
			flush()
		case strings.HasPrefix(trimmed, "|"):
			flush()
			if !measured.MatchString(page.name) {
				for _, cell := range strings.Split(plainMarkdown(trimmed), "|") {
					out = append(out, text{kind: kindCell, file: page.name, line: i + 1, body: strings.TrimSpace(cell)})
				}
			}
		default:
			if listItem.MatchString(line) || heading.MatchString(line) {
				flush()
			}
			if len(paragraph) == 0 {
				begin = i + 1
			}
			paragraph = append(paragraph, heading.ReplaceAllString(listItem.ReplaceAllString(trimmed, ""), ""))
			if heading.MatchString(line) {
				flush()
			}
		}
	}
	flush()
	return out
}

// plainMarkdown returns s without links, names of anchors and emphasis, with X for code. It
// keeps the line breaks.
func plainMarkdown(s string) string {
	s = codeSpan.ReplaceAllStringFunc(s, func(code string) string { return "X" + strings.Repeat("\n", strings.Count(code, "\n")) })
	s = link.ReplaceAllString(anchor.ReplaceAllString(s, "<a>"), "$1")
	return strings.NewReplacer("**", "", "*", "", "__", "").Replace(s)
}
