//go:build e2e && long

package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
)

// listedCopies returns the output of `etcd snapshots --copies`, by target.
func (u *user) listedCopies(t *testing.T, name string) map[string][]string {
	t.Helper()
	type report struct {
		Targets []struct {
			Name   string
			Copies []struct{ File string }
		}
	}
	out := map[string][]string{}
	for _, to := range decodeJSON[report](t, u.runSlipway(t, "etcd", "snapshots", name, "--copies", "-o", "json").stdout).Targets {
		for _, c := range to.Copies {
			out[to.Name] = append(out[to.Name], c.File)
		}
	}
	return out
}

// TestLongCopies has the host of a cluster copy its snapshots to another machine, to a
// disk and to storage: so many are kept at each, what is down or does not take them
// harms no other, and after the loss of all data a copy has every object back. The
// copies outlive the cluster.
func TestLongCopies(t *testing.T) {
	c := newCopied(t, "e2e-copies")
	c.switchedOn(t)
	c.checkFirstCopies(t)
	t.Run("places that are down", c.stopTargets)
	t.Run("storage that does not take them", c.checkRefusingStorage)
	t.Run("restored from a copy", c.restoreFromStorage)
	c.mustExec(t, c.cp, "systemctl", "stop", "slipway-backup.timer", "slipway-backup.service")
	kept := c.listedCopies(t, c.name)
	objects, uploads := c.offsite.listKeys(t)
	c.mustExit(t, 0, "delete", "cluster", c.name, "--yes")
	if left := c.mustExec(t, c.cp, "sh", "-c", "ls -d /var/lib/slipway /etc/slipway 2>/dev/null; true"); left != "" {
		t.Errorf("deleted, there is still %s", left)
	}
	for place, at := range map[string]string{"vault": c.vault, "nas": c.cp} {
		dir := map[string]string{"vault": "/srv/copies", "nas": "/mnt/nas"}[place]
		if there := c.mustExec(t, at, "ls", dir); len(kept[place]) == 0 || !strings.Contains(there, kept[place][0]) {
			t.Errorf("%s has %s, and had %v", place, there, kept[place])
		}
	}
	if err := c.offsite.checkKeys(t, slices.Collect(maps.Keys(objects)), uploads); err != nil {
		t.Errorf("deleted, %v", err)
	}
}

// copied is a cluster of one host whose snapshots are copied to three places.
type copied struct {
	*user
	name, cp, vault, file string
	// key is age's, and identity the file with it.
	key      *age.X25519Identity
	identity string
	offsite  *storage
	// others are objects that are not this cluster's.
	others []string
	ssh    map[string]any
}

func newCopied(t *testing.T, name string) *copied {
	t.Helper()
	u := newUser(t)
	c := &copied{user: u, name: name, cp: name + "-1", vault: name + "-2", file: u.createMachines(t, name, 2)}
	editSpec(t, c.file, func(spec map[string]any) {
		hosts := spec["hosts"].([]any)
		c.ssh = hosts[1].(map[string]any)["ssh"].(map[string]any)
		spec["hosts"] = hosts[:1]
	})
	c.offsite = u.serveStorage(t, c.vault)
	u.createCluster(t, c.file)
	u.mustKubectl(t, name, "create", "configmap", "kept")
	// A copy goes to storage in several parts.
	large := filepath.Join(u.home, "large")
	writeFile(t, large, strings.Repeat("0123456789abcdef", 900<<6))
	for i := range 8 {
		u.mustKubectl(t, name, "create", "configmap", fmt.Sprintf("large-%d", i), "--from-file="+large)
	}
	u.mustExec(t, c.vault, "sh", "-c", "mkdir /srv/copies && echo mine >/srv/copies/notes.txt")
	// A disk of another owner: a file system in memory is rejected.
	u.mustExec(t, c.cp, "sh", "-c",
		"mkdir -p /mnt/disk /mnt/nas && mount -t tmpfs -o size=512m tmpfs /mnt/disk && d=/mnt/disk && mkdir $d/l $d/u "+
			"$d/w && mount -t overlay -o lowerdir=$d/l,upperdir=$d/u,workdir=$d/w overlay /mnt/nas")
	for _, key := range []string{
		"notes.txt", below + "/notes.txt", below + "-2/" + c.copyOf(1),
		below + "/old/" + c.copyOf(1), below + "/" + c.copyOf(1),
	} {
		c.offsite.putObject(t, key, "mine")
		c.others = append(c.others, key)
	}
	var err error
	if c.key, err = age.GenerateX25519Identity(); err != nil {
		t.Fatal(err)
	}
	c.identity = filepath.Join(u.home, "key.txt")
	writeFile(t, c.identity, c.key.String()+"\n")
	return c
}

// copyOf returns the name of a copy that a cluster and a host with the same names, but
// with another CA, would make.
func (c *copied) copyOf(revision int) string {
	return fmt.Sprintf("%s_0123456789ab_%s_20200101-000000_%d.tar.age", c.name, c.cp, revision)
}

