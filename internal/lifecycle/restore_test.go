package lifecycle

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// restorable returns a cluster that has a backup.
func restorable(t *testing.T) (w *world, file string) {
	t.Helper()
	w, _ = backedUp(t)
	return w, w.snapshot(backups.SnapshotOptions{}).File
}

func restoring(file string) RestoreEtcdRequest {
	return RestoreEtcdRequest{Name: "prod", Backup: file}
}

// A restore replaces the data of all members and the keys that a host has lost; the saved
// plan contains no keys.
func TestRestore_ReplacesLostDataAndKeys(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	for _, m := range w.Hosts {
		delete(m.Files, facts.EtcdData) // all is lost
	}
	delete(w.Hosts["cp2"].Files, "/etc/kubernetes/pki/sa.key")
	w.API.StopServers()
	p := w.prepared(w.service().Prepare(t.Context(), restoring(file), nil))
	if r := p.Plan().Removes; len(r) != 1 || !strings.HasPrefix(r[0], "everything written to cluster prod since 2026-11-20 ") ||
		!strings.Contains(r[0], "revision 4711, verified)") {
		t.Errorf("the plan loses %v", r)
	}
	res := w.apply(p, event.Succeeded)
	if len(res.Ready) != 2 || !strings.Contains(res.Ready[0], "revision 4711, 600 keys, on 3 members") {
		t.Errorf("ready: %q", res.Ready)
	}
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		if got := w.Hosts[name].Files[facts.EtcdData]; !strings.HasPrefix(got, "restored ") {
			t.Errorf("%s has %q", name, got)
		}
	}
	got := w.Hosts["cp2"].Files["/etc/kubernetes/pki/sa.key"]
	if !strings.HasPrefix(got, "shared ") && !strings.HasPrefix(got, lifecycletest.CanaryKey) {
		t.Errorf("the restored key of cp2 is %q", got)
	}
	w.wantStatus(v1alpha1.PhaseRunning, "etcd-restore Succeeded", "create Succeeded")
	if left, err := filepath.Glob(filepath.Join(w.home, ".restore-*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if raw, err := os.ReadFile(filepath.Join(w.home, "operations", res.Operation, "plan.json")); err != nil ||
		bytes.Contains(raw, []byte("shared ")) || bytes.Contains(raw, []byte(lifecycletest.CanaryKey)) {
		t.Errorf("the plan contains keys: %v", err)
	}
	w.whole()
}

// Each restore, even of the same set or an older one, sets a revision beyond all earlier
// revisions. Clients then do not rely on cached data. The number of earlier restores is
// the same for a resumed restore.
func TestRestore_RaisesRevisionEachTime(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	for _, want := range []string{"1000004711", "2000004711", "4000004711"} {
		w.apply(w.prepared(w.service().Prepare(t.Context(), restoring(file), nil)), event.Succeeded)
		if w.API.Revision != want {
			t.Errorf("the revision is %s, want %s", w.API.Revision, want)
		}
	}
	s := w.service()
	ops, err := s.Records.Operations().List(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.past.CountEtcdReplacements(t.Context(), "prod", &ops[0]); n != 2 || err != nil {
		t.Errorf("before the third restore there were %d, %v", n, err)
	}
	if n, err := s.past.CountEtcdReplacements(t.Context(), "prod", nil); n != 3 || err != nil {
		t.Errorf("there were %d, %v", n, err)
	}
}

// The snapshot can be sent to hosts from any offset. Temporary files of restores that were
// killed long ago are removed.
func TestRestore_SendsSnapshotFromAnyOffset(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	old, young := filepath.Join(w.home, ".restore-old"), filepath.Join(w.home, ".restore-young")
	for _, left := range []string{old, young} {
		if err := os.WriteFile(left, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	p, ok := w.prepared(w.service().Prepare(t.Context(), restoring(file), nil)).(*prepared)
	if !ok {
		t.Fatal("the prepared operation has another type")
	}
	left, err := filepath.Glob(filepath.Join(w.home, ".restore-*"))
	if d := cmp.Diff([]string{young}, left); err != nil || d != "" {
		t.Errorf("left (-want +got):\n%s%v", d, err)
	}
	blobs := &lateBlobs{backup: p.blobs.backup}
	want := w.Hosts["cp1"].Snapshot
	for _, offset := range []int{0, 5000, len(want)} {
		f, err := blobs.OpenBlob(p.blobs.backup.Source.Snapshot.Digest, int64(offset))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != want[offset:] {
			t.Errorf("from offset %d there are %d bytes, want %d: %v", offset, len(got), len(want)-offset, err)
		}
	}
	if _, err := blobs.OpenBlob("sha256:other", 0); err == nil {
		t.Error("unknown content can be opened")
	}
}

// A restore that was killed anywhere can be resumed, with the same result.
func TestRestore_ResumesAfterKill(t *testing.T) {
	w, file := restorable(t)
	request := restoring(file)
	for _, m := range w.killed(t, request) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			apply := applying(k.Manifest())
			over := slices.ContainsFunc([]string{"restore.reached", "restore.ready", "operation.finished"},
				func(step string) bool { return strings.Contains(m.name, step) })
			_, err := k.service().Prepare(t.Context(), apply, nil)
			switch {
			case over:
				if err != nil {
					t.Errorf("the cluster uses the restored data, but a change is refused: %v", err)
				}
			case k.swapped(): // some or all members have restored data, and not all programs use it yet
				refusal(t, err, idOperationUnfinished)
			}
			k.goOn(request)
			if phase, ops := k.status(); phase != v1alpha1.PhaseRunning || ops[0] != "etcd-restore Succeeded" {
				t.Errorf("phase %q, operations %v", phase, ops)
			}
			k.same(w)
			k.prepared(k.service().Prepare(t.Context(), apply, nil))
		})
	}
}

// A restore fails after it has replaced the data of some members. A second restore that
// fails before it replaces any data does not change that.
func TestRestore_BlocksChangesAfterSecondFailure(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	other := w.snapshot(backups.SnapshotOptions{}).File
	apply := applying(w.Manifest())
	w.refusing("cp2", "restore.swap")
	w.do(restoring(file), event.Failed)
	w.Hosts["cp2"].Refuse = nil
	w.refusing("cp1", "restore.prepare")
	w.do(restoring(other), event.Failed)
	w.Hosts["cp1"].Refuse = nil
	_, err := w.service().Prepare(t.Context(), apply, nil)
	refusal(t, err, idOperationUnfinished)
	w.resume(event.Succeeded)
	w.prepared(w.service().Prepare(t.Context(), apply, nil))
}

// A host that is permanently lost at any point of a restore can be removed. The restore is
// then repeated without it.
func TestRestore_CanBeRepeatedWithoutLostHost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, host, step string
	}{
		{"the API serves", "w1", "restore.kubelets"},
		{"etcd is stopped", "cp2", "restore.start"},
		{"a member has its previous data", "cp3", "restore.swap"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, file := restorable(t)
			w.refusing(tc.host, tc.step)
			w.do(restoring(file), event.Failed)
			w.Hosts[tc.host].Refuse = nil
			gone := DeleteNodesRequest{Name: "prod", Nodes: []string{"cp3"}, Forget: true}
			_, err := w.service().Prepare(t.Context(), gone, nil)
			refusal(t, err, idOperationUnfinished) // cp3 is reachable
			w.Hosts["cp3"].Down = errDown
			w.API.StopMember("cp3")
			w.API.MarkNodeLost("cp3")
			w.do(gone, event.Succeeded)
			c, err := w.service().Records.Clusters().Load(t.Context(), "prod")
			if err != nil || spec.FindHost(c.Spec.Hosts, "cp3") >= 0 {
				t.Errorf("cp3 is still saved: %v", err)
			}
			delete(w.Hosts, "cp3")
			w.API.SetEtcdRole("cp3", "") // the restored data have no such member
			_, err = w.service().Prepare(t.Context(), applying(w.Manifest()), nil)
			refusal(t, err, idOperationUnfinished)
			_, err = w.service().PrepareResume(t.Context(), resuming(), nil)
			refusal(t, err, idBackupChanged) // it was prepared for other members
			w.do(restoring(file), event.Succeeded)
			w.API.DeleteNode("cp3")
			w.prepared(w.service().Prepare(t.Context(), applying(w.Manifest()), nil))
		})
	}
}

