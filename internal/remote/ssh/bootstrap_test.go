package ssh_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/remote/ssh"
)

// asRoot lets the bootstrap continue for every user who runs the test.
const asRoot = "echo 0"

// sudo is a stand-in that wants the password "hunter2" before its prompt ends.
const sudo = `case $1 in
-n) echo "sudo: a password is required" >&2; exit 1;;
-S) printf "lecture: %s" "$3" >&2; read -r given; [ "$given" = hunter2 ] || { echo "Sorry, try again." >&2; printf "%s" "$3" >&2; ` +
	`read -r given; exit 1; }; shift 3; exec "$@";;
esac`

func TestBootstrap_WorksInEveryShell(t *testing.T) {
	// The real command, script and helper, through real shells.
	find := remotetest.BuildHelper(t)
	path, pub := keyFile(t, t.TempDir(), "")
	tests := map[string]struct {
		reason string
		shell  remotetest.Shell
		noise  string
		login  v1alpha1.SSH
		is     remote.Reason
		says   string
	}{
		"sh": {"the usual", remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"id": asRoot}}, "", v1alpha1.SSH{}, "", ""},
		"bash": {
			"another shell",
			remotetest.Shell{Path: "/bin/bash", Programs: map[string]string{"id": asRoot}},
			"motd\n$ ",
			v1alpha1.SSH{},
			"", "",
		},
		"truncated": {
			"a full disk, say",
			remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"id": asRoot, "gzip": "head -c 1000"}},
			"",
			v1alpha1.SSH{},
			remote.HelperFailed, "did not arrive completely",
		},
		"changed": {
			"it says another digest",
			remotetest.Shell{
				Path:     "/bin/sh",
				Programs: map[string]string{"id": asRoot, "gzip": "/usr/bin/gzip -dc | sed 's/usage: slipway-node/usage: Slipway-node/'"},
			},
			"",
			v1alpha1.SSH{},
			remote.HelperFailed, "did not arrive completely",
		},
		"no program": {
			"it does not start, as if something on the host kept it from that",
			remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"id": asRoot, "gzip": "/usr/bin/gzip -dc | tr E F"}},
			"",
			v1alpha1.SSH{},
			remote.NoExec, "refuses to run",
		},
		"not root": {
			"found out before anything is sent",
			remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"id": "echo 1000"}},
			"",
			v1alpha1.SSH{},
			remote.SudoFailed, "root is not root",
		},
		"sudo": {
			"the password goes in at its prompt",
			remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"id": asRoot, "sudo": sudo}},
			"",
			v1alpha1.SSH{User: "u", SudoPasswordFrom: secretFile(t, "hunter2")},
			"", "",
		},
		"sudo, wrong": {
			"and not a second time",
			remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"sudo": sudo}},
			"",
			v1alpha1.SSH{User: "u", SudoPasswordFrom: secretFile(t, "hunter22")},
			remote.SudoFailed, "sudo rejects the password of u",
		},
		"no password": {
			"sudo is asked not to ask",
			remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"sudo": sudo}},
			"",
			v1alpha1.SSH{User: "u"},
			remote.SudoFailed, "sudo needs a password from u",
		},
		"exit in .bashrc": {
			"the command of the hint fails under this fault, too",
			remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"sh": "exit 0"}},
			"",
			v1alpha1.SSH{},
			remote.HelperFailed, "@127.0.0.1 echo works` must print works",
		},
		"broken shell": {
			"its message is passed on",
			remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"sh": "echo this account is not available >&2; exit 1"}},
			"",
			v1alpha1.SSH{},
			remote.HelperFailed, "ended early: this account is not available",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := remotetest.StartServer(t, remotetest.Config{
				Shell: &tt.shell, Noise: tt.noise,
				Users: []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}, {Name: "u", Keys: []gossh.PublicKey{pub}}},
			})
			tt.login.PrivateKeyFile = path
			d := ssh.Dialer{Helper: find}
			h, err := d.Connect(t.Context(), s.HostWith("h1", tt.login), testOptions(t))
			if tt.is != "" {
				checkRefusal(t, err, tt.is, tt.says)
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			want, err := os.ReadFile("/etc/passwd")
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Check(t.Context(), op.List{op.ReadFile{Path: "/etc/passwd"}})
			if err != nil || len(got) != 1 || string(got[0].Output) != string(want) {
				t.Errorf("the helper answers %v, %v", got, err)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBootstrap_KeepsSecretsOutOfArguments(t *testing.T) {
	// A sudo that takes the password and notes all that others could see.
	path, pub := keyFile(t, t.TempDir(), "")
	notes := filepath.Join(t.TempDir(), "notes")
	spy := `printf "%s" "$3" >&2; read -r given; { echo "$@"; env; cat /proc/$PPID/cmdline /proc/$PPID/environ; } >` + notes + `; exit 1`
	s := remotetest.StartServer(t, remotetest.Config{
		Shell: &remotetest.Shell{Path: "/bin/sh", Programs: map[string]string{"sudo": spy}},
		Users: []remotetest.User{{Name: "u", Keys: []gossh.PublicKey{pub}}},
	})
	d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	login := v1alpha1.SSH{User: "u", PrivateKeyFile: path, SudoPasswordFrom: secretFile(t, "canary-hunter2")}
	_, err := d.Connect(t.Context(), s.HostWith("h1", login), testOptions(t))
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("the error tells the password, or there is none: %v", err)
	}
	seen, err := os.ReadFile(notes)
	if err != nil || !strings.Contains(string(seen), "LC_ALL=C") || strings.Contains(string(seen), "canary") {
		t.Errorf("others see %q, %v", seen, err)
	}
}
