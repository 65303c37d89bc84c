package supportbundle

import (
	"bytes"
	"regexp"
	"strings"
)

const (
	// secretWord matches a name that may name a secret, secretEnd the part of it that
	// shows this.
	secretWord = `[\w.-]*` + secretEnd
	secretEnd  = `(?:pass|pwd|secret|token|key|credential)[\w.-]*`
	// secretValue matches the value: in escaped quotes, in quotes, or up to a blank. If
	// a quote is not closed on its line, it matches the rest of the line.
	secretValue = `(\\+"(?:[^"\\]|\\\\(?:[^"\\]|\\.))*(?:\\+")?|"(?:[^"\\]|\\.)*"?|'(?:[^']|''|'\\'')*'?|` + "`[^`]*`?" +
		`|[^\s"'{\[,;\\](?:[^\s"\\]|\\.)*)`
)

// valueAfterBlank matches a value that only a blank separates from its name.
func valueAfterBlank() string {
	return strings.Replace(secretValue, `[^\s"'{\[,;\\]`, `[^\s"'{\[,;:=>\\-]`, 1)
}

// A pattern matches a kind of secret. Its last group is the secret, or the whole match if
// there is no group. It is only tried on lines that contain one of the hints in lower
// case.
type pattern struct {
	hints []string
	what  *regexp.Regexp
}

// secretHints are hints at secretWord.
var secretHints = []string{"pass", "pwd", "secret", "token", "key", "credential"}

var patterns = []pattern{
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)}, // a service account's token
	{
		[]string{"akia", "gh", "glpat-", "xox"},
		regexp.MustCompile(`\b(?:AKIA[0-9A-Z]{16}|gh[oprsu]_\w{20,}|glpat-[\w-]{20,}|xox[abps]-[\w-]{10,})`),
	},
	// a password's hash
	{[]string{"$"}, regexp.MustCompile(`\$(?:2[abxy]|apr1|[156y])\$[^\s"',]+`)},
	// PEM in base64
	{[]string{"ls0tls1crudjti"}, regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]+`)},
	// in a URL
	{[]string{"://"}, regexp.MustCompile(`://[^\s/:@"']*:([^\s"'<>]*)@`)},
	// a token in one
	{[]string{"://"}, regexp.MustCompile(`(?i)https?://([^\s/:@"']+)@`)},
	// in a data source name
	{[]string{"@"}, regexp.MustCompile(`\b[\w.%+-]+:(\S+)@(?:\w+\(|\()`)},
	// user and password before a host; no digest
	{[]string{"@"}, regexp.MustCompile(`\b[A-Za-z_][\w.+-]*:([^\s"'@/]+)@(?:[A-Za-rt-z0-9\[_]|s(?:$|[^h])|sh(?:$|[^a])|sha(?:$|[^25]))`)},
	// in a header
	{[]string{"bearer", "basic"}, regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+([A-Za-z0-9+/=._~-]{8,})`)},
	{[]string{"authorization", "cookie"}, regexp.MustCompile(`(?i)\b(?:authorization|cookie)\\*["']?\s*(?:[:=]\s*)+([^"\n]+)`)},
	{[]string{"auth"}, regexp.MustCompile(`(?i)\b_?auth\\*["']?\s*[:=]\s*` + secretValue)}, // a registry's
	{
		[]string{"requirepass", "masterauth", "auth_pass", "auth-pass", "identified by", "rootpw", "bindpw"},
		regexp.MustCompile(`(?i)(?:requirepass|masterauth|auth[_-]pass|identified by|rootpw|bindpw)\\*["']?[,\s]\s*` + secretValue),
	},
	{
		[]string{"mysql", "mariadb", "sshpass"},
		regexp.MustCompile(`\b(?:mysql|mariadb|sshpass)[^\n]*?[\s"'=,\[]-p(?:\\*["'],?)?\s?\\*["']?([^\s"',]+)`),
	},
	{[]string{"redis-cli"}, regexp.MustCompile(`\bredis-cli\b[^\n]*?[\s"',\[]-a\\*["']?[\s,]\s*` + secretValue)},
	{[]string{"-u", "--user"}, regexp.MustCompile(`(?:^|[\s"'\[])(?:-u|--user)[\s=]*["']?[^\s:"']+:([^\s"']+)`)}, // curl's
	// In the kubelet's message about a container that does not start.
	{[]string{"envvar{"}, regexp.MustCompile(`EnvVar\{Name:[^,]*,Value:(.*?),ValueFrom:`)},
	{[]string{"httpheader{"}, regexp.MustCompile(`HTTPHeader\{Name:[^,]*,Value:(.*?),\}`)},
	{[]string{"args:["}, regexp.MustCompile(`\bArgs:\[(.*?)\],WorkingDir:`)},
	{[]string{"command:["}, regexp.MustCompile(`\bCommand:\[(.*?)\],(?:Args:|\})`)},
	// In a sentence.
	{
		[]string{"pass", "pwd"},
		regexp.MustCompile(`(?i)(?:password|passphrase|passwd|pwd)\\*["']?\s+(?:is|was)\s+(?:now\s+|set to\s+)?` + secretValue),
	},
	{
		secretHints,
		regexp.MustCompile(`(?i)` + secretEnd + `\s+(?:is|was)\s+(?:now\s+|set to\s+)?\\*["']?([^\s"'\\]*\d[^\s"'\\]*)`),
	},
	// A name that is one word, and its value behind a blank.
	{[]string{"key"}, regexp.MustCompile(`(?i)(?:secret(?:[_-]?access)?|private|api|encryption)[_-]?key\s+` + valueAfterBlank())},
	// A name and its value: of a variable or a header, a flag, an assignment.
	{
		secretHints,
		regexp.MustCompile(`(?i)\bname\\*["']?\s*[:=]\s*\\*["']?` + secretWord + `\\*["']?,?\s*\\*["']?value\\*["']?\s*[:=]\s*` + secretValue),
	},
	{
		secretHints,
		regexp.MustCompile(`(?i)(?:^|[\s"'` + "`" + `(\[,=])-{1,2}` + secretWord + `(?:\\*["']\s*,?|,|\s)\s*` +
			valueAfterBlank()),
	},
	{secretHints, regexp.MustCompile(`(?i)` + secretEnd + `=([{\[,;][^\s"]+)`)},
	{secretHints, regexp.MustCompile(`(?i)` + secretEnd + `\\*["']?\]?\s*(?:=>|[:=]{1,2}|>|%3[ad])\s*` + secretValue)},
}

