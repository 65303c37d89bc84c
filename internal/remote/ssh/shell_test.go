package ssh_test

import (
	"bytes"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/remote/ssh"
)

// TestShell_PassesArgumentsAndStreams: each argument reaches the program as it is, through the login
// shell that stands in the way, and streams and exit code come back.
func TestShell_PassesArgumentsAndStreams(t *testing.T) {
	path, pub := keyFile(t, t.TempDir(), "")
	s := remotetest.StartServer(t, remotetest.Config{
		Shell: &remotetest.Shell{Path: "/bin/sh"}, Users: []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}},
	})
	host := s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path})
	for _, tc := range []struct {
		name, in         string
		argv             []string
		code             int
		out, err, reason string
	}{
		{"arguments", "", []string{"printf", "%s|", "a b", "it's", "$HOME", "*", ""}, 0, "a b|it's|$HOME|*||", "", "no shell takes them apart"},
		{"streams", "", []string{"sh", "-c", "echo out; echo err >&2; exit 7"}, 7, "out\n", "err\n", "each goes its own way"},
		{"input", "given", []string{"cat"}, 0, "given", "", "it ends where ours does"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errw bytes.Buffer
			var d ssh.Dialer
			code, err := d.StartShell(t.Context(), host,
				remote.Shell{Argv: tc.argv, In: strings.NewReader(tc.in), Out: &out, Err: &errw},
				remote.Options{KnownHosts: t.TempDir() + "/known_hosts"})
			if err != nil || code != tc.code || out.String() != tc.out || errw.String() != tc.err {
				t.Errorf("%d, %v, %q, %q: %s", code, err, out.String(), errw.String(), tc.reason)
			}
		})
	}
	s.SetDown(true)
	var d ssh.Dialer
	if _, err := d.StartShell(t.Context(), host, remote.Shell{}, remote.Options{KnownHosts: t.TempDir() + "/known_hosts"}); err == nil {
		t.Error("a host that is down gives a shell")
	}
}
