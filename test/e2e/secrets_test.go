//go:build e2e

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSecrets creates passwords, a passphrase and a key. It searches for them, and for the
// keys and tokens of the install, in all places that must not have them. Its cluster has
// no network plugin of Slipway.
func TestSecrets(t *testing.T) {
	u := newUser(t)
	const name = "e2e-secrets"
	machines := []string{name + "-1", name + "-2", name + "-3"}
	file := u.createMachines(t, name, len(machines))
	planted := u.plantSecrets(t, file, machines)
	editSpec(t, file, func(spec map[string]any) { childMap(spec, "network")["plugin"] = "none" })

	said := &commandLines{seen: map[string]string{}}
	watch := startWatch(said.noteProcess)
	o := u.startOperation(t, "create", "cluster", "-f", file, "--yes", "--debug")
	tokens := 0
	for h := range o.events {
		if b := h.boundaryName(); b == "kubeadm.init.bootstrap-token@"+machines[0] || b == "join.token@" {
			for id, token := range u.joinTokens(t, machines[0]) {
				planted["join token "+id] = token
				tokens++
			}
		}
	}
	code := o.waitForExit()
	watch.endWatch(t)
	if code != 0 {
		t.Fatalf("create ends with %d:\n%s", code, textTail(o.stderr.String()))
	}
	if tokens < 2 {
		t.Errorf("kubeadm makes a join token and so do we, but %d were seen", tokens)
	}
	for id := range u.joinTokens(t, machines[0]) {
		t.Errorf("join token %s is still there when the operation has ended", id)
	}
	for _, path := range []string{"ca.key", "sa.key", "etcd/ca.key", "apiserver.key", "front-proxy-ca.key"} {
		key := u.mustExec(t, machines[0], "cat", "/etc/kubernetes/pki/"+path)
		planted["the key "+path] = middleLine(key)
	}
	planted["the administrator's key"] = adminKey(t, u.mustRun(t, "kubeconfig", name))

	canaries := planted.makeCanaries()
	for text, program := range said.seen {
		for _, c := range canaries.findIn([]byte(text)) {
			t.Errorf("%s was in the command line or environment of %s", c, program)
		}
	}
	plan := u.runSlipway(t, "plan", "-f", file, "-o", "json")
	for what, text := range map[string]string{"output": o.stdout.String(), "talk": o.stderr.String(), "plan": plan.stdout + plan.stderr} {
		for _, c := range canaries.findIn([]byte(text)) {
			t.Errorf("%s is in the %s", c, what)
		}
	}
	for _, m := range machines {
		for _, where := range u.searchMachine(t, m, canaries) {
			t.Errorf("%s: %s", m, where)
		}
	}
	u.searchManager(t, name, file, canaries)
	t.Run("no network", func(t *testing.T) { u.bringsNetwork(t, name, file, machines) })
}