// bootstrapToken matches a kubeadm bootstrap token.
var bootstrapToken = pattern{nil, regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)}

// mayHaveBootstrapToken reports whether a line may contain a bootstrap token. It is a fast
// check: a token has no name next to it, and the regular expression is slow.
func mayHaveBootstrapToken(line []byte) bool {
	for at := 0; ; at++ {
		next := bytes.IndexByte(line[at:], '.')
		if next < 0 {
			return false
		}
		at += next
		if at >= 6 && len(line) > at+16 && isAlphanumeric(line[at-6:at]) && isAlphanumeric(line[at+1:at+17]) {
			return true
		}
	}
}

func isAlphanumeric(b []byte) bool {
	return !bytes.ContainsFunc(b, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)
	// halfKey matches a private key whose beginning is missing.
	halfKey = regexp.MustCompile(`(?:[A-Za-z0-9+/=]|\s|\\[nr])*-----END [A-Z0-9 ]*PRIVATE KEY-----`)
	// Patterns that apply to the next line, or to all lines with more indentation.
	flagAlone  = regexp.MustCompile(`(?i)^[\s"'\[,-]*-{1,2}` + secretWord + `["'],?\s*$|^\s*-\s+-{1,2}` + secretWord + `\s*$`)
	nameAlone  = regexp.MustCompile(`(?i)\bname["']?\s*[:=]\s*["']?` + secretWord + `["']?,?\s*$`)
	blockAlone = regexp.MustCompile(`(?i)` + secretWord + `["']?\s*:\s*[|>][-+0-9]*\s*$`)
	manyLines  = regexp.MustCompile(`:\s*[|>][-+0-9]*\s*$`)
	valueAlone = regexp.MustCompile(`(?i)^(\s*["']?value["']?\s*[:=]\s*).*$`)
	// pathPattern matches a path, which is not a secret, even if its file contains one.
	pathPattern = regexp.MustCompile(`^(?:~|/(?:etc|var|run|usr|opt|srv|home|root|tmp|mnt|registry))/[\w./+-]*$`)
)

