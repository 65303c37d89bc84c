package lifecycle

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/store"
)

// redacted replaces a secret.
const redacted = "REMOVED"

// A scrubber removes secrets from text of other programs: known secrets by their value,
// others by their form. It prefers to remove too much.
type scrubber struct {
	known []string
}

// newScrubber returns a scrubber that knows the secrets of a cluster that this machine can
// read, and others.
func newScrubber(c *v1alpha1.Cluster, admin []byte, others ...string) *scrubber {
	s := &scrubber{}
	for _, o := range others {
		s.know(o)
	}
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
	for _, a := range c.Spec.Registry.Auths {
		if a.PasswordFrom == nil {
			continue
		}
		if value, err := secret.Resolve(*a.PasswordFrom); err == nil {
			s.know(value.Reveal())
			s.know(base64.StdEncoding.EncodeToString([]byte(a.Username + ":" + value.Reveal())))
		}
	}
	if keys, err := copySecrets(c); err == nil {
		for _, key := range keys {
			s.know(key.Reveal())
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

// registrySecrets returns the password of the cluster's registry, if this machine can read
// it, and the login with it.
func (s *service) registrySecrets(c *v1alpha1.Cluster) []string {
	p := c.Spec.Registry.Private
	if p == nil {
		return nil
	}
	var password string
	if p.PasswordFrom != nil {
		if value, err := secret.Resolve(*p.PasswordFrom); err == nil { // one that cannot be read is nowhere else
			password = value.Reveal()
		}
	} else if text, err := bounded.ReadFile(s.Store.FilePath(c.Name, store.RegistryPassword), bounded.Word); err == nil {
		password = string(text)
	}
	if password == "" {
		return nil
	}
	return []string{password, base64.StdEncoding.EncodeToString([]byte(cmp.Or(p.Username, spec.DefaultRegistryUser) + ":" + password))}
}

// know adds a secret. It ignores very short ones, which protect nothing and would match
// much harmless text.
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
