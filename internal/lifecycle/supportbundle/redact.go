package supportbundle

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/secret"
)

// redacted replaces a secret.
const redacted = "REMOVED"

// A redactor removes secrets from text of other programs: known secrets by their value,
// others by their form. It prefers to remove too much.
type redactor struct {
	known []string
}

// newRedactor returns a redactor that knows the secrets of a cluster that this machine can
// read, and others.
func newRedactor(c *v1alpha1.Cluster, admin []byte, others ...string) *redactor {
	r := &redactor{}
	for _, o := range others {
		r.addSecret(o)
	}
	logins := []v1alpha1.SSH{c.Spec.SSH}
	for _, h := range c.Spec.Hosts {
		logins = append(logins, h.SSH)
	}
	for _, l := range logins {
		r.addSecret(l.Password)
		sources := []*v1alpha1.SecretSource{l.PasswordFrom, l.PassphraseFrom, l.SudoPasswordFrom}
		if l.Bastion != nil {
			sources = append(sources, l.Bastion.PasswordFrom, l.Bastion.PassphraseFrom)
		}
		for _, from := range sources {
			if from == nil {
				continue
			}
			if value, err := secret.ResolveSource(*from); err == nil { // one that cannot be read is nowhere else
				r.addSecret(value.Reveal())
			}
		}
	}
	for _, a := range c.Spec.Registry.Auths {
		if a.PasswordFrom == nil {
			continue
		}
		if value, err := secret.ResolveSource(*a.PasswordFrom); err == nil {
			r.addSecret(value.Reveal())
			r.addSecret(base64.StdEncoding.EncodeToString([]byte(a.Username + ":" + value.Reveal())))
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
			r.addSecret(u.User.Key)
			r.addSecret(u.User.Token)
		}
	}
	// A short one may be a part of a longer one.
	slices.SortFunc(r.known, func(a, b string) int { return len(b) - len(a) })
	return r
}

// addSecret adds a secret. It ignores very short ones, which protect nothing and would match
// much harmless text.
func (r *redactor) addSecret(value string) {
	if len(value) < 4 {
		return
	}
	quoted, err := json.Marshal(value)
	r.known = append(r.known, value, base64.StdEncoding.EncodeToString([]byte(value)))
	if inner := strings.Trim(string(quoted), `"`); err == nil && inner != value {
		r.known = append(r.known, inner)
	}
}