// redactText returns a text without secrets.
func (r *redactor) redactText(b []byte) []byte {
	for _, k := range r.known {
		b = bytes.ReplaceAll(b, []byte(k), []byte(redacted))
	}
	if bytes.Contains(b, []byte("PRIVATE KEY-----")) {
		b = privateKey.ReplaceAll(b, []byte(redacted))
		b = halfKey.ReplaceAll(b, []byte(redacted))
	}
	out := make([]byte, 0, len(b))
	next := lineContext{block: -1}
	for line := range bytes.Lines(b) {
		out = append(out, next.redactLine(line)...)
	}
	return out
}

// lineContext is the effect of a line on the following lines.
type lineContext struct {
	block       int // indentation of the name of a multi-line text; -1 means none
	flag, value bool
}

// redactLine returns a line without secrets.
func (c *lineContext) redactLine(line []byte) []byte {
	body := bytes.TrimRight(line, "\r\n")
	end := line[len(body):]
	indent := len(body) - len(bytes.TrimLeft(body, " \t"))
	blank := len(bytes.TrimSpace(body)) == 0
	switch {
	case c.block >= 0 && (blank || indent > c.block):
		return append([]byte(redacted), end...)
	case c.flag && !blank && !flagAlone.Match(body):
		*c = lineContext{block: -1}
		return append(append(append([]byte{}, body[:indent]...), redacted...), end...)
	case c.value && valueAlone.Match(body):
		*c = lineContext{block: -1}
		if manyLines.Match(body) {
			c.block = indent
			return line
		}
		return append(valueAlone.ReplaceAll(body, []byte("${1}"+redacted)), end...)
	}
	*c = lineContext{block: -1}
	lower := bytes.ToLower(body)
	if hasHint(lower, secretHints) {
		c.flag, c.value = flagAlone.Match(body), nameAlone.Match(body)
		if blockAlone.Match(body) {
			c.block = indent
			return line
		}
	}
	if mayHaveBootstrapToken(body) {
		body = bootstrapToken.redact(body)
	}
	for _, pattern := range patterns {
		if hasHint(lower, pattern.hints) {
			body = pattern.redact(body)
		}
	}
	return append(body[:len(body):len(body)], end...)
}

func hasHint(lower []byte, hints []string) bool {
	for _, h := range hints {
		if bytes.Contains(lower, []byte(h)) {
			return true
		}
	}
	return len(hints) == 0
}

// redact removes the secrets of a pattern from a line.
func (p pattern) redact(line []byte) []byte {
	all := p.what.FindAllSubmatchIndex(line, -1)
	if all == nil {
		return line
	}
	var out []byte
	at := 0
	for _, m := range all {
		from, to := m[len(m)-2], m[len(m)-1]
		value := line[from:to]
		quote := value[:len(value)-len(bytes.TrimLeft(value, "\\\"'`"))]
		if isHarmless(strings.Trim(string(value), "\\\"'`,;")) {
			continue
		}
		out = append(append(append(append(out, line[at:from]...), quote...), redacted...), quote...)
		at = to
	}
	return append(out, line[at:]...)
}

// isHarmless reports whether a value is not a secret, whatever its name.
func isHarmless(value string) bool {
	switch strings.TrimRight(strings.ToLower(value), ")}],;") {
	case "", "true", "false", "null", "nil", "<nil>", "none", strings.ToLower(redacted):
		return true
	}
	return pathPattern.MatchString(value)
}
