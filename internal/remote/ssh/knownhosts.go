package ssh

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the format's own hash of names
	"encoding/base64"
	"fmt"
	"path"
	"strings"

	"golang.org/x/crypto/ssh"
)

// knownKey is a key from a known_hosts file.
type knownKey struct {
	key  ssh.PublicKey
	file string
	line int // from 1; 0 is not a file
	is   marker
}

// marker is the role of a key in a known_hosts file.
type marker string

const (
	ofHost      marker = ""               // the host's own key
	ofAuthority marker = "cert-authority" // signs the certificates of hosts
	isRevoked   marker = "revoked"        // never accepted
)

func (k knownKey) String() string { return k.key.Type() + " " + ssh.FingerprintSHA256(k.key) }

func (k knownKey) fileAndLine() string { return fmt.Sprintf("line %d of %s", k.line, k.file) }

// lookUp finds the keys of address ("host", or "[host]:port" for another port
// than 22) in the text of a known_hosts file (sshd(8), SSH_KNOWN_HOSTS FILE
// FORMAT). Lines that cannot be parsed are skipped, as ssh does.
func lookUp(raw []byte, file, address string) []knownKey {
	var out []knownKey
	for i, line := range bytes.Split(raw, []byte("\n")) {
		line = bytes.TrimSpace(line)
		// The names first: a file may hold the keys of a thousand other hosts.
		if len(line) == 0 || line[0] == '#' || !matchesPatterns(hostsOf(line), address) {
			continue
		}
		word, _, key, _, _, err := ssh.ParseKnownHosts(line)
		is := marker(word)
		if err != nil || is != ofHost && is != ofAuthority && is != isRevoked {
			continue
		}
		out = append(out, knownKey{key: key, file: file, line: i + 1, is: is})
	}
	return out
}

// hostsOf returns the patterns of a line, which follow its marker if it has one.
func hostsOf(line []byte) []string {
	words := bytes.Fields(line)
	if len(words) > 1 && words[0][0] == '@' {
		words = words[1:]
	}
	return strings.Split(string(words[0]), ",")
}

// matchesPatterns reports whether one of the patterns matches the address, and none excludes it.
func matchesPatterns(patterns []string, address string) bool {
	found := false
	for _, p := range patterns {
		if strings.HasPrefix(p, "|") {
			found = found || matchesHash(p, address)
			continue
		}
		negated := strings.HasPrefix(p, "!")
		if matchWildcard(strings.TrimPrefix(p, "!"), address) {
			if negated {
				return false
			}
			found = true
		}
	}
	return found
}

// matchWildcard matches only with * and ?; brackets are literal.
func matchWildcard(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "*?") {
		return strings.EqualFold(pattern, name)
	}
	escape := strings.NewReplacer("[", `\[`, "]", `\]`, `\`, `\\`)
	ok, err := path.Match(strings.ToLower(escape.Replace(pattern)), strings.ToLower(name))
	return err == nil && ok
}

// matchesHash matches "|1|salt|hash".
func matchesHash(pattern, address string) bool {
	parts := strings.Split(pattern, "|")
	if len(parts) != 4 || parts[1] != "1" {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	want, err := base64.StdEncoding.DecodeString(parts[3])
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(address))
	return hmac.Equal(mac.Sum(nil), want)
}
