//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSSH reaches a machine in every way that a cluster file can name, and is
// refused in every way that one can be, by a real sshd and a real sudo. The
// machine is afterwards as it was.
func TestSSH(t *testing.T) {
	u := newUser(t)
	const name, target, jump = "e2e-ssh", "e2e-ssh-1", "e2e-ssh-2"
	file := u.createMachines(t, name, 2)
	s := sshSite{u: u, file: file, secret: filepath.Join(u.home, "secret"), locked: filepath.Join(u.home, "locked")}
	s.prepareHosts(t, target, jump)
	before := u.takeSnapshot(t, target)

	tests := []struct {
		name, reason string
		ssh          map[string]any // in addition to the sandbox's settings; nil removes a setting
		says         string         // "" is reached
	}{
		{"root", "as the sandbox writes it", nil, ""},
		{"encrypted key", "with its passphrase", map[string]any{"privateKeyFile": s.locked, "passphraseFrom": s.sshSettings()}, ""},
		{"no passphrase", "an encrypted key alone", map[string]any{"privateKeyFile": s.locked}, "is encrypted"},
		{"password", "of root", map[string]any{"privateKeyFile": nil, "passwordFrom": s.sshSettings()}, ""},
		{"sudo", "free, and a login shell that prints", map[string]any{"user": "noisy"}, ""},
		{"sudo password", "its own", map[string]any{"user": "asks", "sudoPasswordFrom": s.sshSettings()}, ""},
		{
			"sudo terminal", "sudo wants one, the server allows one session",
			map[string]any{"user": "term", "privateKeyFile": nil, "passwordFrom": s.sshSettings()},
			"",
		},
		{"sudo unasked", "it wants a password and there is none", map[string]any{"user": "asks"}, "sudo needs a password from asks"},
		{
			"not a sudoer", "whatever the password",
			map[string]any{"user": "never", "sudoPasswordFrom": s.sshSettings()},
			"never is not allowed to use sudo",
		},
		{"wrong key", "which is named", map[string]any{"user": "nobody"}, "rejects the key"},
		{
			"bastion", "through the other machine, with its own login",
			map[string]any{"bastion": map[string]any{
				"address": s.addressOf(t, jump), "user": "jump",
				"passwordFrom": s.sshSettings(), "hostKey": s.hostKey(t, jump),
			}},
			"",
		},
		{"wrong port", "nothing listens there", map[string]any{"port": 2222}, "refuses the connection"},
		{"other host", "its key is not the pinned one", map[string]any{"hostKey": s.hostKey(t, jump)}, "does not match ssh.hostKey"},
		{"first use", "the key is kept", map[string]any{"hostKey": nil}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { s.requireReach(t, tt.ssh, tt.says) })
	}
	requireSame(t, target, "touched", before, u.takeSnapshot(t, target))

	t.Run("changed host key", func(t *testing.T) {
		u.mustExec(t, target, "sh", "-c", "rm /etc/ssh/ssh_host_*; ssh-keygen -A; systemctl restart ssh")
		s.requireReach(t, map[string]any{"hostKey": nil}, "has changed")
	})
	t.Run("silent", func(t *testing.T) {
		u.mustRun(t, "sandbox", "cut", target)
		s.requireReach(t, nil, "did not answer within")
	})
}

// sshSite is a sandbox whose machines know several users, all with the same
// password.
type sshSite struct {
	u                    *user
	file, secret, locked string
}

const sshPassword = "e2e Pass'word\"$1"

func (s sshSite) sshSettings() map[string]any { return map[string]any{"file": s.secret} }

func (s sshSite) prepareHosts(t *testing.T, target, jump string) {
	t.Helper()
	if err := os.WriteFile(s.secret, []byte(sshPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", sshPassword, "-f",
		s.locked).CombinedOutput(); err != nil {
		t.Fatalf("making a key: %v\n%s", err, out)
	}
	public, err := os.ReadFile(s.locked + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	script := `
for u in noisy asks term never jump; do
	useradd -m -s /bin/bash $u
	install -d -o $u -m 700 /home/$u/.ssh
	install -o $u -m 600 /root/.ssh/authorized_keys /home/$u/.ssh/authorized_keys
done
cat >>/root/.ssh/authorized_keys
printf 'echo Welcome; echo to stderr >&2; printf "no line end"\n' | cat - /home/noisy/.bashrc >/tmp/rc && cat /tmp/rc ` +
		`>/home/noisy/.bashrc && rm /tmp/rc
cat >/etc/sudoers.d/e2e <<E
noisy ALL=(ALL) NOPASSWD: ALL
asks ALL=(ALL) ALL
term ALL=(ALL) ALL
Defaults:term requiretty
Defaults lecture=never
E
cat >/etc/ssh/sshd_config.d/e2e.conf <<E
PermitRootLogin yes
PasswordAuthentication yes
MaxSessions 1
E
systemctl restart ssh`
	for _, m := range []string{target, jump} {
		if r := s.u.runWithInput(t, strings.NewReader(string(public)), "sandbox", "exec", m, "--", "sh", "-ec", script); r.code != 0 {
			t.Fatalf("preparing %s: %s", m, r.stderr)
		}
		var in strings.Builder
		for _, u := range []string{"root", "noisy", "asks", "term", "never", "jump"} {
			in.WriteString(u + ":" + sshPassword + "\n")
		}
		if r := s.u.runWithInput(t, strings.NewReader(in.String()), "sandbox", "exec", m, "--", "chpasswd"); r.code != 0 {
			t.Fatalf("setting passwords on %s: %s", m, r.stderr)
		}
	}
}

// requireReach has slipway look at the first machine, logging in as ssh says.
func (s sshSite) requireReach(t *testing.T, ssh map[string]any, says string) {
	t.Helper()
	original, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(s.file, original, 0o600); err != nil {
			t.Error(err)
		}
	}()
	editSpec(t, s.file, func(spec map[string]any) {
		host := spec["hosts"].([]any)[0].(map[string]any)
		own := childMap(host, "ssh")
		for k, v := range ssh {
			if v == nil {
				delete(own, k)
				delete(childMap(spec, "ssh"), k)
				continue
			}
			own[k] = v
		}
		spec["hosts"] = []any{host}
	})
	r := s.u.runSlipway(t, "precheck", "-f", s.file)
	text := r.stdout + r.stderr
	switch {
	case strings.Contains(text, sshPassword):
		t.Errorf("the password is shown:\n%s", text)
	case says == "" && r.code != 0:
		t.Errorf("precheck ends with %d:\n%s", r.code, text)
	case says != "" && (r.code != 2 || !strings.Contains(text, says)):
		t.Errorf("precheck ends with %d, and does not say %q:\n%s", r.code, says, text)
	}
}

func (s sshSite) addressOf(t *testing.T, machine string) string {
	t.Helper()
	return s.u.listMachines(t)[machine].Address
}

func (s sshSite) hostKey(t *testing.T, machine string) string {
	t.Helper()
	line := strings.Fields(s.u.mustExec(t, machine, "cat", "/etc/ssh/ssh_host_ed25519_key.pub"))
	return line[0] + " " + line[1]
}