// applyCopies writes the copy targets to the file and applies it.
func (c *copied) applyCopies(t *testing.T) {
	t.Helper()
	editSpec(t, c.file, func(spec map[string]any) {
		spec["etcd"] = map[string]any{"backup": map[string]any{
			"every": "1m", "keep": 2, "recipients": []any{c.key.Recipient().String()},
			"copies": []any{
				map[string]any{"name": "nas", "keep": 3, "directory": "/mnt/nas"},
				map[string]any{"name": "vault", "ssh": map[string]any{
					"address": c.listMachines(t)[c.vault].Address, "user": "root", "directory": "/srv/copies",
					"privateKeyFrom": map[string]any{"file": c.listMachines(t)[c.vault].PrivateKeyFile}, "hostKey": c.ssh["hostKey"],
				}},
				map[string]any{"name": "offsite", "s3": c.offsite.spec},
			},
		}}
	})
	c.mustExit(t, 0, "apply", "-f", c.file, "--yes")
	c.waitForEmptyPlan(t, c.file)
}

// takeSnapshot takes a snapshot and copies it now. The result is not checked.
func (c *copied) takeSnapshot(t *testing.T) {
	t.Helper()
	c.runSlipway(t, "sandbox", "exec", c.cp, "--", "systemctl", "start", "slipway-backup.service")
}

func (c *copied) switchedOn(t *testing.T) {
	t.Helper()
	c.applyCopies(t)
	for _, key := range []string{"vault", "offsite"} {
		if is := c.mustExec(t, c.cp, "stat", "-c", "%a %U", "/etc/slipway/backup/"+key+".key"); strings.TrimSpace(is) != "600 root" {
			t.Errorf("the key of %s is %s", key, is)
		}
	}
	c.requireSecretAbsent(t, copierWord)
}

// checkFirstCopies makes four snapshots with copies, the first two by the timer. The
// configured number of copies is kept, and files of others are not removed.
func (c *copied) checkFirstCopies(t *testing.T) {
	t.Helper()
	begun, seen := time.Now(), map[string]bool{}
	copied := func(n int) func() error {
		return func() error {
			for _, f := range c.listedCopies(t, c.name)["offsite"] {
				seen[f] = true
			}
			if len(seen) < n {
				return fmt.Errorf("%d have been", len(seen))
			}
			return nil
		}
	}
	eventually(t, 6*time.Minute, "two snapshots to be copied", copied(2))
	t.Logf("figure: two snapshots, a minute apart, copied to three places, in %.0f s", time.Since(begun).Seconds())
	for n := range 2 {
		c.takeSnapshot(t)
		eventually(t, 4*time.Minute, "another one to be", copied(3+n))
	}
	theirs := below + "/" + c.copyOf(2)
	own := strings.Replace(theirs, "_0123456789ab_", "_"+strings.Split(slices.Collect(maps.Keys(seen))[0], "_")[1]+"_", 1)
	c.offsite.beginUpload(t, own)
	c.offsite.beginUpload(t, theirs)
	c.takeSnapshot(t) // the file on the target is kept, and the upload that the host had begun is cancelled
	eventually(t, 2*time.Minute, "so many to be left as are kept", func() error {
		all := c.listedCopies(t, c.name)
		if len(all["vault"]) != 2 || len(all["offsite"]) != 2 || len(all["nas"]) != 3 || !slices.Equal(all["offsite"], all["vault"]) ||
			!slices.Equal(all["offsite"], all["nas"][:2]) {
			return fmt.Errorf("there are %v", all)
		}
		return c.offsite.checkKeys(t,
			append([]string{below + "/" + all["offsite"][0], below + "/" + all["offsite"][1]}, c.others...), []string{theirs})
	})
	if objects, _ := c.offsite.listKeys(t); slices.Max(slices.Collect(maps.Values(objects))) <= 8<<20 {
		t.Errorf("copies went in one part: %v", objects)
	}
	c.mustExit(t, 0, "etcd", "snapshots", c.name, "--hosts")
	c.mustExit(t, 0, "etcd", "health", c.name)
	// The next copy may be on its way: until it is complete, there is one file more.
	eventually(t, time.Minute, "two copies and the file of others", func() error {
		if is := c.mustExec(t, c.vault, "sh", "-c",
			"ls -A /srv/copies | wc -l; cat /srv/copies/notes.txt"); strings.Join(strings.Fields(is), " ") != "3 mine" {
			return fmt.Errorf("there is %s", is)
		}
		return nil
	})
}

