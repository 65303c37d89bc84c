package ssh

import (
	"crypto/sha1"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/sshconfig"
)

// TestTokens_AreExpandedInFileNames: the names of files have the tokens of ssh_config(5).
func TestTokens_AreExpandedInFileNames(t *testing.T) {
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	short, _, _ := strings.Cut(here, ".")
	home := t.TempDir()
	at := sshconfig.Place{File: "config", Line: 1}
	hash := fmt.Sprintf("%x", sha1.Sum([]byte(here+"10.0.0.1"+"24"+"admin"+"jump")))
	for name, tc := range map[string]struct {
		text, alias, want string
	}{
		"of the server":  {"/%h-%n-%p-%r", "", "/10.0.0.1-web-24-admin"},
		"of the person":  {"%d/%i-%u", "", home + "/" + strconv.Itoa(os.Getuid()) + "-me"},
		"local name":     {"/%l-%L", "", "/" + here + "-" + short},
		"name given":     {"/%k", "", "/web"},
		"alias":          {"/%k", "web.example", "/web.example"},
		"jump":           {"/%j", "", "/jump"},
		"the connection": {"/%C", "", "/" + hash},
	} {
		t.Run(name, func(t *testing.T) {
			c := config{endpoint: endpoint{address: "10.0.0.1", port: 24, user: "admin"}, home: home, local: "me", given: "web"}
			c.HostKeyAlias.Text, c.ProxyJump = tc.alias, sshconfig.Value{Text: "jump", From: at}
			if got, err := c.expandValue(sshconfig.Value{Text: tc.text, From: at}); err != nil || got != tc.want {
				t.Errorf("%s becomes %q (%v), want %q", tc.text, got, err, tc.want)
			}
		})
	}
}
