package lifecycle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/secret"
)

// redacted stands where a secret was.
const redacted = "REMOVED"

// A scrubber takes secrets out of text that others wrote: those it knows by
// their value, and what has the form of one. It takes rather too much.
type scrubber struct {
	known []string
}

// forms are what secrets look like, and what is left of them.
var forms = []struct {
	what *regexp.Regexp
	left string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), redacted},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), redacted}, // a service account's token
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), redacted},                             // a bootstrap token
	{regexp.MustCompile(`(?i)(://[^\s/:@"']*:)[^\s/@"']+@`), "${1}" + redacted + "@"},           // in a URL
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}`), "${1} " + redacted},   // in a header
	{regexp.MustCompile(`(?i)(certificate-key[= ]+)[0-9a-f]{16,}`), "${1}" + redacted},          // kubeadm's
	{regexp.MustCompile(`(?i)((?:client-key-data|certificate-authority-key|secretbox|auth_pass)["']?\s*[:= ]\s*["']?)[^\s"',;}\\]+`), "${1}" + redacted},
	{regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|api[-_]?key|credential)s?(?:-[a-z]+)?\\?["']?\s*[:=]\s*\\?["']?)[^\s"',;}\\]+`), "${1}" + redacted},
}

// newScrubber knows the secrets of a cluster that this machine can read.
func newScrubber(c *v1alpha1.Cluster, admin []byte) *scrubber {
	s := &scrubber{}
	logins := []v1alpha1.SSH{c.Spec.SSH}
	for _, h := range c.Spec.Hosts {
		logins = append(logins, h.SSH)
	}
	for _, l := range logins {
		s.know(l.Password)
		sources := []*v1alpha1.SecretSource{l.PasswordFrom, l.PassphraseFrom, l.SudoPasswordFrom}
		if l.Bastion != nil {
			sources = append(sources, l.Bastion.PasswordFrom, l.Bastion.PassphraseFrom)
		}
		for _, from := range sources {
			if from == nil {
				continue
			}
			if value, err := secret.Resolve(*from); err == nil { // one that cannot be read is nowhere else
				s.know(value.Reveal())
			}
		}
	}
	var conf struct {
		Users []struct {
			User struct {
				Key   string `json:"client-key-data"`
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if yaml.Unmarshal(admin, &conf) == nil {
		for _, u := range conf.Users {
			s.know(u.User.Key)
			s.know(u.User.Token)
		}
	}
	// A short one may be a part of a longer one.
	slices.SortFunc(s.known, func(a, b string) int { return len(b) - len(a) })
	return s
}

// know takes note of a secret. One that is very short would take half of the
// text with it, and guards nothing.
func (s *scrubber) know(value string) {
	if len(value) < 4 {
		return
	}
	quoted, err := json.Marshal(value)
	s.known = append(s.known, value, base64.StdEncoding.EncodeToString([]byte(value)))
	if inner := strings.Trim(string(quoted), `"`); err == nil && inner != value {
		s.known = append(s.known, inner)
	}
}

// text is what may be told.
func (s *scrubber) text(b []byte) []byte {
	for _, k := range s.known {
		b = bytes.ReplaceAll(b, []byte(k), []byte(redacted))
	}
	for _, f := range forms {
		b = f.what.ReplaceAll(b, []byte(f.left))
	}
	return b
}

// objects are Kubernetes' objects without what may hold secrets of the user:
// values of environment variables, and copies of what was applied.
func (s *scrubber) objects(raw []byte) []byte {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return s.text(raw)
	}
	strip(v)
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return s.text(raw)
	}
	return s.text(out)
}

func strip(v any) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			strip(x)
		}
	case map[string]any:
		delete(v, "managedFields")
		delete(v, "kubectl.kubernetes.io/last-applied-configuration")
		if env, ok := v["env"].([]any); ok {
			for _, e := range env {
				if e, ok := e.(map[string]any); ok && e["value"] != nil {
					e["value"] = redacted
				}
			}
		}
		for _, x := range v {
			strip(x)
		}
	}
}