// A restore that was started without a worker is complete when all other hosts use its
// data. Then the worker can be removed.
func TestRestore_IsCompleteWithoutUnreachableWorker(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	w.Hosts["w1"].Down = errDown
	request := restoring(file)
	request.IgnoreErrors = true
	w.do(request, event.Partial)
	w.API.MarkNodeLost("w1")
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"w1"}, Forget: true}, event.Succeeded)
	delete(w.Hosts, "w1")
	w.do(applying(w.Manifest()), event.Succeeded)
}

// While a failed restore is unfinished, several lost hosts can be removed from the saved
// cluster together.
func TestRestore_AllowsRemovalOfSeveralLostHosts(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	w.refusing("w1", "restore.kubelets")
	w.do(restoring(file), event.Failed)
	for _, name := range []string{"cp2", "cp3"} {
		w.Hosts[name].Down = errDown
		w.API.StopMember(name)
		w.API.MarkNodeLost(name)
	}
	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{"cp2", "cp3"}, Forget: true}, event.Succeeded)
	c, err := w.service().Records.Clusters().Load(t.Context(), "prod")
	if err != nil || spec.FindHost(c.Spec.Hosts, "cp2") >= 0 || spec.FindHost(c.Spec.Hosts, "cp3") >= 0 {
		t.Errorf("cp2 or cp3 is still saved: %v", err)
	}
}