// searchManager searches all of the user's files. The files of the user may contain
// a secret, and so may the saved state of the cluster if it needs the secret and no other
// user can read the file.
func (u *user) searchManager(t *testing.T, cluster, file string, c canaries) {
	t.Helper()
	record := filepath.Join(u.home, "slipway/clusters", cluster)
	may := map[string][]string{ // by file, the secrets that may be in it
		file:                                   {"the inline password"},
		filepath.Join(record, "source.yaml"):   {"the inline password"},
		filepath.Join(record, "kept.yaml"):     {"the inline password"},
		filepath.Join(record, "cluster.json"):  {"the inline password"},
		filepath.Join(record, "kubeconfig"):    {"the administrator's key"},
		filepath.Join(u.home, "secret-login"):  {"the login's password"},
		filepath.Join(u.home, "secret-phrase"): {"the passphrase"},
		filepath.Join(u.home, "secret-key"):    {"the private key's file"},
	}
	files := 0
	err := c.searchTree(u.home, func(path string, info fs.FileInfo) bool {
		files++
		return filepath.Base(path) != "disk.ext4" // a machine's own
	}, func(secret, path string, info fs.FileInfo) {
		if info.Mode().Perm()&0o077 != 0 || !slices.Contains(may[path], secret) {
			t.Errorf("manager: %s is in %s (%s)", secret, path, info.Mode())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Errorf("only %d files of the user were searched", files)
	}
}

// commandLines holds the command lines of all processes that were seen, with their
// environments, and the names of the programs.
type commandLines struct{ seen map[string]string }

func (c *commandLines) noteProcess(_ map[string]process, p process) string {
	for _, what := range []string{"cmdline", "environ"} {
		if data, err := os.ReadFile(p.dir + "/" + what); err == nil {
			c.seen[string(data)] = p.argv[0]
		}
	}
	return ""
}

// joinTokens asks the API on the control plane for bootstrap tokens, by id.
func (u *user) joinTokens(t *testing.T, machine string) map[string]string {
	t.Helper()
	type secretList struct {
		Items []struct{ Data map[string][]byte }
	}
	out := map[string]string{}
	text := u.mustExec(t, machine, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "kube-system",
		"get", "secrets", "--field-selector", "type=bootstrap.kubernetes.io/token", "-o", "json")
	for _, s := range decodeJSON[secretList](t, text).Items {
		id, secret := string(s.Data["token-id"]), string(s.Data["token-secret"])
		if id == "" || secret == "" {
			t.Fatalf("a token without a secret: %v", s.Data)
		}
		// The first half is not secret: it names the token.
		out[id] = secret
	}
	return out
}

// adminKey is a line of the key in a kubeconfig.
func adminKey(t *testing.T, kubeconfig string) string {
	t.Helper()
	_, rest, ok := strings.Cut(kubeconfig, "client-key-data: ")
	if !ok || len(rest) < 1000 {
		t.Fatal("the administrator's kubeconfig holds no key")
	}
	pem, err := base64.StdEncoding.DecodeString(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return middleLine(string(pem))
}

// plantSecrets makes logins that need secrets: on the first machine a user with a
// password, who needs it for sudo as well; on the second a root password that
// stands in the cluster file itself; on the third an encrypted key.
func (u *user) plantSecrets(t *testing.T, file string, machines []string) secrets {
	t.Helper()
	c := secrets{
		"the login's password": "canary-Login-7f3a51'\"x $9", "the inline password": "canary-Root-51c0de&;d: #e",
		"the passphrase": "canary-Phrase-2b9e{}\\%d 4",
	}
	write := func(name, secret string) string {
		path := filepath.Join(u.home, name)
		if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	login := write("secret-login", c["the login's password"])
	phrase := write("secret-phrase", c["the passphrase"])
	key := filepath.Join(u.home, "secret-key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", c["the passphrase"],
		"-f", key).CombinedOutput(); err != nil {
		t.Fatalf("making a key: %v\n%s", err, out)
	}
	body, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	c["the private key's file"] = middleLine(string(body))
	set := func(machine, user, secret string) {
		in := strings.NewReader(user + ":" + secret + "\n")
		if r := u.runWithInput(t, in, "sandbox", "exec", machine, "--", "chpasswd"); r.code != 0 {
			t.Fatalf("setting a password: %s", r.stderr)
		}
	}
	u.mustExec(t, machines[0], "sh", "-c", "useradd -m -s /bin/sh ops && echo 'ops ALL=(ALL) ALL' >/etc/sudoers.d/ops")
	set(machines[0], "ops", c["the login's password"])
	u.mustExec(t, machines[1], "sh", "-c", "echo 'PermitRootLogin yes' >/etc/ssh/sshd_config.d/00-root.conf && systemctl reload ssh")
	set(machines[1], "root", c["the inline password"])
	if r := u.runWithInput(t, bytes.NewReader(public), "sandbox", "exec", machines[2], "--", "sh", "-c",
		"cat >/root/.ssh/authorized_keys"); r.code != 0 {
		t.Fatalf("letting the key in: %s", r.stderr)
	}
	editSpec(t, file, func(spec map[string]any) {
		delete(childMap(spec, "ssh"), "privateKeyFile")
		for i, ssh := range []map[string]any{
			{"user": "ops", "sudo": true, "passwordFrom": map[string]any{"file": login}},
			{"user": "root", "password": c["the inline password"]},
			{"user": "root", "privateKeyFile": key, "passphraseFrom": map[string]any{"file": phrase}},
		} {
			own := childMap(spec["hosts"].([]any)[i].(map[string]any), "ssh")
			delete(own, "privateKeyFile")
			for k, v := range ssh {
				own[k] = v
			}
		}
	})
	return c
}

// inFile is in for a file of any size, a window at a time; windows overlap by
// more than the longest form of a secret.
func (c canaries) inFile(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil // gone while we looked
	}
	defer f.Close()
	const overlap = 4 << 10
	window := make([]byte, 1<<20)
	var names []string
	kept := 0
	for {
		n, err := io.ReadFull(f, window[kept:])
		names = append(names, c.findIn(window[:kept+n])...)
		if err != nil {
			slices.Sort(names)
			return slices.Compact(names)
		}
		kept = copy(window, window[len(window)-overlap:])
	}
}

// searchTree walks the files below root that which selects, and calls found for secrets in
// them.
func (c canaries) searchTree(root string, which func(string, fs.FileInfo) bool, found func(secret, path string, info fs.FileInfo)) error {
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
		for _, name := range c.inFile(path) {
			found(name, path, info)
		}
		return nil
	})
}

// searchMachine looks for the secrets on a machine: in what everyone can read, and
// in all logs and records.
func (u *user) searchMachine(t *testing.T, machine string, c canaries) []string {
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
	r := u.runWithInput(t, bytes.NewReader(needles), "sandbox", "exec", machine, "--", "env", collectMode+"=secrets", collector)
	if r.code != 0 {
		t.Fatalf("searching %s: %s", machine, r.stderr)
	}
	u.mustExec(t, machine, "rm", collector)
	return decodeJSON[[]string](t, r.stdout)
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
	err = c.searchTree("/", func(path string, info fs.FileInfo) bool {
		return path != self &&
			(info.Mode().Perm()&0o004 != 0 || strings.HasPrefix(path, "/var/log/") || strings.HasPrefix(path, "/run/log/") ||
				strings.HasPrefix(path, "/var/lib/slipway/"))
	}, func(secret, path string, info fs.FileInfo) {
		found = append(found, fmt.Sprintf("%s is in %s (%s)", secret, path, info.Mode()))
	})
	if err != nil {
		return err
	}
	// The journal's files are compressed.
	if out, err := exec.Command("journalctl", "--no-pager", "-o", "export").Output(); err == nil {
		for _, name := range c.findIn(out) {
			found = append(found, name+" is in the machine's journal")
		}
	}
	return json.NewEncoder(w).Encode(found)
}
