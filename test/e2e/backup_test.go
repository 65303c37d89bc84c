//go:build e2e && long

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
)

// TestLongBackup backs up a cluster of three control planes and two workers. The cluster
// loses its objects, and then the data of all members. Each restore recreates all
// objects. The manager is killed at the end of every step of one restore.
func TestLongBackup(t *testing.T) {
	b := newBalanced(t, "e2e-backup", 3, 2)
	b.setEndpoint(t, "haproxy")
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	var many strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept-%d}\ndata: {is: %q}\n", i, strings.Repeat("x", 2000))
	}
	manifest := filepath.Join(t.TempDir(), "many.yaml")
	if err := os.WriteFile(manifest, []byte(many.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	b.mustKubectl(t, b.name, "apply", "-f", manifest)
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))

	b.looksAtEtcd(t)
	had := b.listObjects(t)
	plain, sealed, key := b.backsUp(t)
	b.refusesSets(t, plain, sealed)
	b.mustKubectl(t, b.name, "create", "configmap", "later")

	t.Run("objects deleted", func(t *testing.T) {
		b.mustKubectl(t, b.name, "delete", "-f", manifest, "--wait=false")
		b.mustKubectl(t, b.name, "delete", "daemonset/echo", "service/echo")
		r := b.mustExit(t, 0, "etcd", "restore", b.name, "--from", sealed, "--identity", key, "--yes")
		t.Logf("figure: restored from an encrypted set in %.0f s", r.took.Seconds())
		b.isBack(t, had)
	})
	if t.Failed() {
		return
	}
	t.Run("data destroyed, and the manager killed", func(t *testing.T) {
		for _, m := range b.controlPlanes {
			b.mustExec(t, m, "sh", "-c", "rm -rf /var/lib/etcd/member; pkill -KILL -x etcd; true")
		}
		ms := newMoments()
		for _, m := range b.controlPlanes {
			for _, task := range []string{"prepare", "stop", "swap", "start", "kubelets"} {
				ms.left = append(ms.left, momentAfter("restore."+task+"@"+m))
			}
		}
		begin, all := time.Now(), len(ms.left)
		kills := b.killedAt(t, ms, b.name, "etcd", "restore", b.name, "--from", plain, "--yes")
		if kills < all*2/3 {
			t.Errorf("%d kills for %d moments; never came: %s", kills, all, strings.Join(ms.listMissing(), ", "))
		}
		t.Logf("figure: restored after the loss of all data, with %d kills, in %.0f s", kills, time.Since(begin).Seconds())
		b.isBack(t, had)
	})
	if !t.Failed() {
		b.deleteCluster(t)
	}
}

// looksAtEtcd checks the output of health and members: with all members, without one of
// them, and without the API.
func (b *balanced) looksAtEtcd(t *testing.T) {
	t.Helper()
	type report struct {
		Verdict string
		Etcd    struct {
			Members []struct {
				Name            string
				Answers, Leader bool
				DBBytes         int64
			}
		}
	}
	r := decodeJSON[report](t, b.mustExit(t, 0, "etcd", "health", b.name, "-o", "json").stdout)
	if r.Verdict != "healthy" || len(r.Etcd.Members) != 3 || r.Etcd.Members[0].DBBytes == 0 {
		t.Errorf("etcd is %+v", r)
	}
	last := b.controlPlanes[2]
	b.mustRun(t, "sandbox", "kill", last)
	begin := time.Now()
	r = decodeJSON[report](t, b.mustExit(t, 3, "etcd", "health", b.name, "-o", "json").stdout)
	t.Logf("figure: health without one of three hosts: %.1f s", time.Since(begin).Seconds())
	for _, m := range r.Etcd.Members {
		if m.Answers == (m.Name == last) {
			t.Errorf("without %s: %+v", last, m)
		}
	}
	refusedBy(t, b.mustExit(t, 2, "etcd", "defrag", b.name, "--yes"), last)
	b.mustRun(t, "sandbox", "kill", b.controlPlanes[1])
	if r := b.mustExit(t, 1, "etcd", "health", b.name); !strings.Contains(r.stdout, "is down") || !strings.Contains(r.stdout, last) {
		t.Errorf("without a majority:\n%s", r.stdout)
	}
	for _, m := range b.controlPlanes[1:] {
		b.mustRun(t, "sandbox", "start", m)
	}
	eventually(t, 4*time.Minute, "all members", func() error {
		if r := b.runSlipway(t, "etcd", "health", b.name); r.code != 0 {
			return fmt.Errorf("exit code %d:\n%s", r.code, textTail(r.stdout))
		}
		return nil
	})
	b.user.waitForNodes(t, b.name, b.nodesOf()...)
	t.Logf("defragmentation:\n%s", b.mustExit(t, 0, "etcd", "defrag", b.name, "--yes").stdout)
}

