//go:build e2e && long

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
)

// listedCopies is what `etcd snapshots --copies` says, by the place.
func (u *user) listedCopies(t *testing.T, name string) map[string][]string {
	t.Helper()
	type report struct {
		Targets []struct {
			Name   string
			Copies []struct{ File string }
		}
	}
	out := map[string][]string{}
	for _, to := range decode[report](t, u.run(t, "etcd", "snapshots", name, "--copies", "-o", "json").stdout).Targets {
		for _, c := range to.Copies {
			out[to.Name] = append(out[to.Name], c.File)
		}
	}
	return out
}

// TestLongCopies has the host of a cluster copy its snapshots to another machine and
// to a disk: so many are kept at each, one that is down harms no other, and after the
// loss of all data a copy has every object back. The copies outlive the cluster.
func TestLongCopies(t *testing.T) {
	u := newUser(t)
	const name = "e2e-copies"
	cp, vault := name+"-1", name+"-2"
	file := u.machines(t, name, 2)
	var ssh map[string]any
	editSpec(t, file, func(spec map[string]any) {
		hosts := spec["hosts"].([]any)
		ssh = hosts[1].(map[string]any)["ssh"].(map[string]any)
		spec["hosts"] = hosts[:1]
	})
	u.create(t, file)
	u.kubectl(t, name, "create", "configmap", "kept")
	u.inside(t, vault, "sh", "-c", "mkdir /srv/copies && echo mine >/srv/copies/notes.txt")
	// A disk of others: what is in memory alone is refused.
	u.inside(t, cp, "sh", "-c", "mkdir -p /mnt/disk /mnt/nas && mount -t tmpfs -o size=512m tmpfs /mnt/disk && d=/mnt/disk && mkdir $d/l $d/u $d/w && mount -t overlay -o lowerdir=$d/l,upperdir=$d/u,workdir=$d/w overlay /mnt/nas")
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity := filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(identity, []byte(id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	editSpec(t, file, func(spec map[string]any) {
		spec["etcd"] = map[string]any{"backup": map[string]any{
			"every": "1m", "keep": 2, "recipients": []any{id.Recipient().String()},
			"copies": []any{
				map[string]any{"name": "nas", "keep": 3, "directory": "/mnt/nas"},
				map[string]any{"name": "vault", "ssh": map[string]any{
					"address": u.list(t)[vault].Address, "user": "root", "directory": "/srv/copies",
					"privateKeyFrom": map[string]any{"file": u.list(t)[vault].PrivateKeyFile}, "hostKey": ssh["hostKey"],
				}},
			},
		}}
	})
	u.exits(t, 0, "apply", "-f", file, "--yes")
	u.settles(t, file)
	if is := u.inside(t, cp, "stat", "-c", "%a %U", "/etc/slipway/backup/vault.key"); strings.TrimSpace(is) != "600 root" {
		t.Errorf("the key is %s", is)
	}

	begun, seen := time.Now(), map[string]bool{}
	eventually(t, 8*time.Minute, "four snapshots to be copied", func() error {
		for _, f := range u.listedCopies(t, name)["vault"] {
			seen[f] = true
		}
		if len(seen) < 4 {
			return fmt.Errorf("%d have been", len(seen))
		}
		return nil
	})
	t.Logf("figure: four snapshots, a minute apart, copied to two places, in %.0f s", time.Since(begun).Seconds())
	eventually(t, 2*time.Minute, "so many to be left as are kept", func() error {
		if all := u.listedCopies(t, name); len(all["vault"]) != 2 || len(all["nas"]) != 3 || !slices.Contains(all["nas"], all["vault"][0]) {
			return fmt.Errorf("there are %v", all)
		}
		return nil
	})
	u.exits(t, 0, "etcd", "snapshots", name, "--hosts")
	u.exits(t, 0, "etcd", "health", name)
	if is := u.inside(t, vault, "sh", "-c", "ls -A /srv/copies | wc -l; cat /srv/copies/notes.txt"); strings.Join(strings.Fields(is), " ") != "3 mine" {
		t.Errorf("there is %s", is)
	}

	t.Run("a place that is down", func(t *testing.T) {
		u.inside(t, vault, "systemctl", "stop", "ssh.socket", "ssh.service")
		before := u.scheduled(t, name).Hosts[0].Kept[0].Path
		eventually(t, 5*time.Minute, "it to be told", func() error {
			r := u.run(t, "etcd", "health", name)
			if r.code != 3 || !strings.Contains(r.stdout, "[backup-copy]") || !strings.Contains(r.stdout, "vault has failed since") {
				return fmt.Errorf("exit code %d:\n%s", r.code, tail(r.stdout))
			}
			return nil
		})
		s := u.scheduled(t, name)
		if s.Good || s.Hosts[0].Failed != "" || s.Hosts[0].Kept[0].Path == before {
			t.Errorf("the snapshots are %+v", s)
		}
		stamp := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(s.Hosts[0].Kept[0].Path), name+"-"), ".db")
		if all := u.listedCopies(t, name); len(all["nas"]) != 3 || !strings.Contains(all["nas"][0], stamp) {
			t.Errorf("the other place has %v, and the newest snapshot is of %s", all["nas"], stamp)
		}
		u.exits(t, 3, "etcd", "snapshots", name, "--copies")
		u.inside(t, vault, "systemctl", "start", "ssh.service")
		eventually(t, 4*time.Minute, "etcd to be well", func() error {
			if r := u.run(t, "etcd", "health", name); r.code != 0 {
				return fmt.Errorf("exit code %d:\n%s", r.code, tail(r.stdout))
			}
			return nil
		})
	})
	t.Run("restored from a copy", func(t *testing.T) {
		u.inside(t, cp, "systemctl", "stop", "slipway-backup.timer")
		u.kubectl(t, name, "delete", "configmap", "kept")
		set := decode[struct{ File string }](t, u.exits(t, 0, "etcd", "snapshot", name, "--copy", "vault", "-o", "json").stdout).File
		if text := u.exits(t, 0, "etcd", "drill", name, "--from", set, "--identity", identity).stdout; !strings.Contains(text, "is good") {
			t.Errorf("the drill says:\n%s", text)
		}
		u.inside(t, cp, "sh", "-c", "rm -rf /var/lib/etcd/member /var/lib/slipway/backups; pkill -KILL -x etcd; true")
		r := u.exits(t, 0, "etcd", "restore", name, "--from", set, "--identity", identity, "--yes")
		t.Logf("figure: all data destroyed, restored from a copy in %.0f s", r.took.Seconds())
		u.kubectl(t, name, "get", "configmap", "kept")
		u.exits(t, 0, "apply", "-f", file, "--yes")
		u.settles(t, file)
	})
	kept := u.listedCopies(t, name)
	u.exits(t, 0, "delete", "cluster", name, "--yes")
	if left := u.inside(t, cp, "sh", "-c", "ls -d /var/lib/slipway /etc/slipway 2>/dev/null; true"); left != "" {
		t.Errorf("deleted, there is still %s", left)
	}
	for place, at := range map[string]string{"vault": vault, "nas": cp} {
		dir := map[string]string{"vault": "/srv/copies", "nas": "/mnt/nas"}[place]
		if there := u.inside(t, at, "ls", dir); len(kept[place]) == 0 || !strings.Contains(there, kept[place][0]) {
			t.Errorf("%s has %s, and had %v", place, there, kept[place])
		}
	}
}
