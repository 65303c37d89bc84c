//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
)

const (
	serverPage    = "../../docs/guide/server.md"
	serverData    = "/var/lib/slipwayd/data"
	serverName    = "slipway.example.com"
	backupTarget  = "--from nas --backup-config /etc/slipwayd/backup.yaml"
	restartsAfter = 2 * time.Minute // ten seconds in the unit, and a start
)

// backupName matches the name of a backup.
var backupName = regexp.MustCompile(`slipwayd_\S+\.tar\.age`)

// TestServerUnit follows docs/guide/server.md on two machines with systemd: it installs the
// server as a service, kills it, backs it up to the other machine over SFTP, and restores it
// there.
func TestServerUnit(t *testing.T) {
	u := newUser(t)
	u.createMachines(t, "e2e-unit", 2)
	s := &unitSite{user: u, first: "e2e-unit-1", second: "e2e-unit-2", steps: readCommands(t, "## Install the server", 6)}
	s.logFailures(t)
	s.install(t, s.first)
	s.install(t, s.second)

	s.run(t, s.first, s.steps[3])
	s.checkInstalled(t)
	d := s.connect(t, s.first)
	k := d.kubectlOf(t)
	s.giveAccess(t, k)
	s.createObjects(t, d)
	before := d.digestSettled(t)
	s.killServer(t)
	if after := d.digestObjects(t); after != before {
		t.Errorf("after kill -9, the objects differ: %s, want %s", after, before)
	}

	s.configureBackups(t)
	name, key := s.backUp(t)
	s.checkSchedule(t)
	if after := d.digestObjects(t); after != before {
		t.Errorf("after the backup, the objects differ: %s, want %s", after, before)
	}
	d.mustRequest(t, http.MethodDelete, clustersPath+"/small-00000", nil) // not in the backup
	s.stop(t, s.first)
	s.requireNoErrors(t, s.first)

	s.restore(t, name, key)
	restored := s.connect(t, s.second)
	if after := restored.digestObjects(t); after != before {
		t.Errorf("the restored objects differ: %s, want %s", after, before)
	}
	s.checkAccess(t, k, s.second)
	restored.requireHold(t, func(command string) string { return s.run(t, s.second, "sudo -u slipwayd slipwayd "+command) })
	s.requireReady(t, s.second)
	s.stop(t, s.second)
	s.requireNoErrors(t, s.second)
	s.run(t, s.second, "systemctl start --no-block slipwayd; timeout 60 sh -c 'until ss -Hltn | grep -q :7443; do sleep 0.1; done'")
	s.stop(t, s.second) // during its start, in which it already listens
}

// A unitSite has two machines for the server.
type unitSite struct {
	*user
	first, second string
	steps         []string // of the installation
	identity      string   // decrypts the backups
	jane          string   // the path of the kubeconfig of a user
}

// readCommands returns the blocks of a section of the guide to the server; want is their
// expected number.
func readCommands(t *testing.T, section string, want int) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(serverPage)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+section+"\n")
	inside, indent := false, ""
	for line := range strings.Lines(rest) {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case !inside && strings.HasPrefix(line, "## ") || !inside && strings.HasPrefix(line, "### "):
			rest = ""
		case fence && !inside:
			indent, _, _ = strings.Cut(line, "`")
			blocks = append(blocks, "")
			inside = true
		case fence:
			inside = false
		case inside:
			blocks[len(blocks)-1] += strings.TrimPrefix(line, indent)
		}
		if rest == "" {
			break
		}
	}
	if len(blocks) != want {
		t.Fatalf("%s: the section %q has %d blocks, want %d: %q", serverPage, section, len(blocks), want, blocks)
	}
	return blocks
}

// replaceAll replaces each of some texts, which must be there: pairs of a text and its
// replacement.
func replaceAll(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%s: %q is missing in the commands %q", serverPage, pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// logFailures logs the journal of the service on both machines if the test fails.
func (s *unitSite) logFailures(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, m := range []string{s.first, s.second} {
			out, _ := s.command(ctx, "sandbox", "exec", m, "--", "journalctl", "--no-pager", "-u", "slipwayd").CombinedOutput()
			t.Logf("the journal of %s:\n%s", m, textTail(string(out)))
		}
	})
}