// backsUp takes a plain set and one that is encrypted, and answers them and the
// key of the latter.
func (b *balanced) backsUp(t *testing.T) (plain, sealed, key string) {
	t.Helper()
	type set struct {
		File, Member string
		Files        []string
		Snapshot     struct{ Revision, Keys, Bytes int64 }
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key, sealed = filepath.Join(dir, "key.txt"), filepath.Join(dir, "sealed.tar.age")
	if err := os.WriteFile(key, []byte(id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := b.mustExit(t, 0, "etcd", "snapshot", b.name, "-o", "json")
	s := decodeJSON[set](t, r.stdout)
	t.Logf("figure: a backup of %d KiB in %.1f s", s.Snapshot.Bytes>>10, r.took.Seconds())
	if s.Snapshot.Revision == 0 || s.Snapshot.Keys < 300 || len(s.Files) < 8 {
		t.Errorf("the set is %+v", s)
	}
	b.mustExit(t, 0, "etcd", "snapshot", b.name, "--out", sealed, "--recipient", id.Recipient().String())
	if list := decodeJSON[[]set](t, b.mustRun(t, "etcd", "snapshots", b.name, "-o", "json")); len(list) != 1 || list[0].File != s.File {
		t.Errorf("listed are %+v", list)
	}
	for _, m := range b.controlPlanes {
		if left := b.mustExec(t, m, "sh", "-c", "ls /var/lib/slipway/snapshots 2>/dev/null; true"); left != "" {
			t.Errorf("%s still has %s", m, left)
		}
	}
	return s.File, sealed, key
}

// refusesSets wants sets refused that cannot be used, and nothing touched.
func (b *balanced) refusesSets(t *testing.T, plain, sealed string) {
	t.Helper()
	raw, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	cut, changed := filepath.Join(t.TempDir(), "cut.tar"), filepath.Join(t.TempDir(), "changed.tar")
	other := slices.Clone(raw)
	other[len(raw)/2] ^= 1
	for file, content := range map[string][]byte{cut: raw[:len(raw)/2], changed: other} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		refusedBy(t, b.mustExit(t, 2, "etcd", "restore", b.name, "--from", file, "--yes"), "[backup-damaged]")
	}
	refusedBy(t, b.mustExit(t, 2, "etcd", "restore", b.name, "--from", sealed, "--yes"), "[backup-encrypted]", "--identity")
	refusedBy(t, b.mustExit(t, 2, "etcd", "restore", "--from", plain, "--yes"), "[removal-not-allowed]")
	if r := b.mustExit(t, 0, "etcd", "health", b.name); !strings.Contains(r.stdout, "is healthy") {
		t.Errorf("after refusals:\n%s", r.stdout)
	}
}

// listObjects returns the ids of the objects that do not change, by kind and name.
func (b *balanced) listObjects(t *testing.T) map[string]string {
	t.Helper()
	type list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Namespace, Name, UID string }
		}
	}
	out := map[string]string{}
	for _, o := range decodeJSON[list](t,
		b.mustKubectl(t, b.name, "get", "configmaps,services,serviceaccounts,deployments,daemonsets,clusterroles,nodes,namespaces",
			"-A", "-o", "json")).Items {
		out[o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name] = o.Metadata.UID
	}
	return out
}

// isBack wants every object back and none that came later, and a cluster that
// works: what is asked for now runs.
func (b *balanced) isBack(t *testing.T, had map[string]string) {
	t.Helper()
	addresses := b.user.waitForNodes(t, b.name, b.nodesOf()...)
	is := b.listObjects(t)
	for _, o := range slices.Sorted(maps.Keys(had)) {
		if is[o] != had[o] {
			t.Errorf("%s has the id %q, and had %q", o, is[o], had[o])
		}
	}
	if _, ok := is["ConfigMap default/later"]; ok {
		t.Error("what came after the backup is there")
	}
	if r := b.mustExit(t, 0, "etcd", "health", b.name); !strings.Contains(r.stdout, "is healthy") {
		t.Errorf("etcd afterwards:\n%s", r.stdout)
	}
	name := fmt.Sprintf("new-%d", time.Now().Unix())
	image := b.mustKubectl(t, b.name, "get", "daemonset", "echo", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	b.mustKubectl(t, b.name, "create", "deployment", name, "--image="+image, "--replicas=3")
	b.mustKubectl(t, b.name, "rollout", "status", "deployment/"+name, "--timeout=180s")
	b.mustKubectl(t, b.name, "delete", "deployment", name)
	b.mustKubectl(t, b.name, "rollout", "status", "daemonset/echo", "--timeout=180s")
	b.smokeTest(t, b.name, addresses)
	b.waitForEmptyPlan(t, b.file)
	for _, m := range b.controlPlanes {
		b.mustExec(t, m, "sh", "-c", "ls -d /var/lib/etcd/before-*")
	}
}