// swapped reports whether an etcd member has restored data.
func (w *world) swapped() bool {
	for _, m := range w.Hosts {
		if strings.HasPrefix(m.Files[facts.EtcdData], "restored ") {
			return true
		}
	}
	return false
}

// rewritten returns a set with changed metadata, signed with the cluster's key.
func (w *world) rewritten(t *testing.T, file string, change func(*backup.Set)) string {
	t.Helper()
	key, _, err := w.service().keys.LoadOrCreate(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	return written(t, file, change, key)
}

// written returns a set with changed metadata, signed with the given key or unsigned.
func written(t *testing.T, file string, change func(*backup.Set), by *backup.SigningKey) string {
	t.Helper()
	var db bytes.Buffer
	set, small, err := backup.Read(file, nil, &db, nil)
	if err != nil {
		t.Fatal(err)
	}
	change(set)
	dir := t.TempDir()
	snapshot, out := filepath.Join(dir, "db"), filepath.Join(dir, "set.tar")
	if err := os.WriteFile(snapshot, db.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := backup.Write(out, set, small, snapshot, backup.Keys{Signer: by}); err != nil {
		t.Fatal(err)
	}
	return out
}

// A set that cannot be restored is refused, and nothing is touched.
func TestRestore_RefusesUnusableBackupSet(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	written := func(content []byte) string {
		bad := filepath.Join(t.TempDir(), "bad.tar")
		if err := os.WriteFile(bad, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return bad
	}
	flipped := bytes.Clone(raw)
	flipped[len(raw)-5000] ^= 1
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	sealed := w.snapshot(backups.SnapshotOptions{Recipients: []string{id.Recipient().String()}}).File
	key := written([]byte(id.String() + "\n"))
	before := map[string]map[string]string{}
	for name, m := range w.Hosts {
		before[name] = m.AllState()
	}
	for _, tc := range []struct {
		name, reason string
		file, key    string
		id           string
	}{
		{"nothing", "there is no such file", filepath.Join(t.TempDir(), "none"), "", string(backup.Unknown)},
		{"a directory", "it is not a file", t.TempDir(), "", string(backup.Unknown)},
		{"something else", "it is not a set", written([]byte("kind: Cluster\n")), "", string(backup.Unknown)},
		{"cut off", "the end is missing", written(raw[:len(raw)-2000]), "", string(backup.Damaged)},
		{"corrupted", "one bit of the snapshot differs", written(flipped), "", string(backup.Damaged)},
		{"another cluster's", "it has another name", w.rewritten(t, file, func(s *backup.Set) { s.Cluster = "lab" }), "", idBackupOther},
		{"a namesake's", "it has another CA", w.rewritten(t, file, func(s *backup.Set) { s.Authority = "a" }), "", idBackupOther},
		{"a later etcd's", "it cannot be read", w.rewritten(t, file, func(s *backup.Set) { s.Snapshot.Version = "99.1.0" }), "", idBackupVersion},
		{
			"a later Kubernetes'", "not all in it may be known",
			w.rewritten(t, file, func(s *backup.Set) { s.Kubernetes = "v99.1.0" }), "", idBackupVersion,
		},
		{
			"another snapshot", "it is not the snapshot that the set describes",
			w.rewritten(t, file, func(s *backup.Set) { s.Snapshot.Revision++ }), "", string(backup.Damaged),
		},
		{"encrypted", "there is no key", sealed, "", string(backup.Encrypted)},
		{"encrypted, no key in the file", "the named file has no key", sealed, file, string(backup.Encrypted)},
		{"encrypted, and its key", "it can be decrypted", sealed, key, ""},
		{"of an older Kubernetes", "it is only a warning", w.rewritten(t, file, func(s *backup.Set) { s.Kubernetes = "v0.1.0" }), "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := restoring(tc.file)
			r.Identity = tc.key
			p, err := w.service().Prepare(t.Context(), r, nil)
			if tc.id != "" {
				refusal(t, err, tc.id)
				if text := err.Error(); !strings.Contains(text, tc.file) && (tc.key == "" || !strings.Contains(text, tc.key)) {
					t.Errorf("the error does not name the file: %s", text)
				}
				return
			}
			p = w.prepared(p, err)
			if old := tc.name == "of an older Kubernetes"; old != slices.ContainsFunc(p.Findings(),
				func(d diag.Diagnostic) bool { return d.ID == idBackupVersion }) {
				t.Errorf("%s: %v", tc.reason, p.Findings())
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for name, m := range w.Hosts {
		if d := cmp.Diff(before[name], m.AllState()); d != "" {
			t.Errorf("%s was touched (-before +now):\n%s", name, d)
		}
	}
	if left, err := filepath.Glob(filepath.Join(w.home, ".restore-*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// A restore needs all hosts with etcd members. A worker that is down can be left out.
func TestRestore_NeedsAllMembers(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	w.Hosts["cp3"].Down = errDown
	r := restoring(file)
	r.IgnoreErrors = true
	_, err := w.service().Prepare(t.Context(), r, nil)
	refusal(t, err, "host-unreachable")
	w.Hosts["cp3"].Down, w.Hosts["w1"].Down = nil, errDown
	_, err = w.service().Prepare(t.Context(), restoring(file), nil)
	refusal(t, err, "host-unreachable")
	if !strings.Contains(err.Error(), "--ignore-errors") {
		t.Errorf("the error does not name --ignore-errors: %v", err)
	}
	w.do(r, event.Partial)
}

// A failure on one member stops the restore, whatever errors are ignored. Either all
// members keep the old data, or all get the new data.
func TestRestore_StopsOnFailureOfOneMember(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	w.Hosts["w1"].Down = errDown
	w.Hosts["cp2"].Refuse = breaking("restore.prepare")
	r := restoring(file)
	r.IgnoreErrors = true
	for _, f := range w.do(r, event.Failed).Failures {
		if f.Task != "connect" && (f.Task != "restore.prepare" || f.Host != "cp2") {
			t.Errorf("%s was begun on %s: %s", f.Task, f.Host, f.Message)
		}
	}
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		if got := w.Hosts[name].Files[facts.EtcdData]; strings.HasPrefix(got, "restored ") {
			t.Errorf("%s has the new data, but cp2 does not", name)
		}
	}
	if !w.API.IsRunning() {
		t.Error("the cluster was stopped for nothing")
	}
	w.Hosts["w1"].Down, w.Hosts["cp2"].Refuse = nil, nil
	w.resume(event.Succeeded)
	w.whole()
}

// An interrupted restore cannot continue with another set.
func TestRestore_ResumesOnlyWithItsSet(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	w.Hosts["cp2"].Refuse = breaking("restore.swap")
	w.do(restoring(file), event.Failed)
	w.Hosts["cp2"].Refuse = nil
	for _, m := range w.Hosts {
		if m.Snapshot != "" {
			m.Snapshot = lifecycletest.NewEtcdSnapshot(t, 50)
		}
	}
	kept := file + ".kept"
	if err := os.Rename(file, kept); err != nil {
		t.Fatal(err)
	}
	w.API.Start()
	w.snapshot(backups.SnapshotOptions{Out: file})
	_, err := w.service().PrepareResume(t.Context(), resuming(), nil)
	refusal(t, err, idBackupChanged)
	if err := os.Rename(kept, file); err != nil {
		t.Fatal(err)
	}
	w.API.StopServers()
	w.resume(event.Succeeded)
	_, err = w.service().PrepareRollback(t.Context(), rollingBack(), nil)
	refusal(t, err, idNothingUnfinished)
}

// Defragmentation is refused while etcd is unhealthy, changes the leader last, and
// reports the freed space.
func TestDefrag_DefragmentsLeaderLast(t *testing.T) {
	t.Parallel()
	w, _ := etcdWorld(t)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		w.Hosts[name].EtcdWaste = 60 << 20
	}
	w.Hosts["cp1"].LeadsEtcd = true
	w.Hosts["w1"].Down = errDown // it is not asked
	request := DefragEtcdRequest{Name: "prod"}
	w.API.EtcdProblem = "etcd's member cp3 is not well"
	_, err := w.service().Prepare(t.Context(), request, nil)
	refusal(t, err, op.IDEtcdUnhealthy)
	w.API.EtcdProblem = ""
	p := w.prepared(w.service().Prepare(t.Context(), request, nil))
	if len(p.Plan().Removes) > 0 {
		t.Errorf("it loses %v", p.Plan().Removes)
	}
	w.events = nil
	res := w.apply(p, event.Succeeded)
	var order []string
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Outcome == event.Changed {
			order = append(order, e.Task+" "+e.Host)
		}
	}
	if len(order) != 3 || order[2] != "defrag.leader cp1" {
		t.Errorf("the order is %v, want the leader last", order)
	}
	want := []string{
		"the defragmentation freed 180 MiB", "cp1: 40 MiB, before 100 MiB", "cp2: 40 MiB, before 100 MiB",
		"cp3: 40 MiB, before 100 MiB",
	}
	if d := cmp.Diff(want, res.Ready); d != "" {
		t.Errorf("freed (-want +got):\n%s", d)
	}
	if p := w.prepared(w.service().Prepare(t.Context(), request, nil)); !p.Plan().IsEmpty() {
		t.Errorf("there is something left to do: %v", p.Plan().Steps)
	}
}

// An unfinished operation remains unfinished, whether a later defragmentation fails or
// succeeds.
func TestDefrag_KeepsOtherOperationUnfinished(t *testing.T) {
	t.Parallel()
	w, _ := etcdWorld(t)
	w.Hosts["cp2"].EtcdWaste = 1
	w.Hosts["w1"].Refuse = breaking("kubernetes.kubelet")
	c := w.of(threeAndTwo[:4]...)
	c.Spec.Kubernetes.Kubelet.ExtraArgs = map[string]string{"v": "4"}
	w.do(applying(c), event.Failed)
	w.Hosts["w1"].Refuse = nil
	w.Hosts["cp2"].Refuse = breaking("defrag.follower")
	w.do(DefragEtcdRequest{Name: "prod"}, event.Failed)
	w.Hosts["cp2"].Refuse = nil
	w.do(DefragEtcdRequest{Name: "prod"}, event.Succeeded)
	w.wantStatus(v1alpha1.PhaseFailed, "etcd-defrag Succeeded", "etcd-defrag Failed", "apply Failed", "create Succeeded")
	w.resume(event.Succeeded)
	w.wantPhase(v1alpha1.PhaseRunning)
}

// An etcd that runs as a service is backed up and restored on its hosts. The control plane
// has neither its data nor the key of the etcd CA.
func TestManagedEtcd_IsBackedUpAndRestoredOnItsHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "e1", "e2", "e3")
	w.ManagedEtcd = true
	watchKeys(w)
	c := w.Manifest()
	c.Spec.Hosts[0].Roles = c.Spec.Hosts[0].Roles[:1]
	w.do(creating(c), event.Succeeded)
	e := &ensemble{}
	for i, name := range []string{"e1", "e2", "e3"} {
		m := w.Hosts[name]
		m.Snapshot = lifecycletest.NewEtcdSnapshot(t, 4711)
		e.members = append(e.members, &voter{id: uint64(10 + i), leader: 10, name: name, at: m.Address, db: 1 << 20, version: "3.7.0"})
	}
	e.on(w)
	for _, key := range etcdbackup.AuthorityKeys() {
		if m := w.Hosts["cp1"]; !m.HasFile(key) {
			m.Files[key] = "shared " + key
		}
	}
	if r := w.report(); r.Verdict != inspect.Healthy || len(r.Hosts) != 3 {
		t.Errorf("%s: %s: %+v", r.Verdict, r.Summary, r.Hosts)
	}
	i := w.snapshot(backups.SnapshotOptions{})
	if i.Member != "e2" && i.Member != "e3" || !slices.Contains(i.Files, "/etc/kubernetes/pki/etcd/ca.key") ||
		!slices.Contains(i.Files, "/etc/kubernetes/pki/sa.key") {
		t.Errorf("%+v", i)
	}
	delete(w.Hosts["e3"].Files, facts.EtcdData)
	w.do(restoring(i.File), event.Succeeded)
	for _, name := range []string{"e1", "e2", "e3"} {
		if got := w.Hosts[name].Files[facts.EtcdData]; !strings.HasPrefix(got, "restored ") {
			t.Errorf("%s has %q", name, got)
		}
	}
	if w.Hosts["cp1"].HasFile(facts.EtcdData) || w.Hosts["cp1"].HasFile("/etc/kubernetes/pki/etcd/ca.key") {
		t.Error("the control plane has files of etcd")
	}
}