// run runs a script as root on a machine; it must succeed.
func (s *unitSite) run(t *testing.T, machine, script string) string {
	t.Helper()
	return s.mustExec(t, machine, "bash", "-euo", "pipefail", "-c", "cd /root; "+script)
}

// write writes a file that belongs to the user of the service.
func (s *unitSite) write(t *testing.T, machine, path, text string) {
	t.Helper()
	script := `umask 077; cat >"$1" && chown slipwayd: "$1"`
	r := s.runWithInput(t, strings.NewReader(text), "sandbox", "exec", machine, "--", "sh", "-ec", script, "sh", path)
	if r.code != 0 {
		t.Fatalf("writing %s on %s: %s", path, machine, r.stderr)
	}
}

func (s *unitSite) addressOf(t *testing.T, machine string) string {
	t.Helper()
	return s.listMachines(t)[machine].Address
}

// install does the steps 1 to 3 of the installation.
func (s *unitSite) install(t *testing.T, machine string) {
	t.Helper()
	s.run(t, machine, "mkdir bin deploy")
	s.copyTo(t, machine, daemonPath(t), "/root/bin/slipwayd")
	s.copyTo(t, machine, "../../deploy/slipwayd.service", "/root/deploy/slipwayd.service")
	s.run(t, machine, replaceAll(t, s.steps[0], "make server\n", ""))
	s.run(t, machine, s.steps[1])
	s.run(t, machine, replaceAll(t, s.steps[2], "10.0.0.5", s.addressOf(t, machine)))
}

// property returns a property of the service.
func (s *unitSite) property(t *testing.T, machine, name string) string {
	t.Helper()
	return strings.TrimSpace(s.mustExec(t, machine, "systemctl", "show", "--property="+name, "--value", "slipwayd"))
}

// checkInstalled verifies a new server as the guide does, and the confinement of its process.
func (s *unitSite) checkInstalled(t *testing.T) {
	t.Helper()
	want := replaceAll(t, s.steps[5], "10.0.0.5", s.addressOf(t, s.first))
	var got strings.Builder
	for line := range strings.Lines(s.run(t, s.first, s.steps[4])) {
		got.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("the status is not as in the guide (-guide +status):\n%s", diff)
	}
	for name, want := range map[string]string{"ActiveState": "active", "UnitFileState": "enabled", "Result": "success"} {
		if got := s.property(t, s.first, name); got != want {
			t.Errorf("the service has %s=%s, want %s", name, got, want)
		}
	}
	s.requireConfined(t, s.first, "slipwayd.service", "slipwayd")
}

// requireReady fails the test unless the server is ready and no condition needs attention.
func (s *unitSite) requireReady(t *testing.T, machine string) {
	t.Helper()
	out := s.run(t, machine, s.steps[4])
	if !strings.HasPrefix(out, "Server https://"+s.addressOf(t, machine)+":7443 is ready.\n") || strings.Contains(out, "ATTENTION") {
		t.Errorf("the status of %s is:\n%s", machine, out)
	}
}

