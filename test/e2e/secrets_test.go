//go:build e2e

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// joinToken is the form of kubeadm's bootstrap tokens.
var joinToken = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)

// TestSecrets plants passwords and looks for them, and for the keys and
// tokens that the install makes, everywhere they must not be.
func TestSecrets(t *testing.T) {
	u := newUser(t)
	const name = "e2e-secrets"
	machines := []string{name + "-1", name + "-2"}
	file := u.machines(t, name, len(machines))
	planted := u.plant(t, file, machines)
	canaries := planted.canaries()

	watch := look(func(_ map[string]int, p process) string {
		for _, what := range []string{"cmdline", "environ"} {
			data, err := os.ReadFile(p.dir + "/" + what)
			if err != nil {
				continue
			}
			if c := canaries.in(data); c != "" {
				return fmt.Sprintf("%s is in the %s of %s", c, what, p.argv[0])
			}
			if filepath.Base(p.argv[0]) == "kubeadm" && joinToken.Match(data) {
				return fmt.Sprintf("a join token is in the %s of kubeadm", what)
			}
		}
		return ""
	})
	r := u.run(t, "create", "cluster", "-f", file, "--yes", "--debug", "-o", "json")
	watch.end(t)
	if r.code != 0 {
		t.Fatalf("create ends with %d:\n%s", r.code, tail(r.stderr))
	}
	for what, text := range map[string]string{"stdout": r.stdout, "stderr": r.stderr, "plan": u.run(t, "plan", "-f", file, "-o", "json").stdout} {
		if c := canaries.in([]byte(text)); c != "" {
			t.Errorf("%s is in the %s of create", c, what)
		}
		if token := joinToken.FindString(text); token != "" {
			t.Errorf("something like a join token is in the %s of create: %s…", what, token[:6])
		}
	}

	for _, path := range []string{"/etc/kubernetes/pki/ca.key", "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/etcd/ca.key", "/etc/kubernetes/pki/apiserver.key"} {
		key := strings.Split(u.inside(t, machines[0], "cat", path), "\n")
		planted["the key "+path] = key[2] // a line of its body, as it would be quoted
	}
	canaries = planted.canaries()
	for _, m := range machines {
		for _, where := range u.search(t, m, canaries) {
			t.Errorf("%s: %s", m, where)
		}
	}
	// On the manager, what only the user can read may hold the kubeconfig.
	var found []string
	err := canaries.search(u.home, &found, func(path string, info fs.FileInfo) bool {
		base := filepath.Base(path)
		private := info.Mode().Perm()&0o077 == 0 && (strings.Contains(base, "kubeconfig") || base == "config" || strings.HasPrefix(base, "secret-"))
		return base != "disk.ext4" && !private
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, where := range found {
		t.Errorf("manager: %s", where)
	}
}

// plant makes logins that need secrets: on the first machine a user with a
// password, who needs it for sudo as well; on the second a root password.
func (u *user) plant(t *testing.T, file string, machines []string) secrets {
	t.Helper()
	c := secrets{"the login's password": "canary-Login'7f3a\"x $9", "root's password": "canary-Root&51c0;d"}
	write := func(name, secret string) string {
		path := filepath.Join(u.home, name)
		if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	login := write("secret-login", c["the login's password"])
	root := write("secret-root", c["root's password"])
	set := func(machine, user, secret string) {
		in := strings.NewReader(user + ":" + secret + "\n")
		if r := u.feed(t, in, "sandbox", "exec", machine, "--", "chpasswd"); r.code != 0 {
			t.Fatalf("setting a password: %s", r.stderr)
		}
	}
	u.inside(t, machines[0], "sh", "-c", "useradd -m -s /bin/sh ops && echo 'ops ALL=(ALL) ALL' >/etc/sudoers.d/ops")
	set(machines[0], "ops", c["the login's password"])
	u.inside(t, machines[1], "sh", "-c", "echo 'PermitRootLogin yes' >/etc/ssh/sshd_config.d/00-root.conf && systemctl reload ssh")
	set(machines[1], "root", c["root's password"])
	editSpec(t, file, func(spec map[string]any) {
		delete(child(spec, "ssh"), "privateKeyFile")
		for i, ssh := range []map[string]any{
			{"user": "ops", "sudo": true, "passwordFrom": map[string]any{"file": login}},
			{"user": "root", "passwordFrom": map[string]any{"file": root}},
		} {
			own := child(spec["hosts"].([]any)[i].(map[string]any), "ssh")
			delete(own, "privateKeyFile")
			for k, v := range ssh {
				own[k] = v
			}
		}
	})
	return c
}

// secrets are texts by what they are.
type secrets map[string]string

// canaries are what is looked for: for each secret, its forms.
type canaries map[string][][]byte

func (s secrets) canaries() canaries {
	c := canaries{}
	for name, secret := range s {
		for _, form := range forms(secret) {
			c[name] = append(c[name], []byte(form))
		}
	}
	return c
}

// in answers the name of a secret that is in data: raw, as base64 at any
// alignment, or as hex.
func (c canaries) in(data []byte) string {
	for name, forms := range c {
		for _, form := range forms {
			if bytes.Contains(data, form) {
				return name
			}
		}
	}
	return ""
}

// inFile is in for a file of any size, a window at a time; windows overlap by
// more than the longest form of a secret.
func (c canaries) inFile(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "" // gone while we looked
	}
	defer f.Close()
	const overlap = 4 << 10
	window := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := io.ReadFull(f, window[kept:])
		if name := c.in(window[:kept+n]); name != "" || err != nil {
			return name
		}
		kept = copy(window, window[len(window)-overlap:])
	}
}

func forms(secret string) []string {
	out := []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret)))}
	for shift := range 3 {
		// The first and last characters also depend on the neighbours.
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + secret))
		text = text[(shift*8+5)/6 : len(text)-1]
		out = append(out, text, strings.NewReplacer("+", "-", "/", "_").Replace(text))
	}
	return out
}

