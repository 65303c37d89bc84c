package diag

import (
	"strconv"
	"strings"
)

// EscapeControls returns a text in which characters that would control the terminal are Go
// escapes, because text from hosts, registries and files is not trusted. Characters in keep are
// not changed.
func EscapeControls(text, keep string) string {
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) || strings.ContainsRune(keep, r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