// stopTargets stops the other machine: SFTP and storage.
func (c *copied) stopTargets(t *testing.T) {
	c.mustExec(t, c.vault, "systemctl", "stop", "ssh.socket", "ssh.service", "storage.service")
	before := c.readSchedule(t, c.name).Hosts[0].Kept[0].Path
	c.requireReported(t, "vault has failed since", "offsite has failed since")
	s := c.readSchedule(t, c.name)
	if s.Good || s.Hosts[0].Failed != "" || s.Hosts[0].Kept[0].Path == before {
		t.Errorf("the snapshots are %+v", s)
	}
	stamp := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(s.Hosts[0].Kept[0].Path), c.name+"-"), ".db")
	if all := c.listedCopies(t, c.name); len(all["nas"]) != 3 || !strings.Contains(all["nas"][0], stamp) {
		t.Errorf("the other place has %v, and the newest snapshot is of %s", all["nas"], stamp)
	}
	c.mustExit(t, 3, "etcd", "snapshots", c.name, "--copies")
	c.mustExec(t, c.vault, "systemctl", "start", "ssh.service", "storage.service")
	c.requireHealthy(t)
}

// requireReported wants what is wrong with copies to be said by `etcd health`.
func (c *copied) requireReported(t *testing.T, words ...string) {
	t.Helper()
	eventually(t, 5*time.Minute, "it to be told", func() error {
		r := c.runSlipway(t, "etcd", "health", c.name)
		for _, w := range append(words, "[backup-copy]") {
			if r.code != 3 || !strings.Contains(r.stdout, w) {
				return fmt.Errorf("exit code %d, without %q:\n%s", r.code, w, textTail(r.stdout))
			}
		}
		return nil
	})
}

// requireHealthy requires that the cluster has nothing to report.
func (c *copied) requireHealthy(t *testing.T) {
	t.Helper()
	c.takeSnapshot(t)
	eventually(t, 4*time.Minute, "etcd to be well", func() error {
		if r := c.runSlipway(t, "etcd", "health", c.name); r.code != 0 {
			return fmt.Errorf("exit code %d:\n%s", r.code, textTail(r.stdout))
		}
		return nil
	})
	c.mustExit(t, 0, "etcd", "snapshots", c.name, "--copies")
}

// checkRefusingStorage lets the storage reject requests. The cause is reported where
// copies are made and where they are listed, without the keys.
func (c *copied) checkRefusingStorage(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func()
		want string
	}{
		{
			"a wrong key", func() { writeFile(t, c.offsite.wordKey, "another-word-5e1f") },
			"the secret key does not belong to the access key (SignatureDoesNotMatch)",
		},
		{"a login that it does not know", func() { writeFile(t, c.offsite.accessKey, "nobody") }, "unknown access key (InvalidAccessKeyId)"},
		{
			"no such bucket", func() { c.offsite.spec["bucket"] = "nowhere" },
			"bucket nowhere at https://" + c.listMachines(t)[c.vault].Address + ":9000: the bucket does not exist (NoSuchBucket)",
		},
		{
			"a prefix of others", func() { c.offsite.spec["prefix"] = "etcd/others" },
			"the access key does not have this permission (AccessDenied)",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.do()
			c.applyCopies(t)
			c.takeSnapshot(t)
			c.requireReported(t, "offsite has failed since", tc.want)
			// A login that may not write may list: the bucket's rules decide this.
			if r := c.runSlipway(t, "etcd", "snapshots", c.name,
				"--copies"); tc.name != "a prefix of others" && (r.code != 3 || !strings.Contains(r.stdout, tc.want)) ||
				strings.Contains(r.stdout, "another-word") {
				t.Errorf("looking there ends with %d:\n%s", r.code, r.stdout)
			}
			writeFile(t, c.offsite.accessKey, copierName)
			writeFile(t, c.offsite.wordKey, copierWord)
			c.offsite.spec["bucket"], c.offsite.spec["prefix"] = bucket, below
		})
	}
	c.applyCopies(t)
	c.requireHealthy(t)
}

// restoreFromStorage destroys all data and restores the cluster from the storage.
func (c *copied) restoreFromStorage(t *testing.T) {
	c.mustExec(t, c.cp, "systemctl", "stop", "slipway-backup.timer")
	c.mustKubectl(t, c.name, "delete", "configmap", "kept")
	for _, place := range []string{"nas", "vault"} {
		c.mustExit(t, 0, "etcd", "snapshot", c.name, "--copy", place, "--out", filepath.Join(c.home, place+".tar.age"))
	}
	set := decodeJSON[struct{ File string }](t, c.mustExit(t, 0, "etcd", "snapshot", c.name, "--copy", "offsite", "-o", "json").stdout).File
	if text := c.mustExit(t, 0, "etcd", "drill", c.name, "--from", set, "--identity", c.identity).stdout; !strings.Contains(text, "is good") {
		t.Errorf("the drill says:\n%s", text)
	}
	c.mustExec(t, c.cp, "sh", "-c", "rm -rf /var/lib/etcd/member /var/lib/slipway/backups; pkill -KILL -x etcd; true")
	r := c.mustExit(t, 0, "etcd", "restore", c.name, "--from", set, "--identity", c.identity, "--yes")
	t.Logf("figure: all data destroyed, restored from a copy in storage in %.0f s", r.took.Seconds())
	c.mustKubectl(t, c.name, "get", "configmap", "kept")
	c.mustExit(t, 0, "apply", "-f", c.file, "--yes")
	c.waitForEmptyPlan(t, c.file)
}