// search walks the files below root that which accepts and notes those that
// hold a secret.
func (c canaries) search(root string, found *[]string, which func(string, fs.FileInfo) bool) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone while we looked
		}
		if d.IsDir() {
			var st unix.Statfs_t
			if err := unix.Statfs(path, &st); err == nil && virtual[st.Type] {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || !which(path, info) {
			return nil
		}
		if name := c.inFile(path); name != "" {
			*found = append(*found, fmt.Sprintf("%s is in %s (%s)", name, path, info.Mode()))
		}
		return nil
	})
}

// search looks for the secrets on a machine: in what everyone can read, and
// in all logs and records.
func (u *user) search(t *testing.T, machine string, c canaries) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const collector = "/run/slipway-e2e-collector"
	u.copyTo(t, machine, self, collector)
	needles, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	r := u.feed(t, bytes.NewReader(needles), "sandbox", "exec", machine, "--", "env", collectMode+"=secrets", collector)
	if r.code != 0 {
		t.Fatalf("searching %s: %s", machine, r.stderr)
	}
	u.inside(t, machine, "rm", collector)
	return decode[[]string](t, r.stdout)
}

// writeFindings searches the machine that this program runs in for the
// secrets that it reads.
func writeFindings(r io.Reader, w io.Writer) error {
	var c canaries
	if err := json.NewDecoder(r).Decode(&c); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	found := []string{}
	err = c.search("/", &found, func(path string, info fs.FileInfo) bool {
		return path != self && (info.Mode().Perm()&0o004 != 0 || strings.HasPrefix(path, "/var/log/") || strings.HasPrefix(path, "/run/log/") || strings.HasPrefix(path, "/var/lib/slipway/"))
	})
	if err != nil {
		return err
	}
	// The journal's files are compressed.
	if out, err := exec.Command("journalctl", "--no-pager", "-o", "export").Output(); err == nil {
		if name := c.in(out); name != "" {
			found = append(found, name+" is in the machine's journal")
		}
	}
	return json.NewEncoder(w).Encode(found)
}