// connect returns the server on a machine, for requests of the administrator from this host.
func (s *unitSite) connect(t *testing.T, machine string) *daemon {
	t.Helper()
	d := &daemon{data: t.TempDir(), address: s.addressOf(t, machine) + ":7443"}
	if err := os.Mkdir(filepath.Join(d.data, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "admin.crt", "admin.key", "admin.kubeconfig"} {
		writeFile(t, filepath.Join(d.data, "pki", name), s.mustExec(t, machine, "cat", serverData+"/pki/"+name))
	}
	d.client = d.newClient(t)
	return d
}

// kubectlOf returns kubectl with the kubeconfig of the administrator.
func (d *daemon) kubectlOf(t *testing.T) kubectl {
	t.Helper()
	k := buildKubectl(t, d)
	host, _, _ := strings.Cut(d.address, ":")
	resolveName(t, filepath.Join(d.data, "pki", "admin.kubeconfig"), host)
	return k
}

// resolveName changes a kubeconfig so that it connects to an address instead of the name of the
// server, as DNS does. The certificate must have the name.
func resolveName(t *testing.T, file, address string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	server := "server: https://" + serverName + ":7443\n"
	writeFile(t, file, replaceAll(t, string(text), server, "server: https://"+address+":7443\n    tls-server-name: "+serverName+"\n"))
}

// giveAccess does the steps of the guide that give a user access, and uses it.
func (s *unitSite) giveAccess(t *testing.T, k kubectl) {
	t.Helper()
	k.must(t, "apply", "-f", "../../docs/guide/server-example.yaml")
	commands := strings.Split(strings.TrimSpace(readCommands(t, "### Roles", 1)[0]), "\n")
	for _, command := range commands {
		k.must(t, strings.Fields(strings.TrimPrefix(command, "kubectl "))...)
	}
	issue, _, _ := strings.Cut(readCommands(t, "### Certificates", 1)[0], "\n")
	s.run(t, s.first, issue)
	s.jane = s.run(t, s.first, "cat /var/lib/slipwayd/jane.kubeconfig; rm /var/lib/slipwayd/jane.kubeconfig")
	s.checkAccess(t, k, s.first)
}

// checkAccess uses the kubeconfig of the user on a server: the user reads clusters, and nothing
// else.
func (s *unitSite) checkAccess(t *testing.T, k kubectl, machine string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jane.kubeconfig")
	writeFile(t, file, s.jane)
	resolveName(t, file, s.addressOf(t, machine))
	k.env = []string{"KUBECONFIG=" + file, "HOME=" + filepath.Dir(file)}
	for _, tt := range []struct {
		reason, has string
		code        int
		args        []string
	}{
		{"the certificate has the name and the group", "platform", 0, []string{"auth", "whoami"}},
		{"a viewer reads clusters", "example", 0, []string{"get", "clusters"}},
		{"a viewer does not read Secrets", "forbidden", 1, []string{"get", "secrets"}},
	} {
		if r := k.run(t, tt.args...); r.code != tt.code || !strings.Contains(strings.ToLower(r.stdout+r.stderr), tt.has) {
			t.Errorf("%s: on %s, it ends with %d: %s%s", tt.reason, machine, r.code, r.stdout, r.stderr)
		}
	}
}

// createObjects creates objects of users, with Secrets.
func (s *unitSite) createObjects(t *testing.T, d *daemon) {
	t.Helper()
	d.createClusters(t, 0, 20)
	d.mustRequest(t, http.MethodPost, mapsPath, configMap("kept"))
	d.mustRequest(t, http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": "team-a"}})
	d.mustRequest(t, http.MethodPost, "/api/v1/namespaces/team-a/secrets", map[string]any{
		"metadata": map[string]any{"name": "login"}, "stringData": map[string]string{"password": plantedSecret},
	})
}

// killServer kills the process of the service. systemd starts it again.
func (s *unitSite) killServer(t *testing.T) {
	t.Helper()
	s.mustExec(t, s.first, "kill", "-9", s.property(t, s.first, "MainPID"))
	eventually(t, restartsAfter, "the restart of the service", func() error {
		restarts, state := s.property(t, s.first, "NRestarts"), s.property(t, s.first, "ActiveState")
		if restarts != "1" || state != "active" {
			return fmt.Errorf("%s after %s restarts", state, restarts)
		}
		return nil
	})
	s.requireReady(t, s.first)
}

// configureBackups writes the configuration of backups on both machines. One target is the
// second machine, and the other one a directory of the first.
func (s *unitSite) configureBackups(t *testing.T) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s.identity = identity.String() + "\n"
	s.run(t, s.first, "ssh-keygen -q -t ed25519 -N '' -f nas.key; install -d -m 0700 -o slipwayd -g slipwayd /mnt/disk/slipwayd")
	s.run(t, s.second, `useradd --create-home --shell /bin/sh backups
install -d -m 0700 -o backups -g backups /srv/backups /home/backups/.ssh
echo 'restrict `+strings.TrimSpace(s.run(t, s.first, "cat nas.key.pub"))+`' >/home/backups/.ssh/authorized_keys`)
	config := `interval: 1m
keep: 3
recipients: [` + identity.Recipient().String() + `]
copies:
- name: nas
  ssh:
    address: ` + s.addressOf(t, s.second) + `
    user: backups
    directory: /srv/backups
    privateKeyFrom: {file: nas.key}
    hostKey: ` + sshSite{u: s.user}.hostKey(t, s.second) + `
- name: disk
  directory: /mnt/disk/slipwayd
`
	key := s.run(t, s.first, "cat nas.key")
	for _, machine := range []string{s.first, s.second} {
		s.write(t, machine, "/etc/slipwayd/nas.key", key)
		s.write(t, machine, "/etc/slipwayd/backup.yaml", config)
	}
}

// backUp makes a backup at the second machine, and returns its name and the key that verifies it.
func (s *unitSite) backUp(t *testing.T) (name, key string) {
	t.Helper()
	out := s.run(t, s.first, "sudo -u slipwayd slipwayd backup --to nas --backup-config /etc/slipwayd/backup.yaml")
	name, key = backupName.FindString(out), publicKey.FindString(out)
	if name == "" || key == "" {
		t.Fatalf("the backup has no name or key: %s", out)
	}
	if found := s.run(t, s.second, "ls /srv/backups"); strings.TrimSpace(found) != name {
		t.Errorf("the second machine has %q, want %s", found, name)
	}
	return name, key
}

// checkSchedule makes scheduled backups, with a copy to each target. The first one is made at
// the start of the server.
func (s *unitSite) checkSchedule(t *testing.T) {
	t.Helper()
	s.run(t, s.first, `sed -i 's|$| --backup-config=/etc/slipwayd/backup.yaml|' /etc/slipwayd/slipwayd.env
mkdir /etc/systemd/system/slipwayd.service.d
printf '[Service]\nReadWritePaths=-/mnt/disk/slipwayd\n' >/etc/systemd/system/slipwayd.service.d/override.conf
systemctl daemon-reload
systemctl restart slipwayd`)
	eventually(t, time.Minute, "the first scheduled backup", func() error {
		out := s.run(t, s.first, s.steps[4])
		if !strings.Contains(out, "BackupsFailing     ok") {
			return errors.New(out)
		}
		return nil
	})
	scheduled := backupName.FindString(s.run(t, s.first, "sudo -u slipwayd slipwayd list-backups"))
	for _, target := range []string{backupTarget, "--directory /mnt/disk/slipwayd"} {
		if out := s.run(t, s.first, "sudo -u slipwayd slipwayd list-backups "+target); scheduled == "" || !strings.Contains(out, scheduled) {
			t.Errorf("the scheduled backup %q is not in the list %s:\n%s", scheduled, target, out)
		}
	}
}

// stop stops the server as the guide does. It must end in order, before systemd kills it.
func (s *unitSite) stop(t *testing.T, machine string) {
	t.Helper()
	s.run(t, machine, readCommands(t, "## Restore", 5)[0])
	for name, want := range map[string]string{"ActiveState": "inactive", "Result": "success"} {
		if got := s.property(t, machine, name); got != want {
			t.Errorf("after its stop, the service on %s has %s=%s, want %s", machine, name, got, want)
		}
	}
}

// requireNoErrors fails the test if the server on a machine has logged an error.
func (s *unitSite) requireNoErrors(t *testing.T, machine string) {
	t.Helper()
	log := s.run(t, machine, "journalctl --no-pager -o cat -u slipwayd")
	if strings.Contains(log, "level=ERROR") || strings.Contains(log, "error: ") {
		t.Errorf("the log of %s has errors:\n%s", machine, textTail(log))
	}
}

// restore restores a backup on the second machine, which has no data, and starts the server.
func (s *unitSite) restore(t *testing.T, name, key string) {
	t.Helper()
	s.write(t, s.second, "/etc/slipwayd/key.txt", s.identity)
	s.run(t, s.second, replaceAll(t, readCommands(t, "## Restore", 5)[1],
		"FILE", name+" "+backupTarget+" --identity /etc/slipwayd/key.txt", " --replace", "", "KEY", key))
	s.run(t, s.second, s.steps[3])
}
