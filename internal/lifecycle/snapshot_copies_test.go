package lifecycle

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/backup/copies/copiestest"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/registrysecrets"
	"slipway.dev/slipway/internal/node/op"
)

const copyKey = "/etc/slipway/backup/vault.key"

// copiedTo makes the hosts of a cluster copy their snapshots to a directory and to a
// machine.
func copiedTo(t *testing.T, c *v1alpha1.Cluster, m *copiestest.Machine) *v1alpha1.Cluster {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, m.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Spec.Etcd.Backup.Recipients = []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}
	c.Spec.Etcd.Backup.Copies = []v1alpha1.EtcdCopy{
		{Name: "nas", Keep: 5, Directory: "/mnt/nas"},
		{Name: "vault", Keep: 7, SSH: &v1alpha1.SSHCopy{
			Address: m.To.Address, Port: m.To.Port, User: m.To.User, Directory: m.To.Directory, HostKey: m.To.HostKey,
			PrivateKeyFrom: &v1alpha1.SecretSource{File: key},
		}},
	}
	return c
}

// Copy targets are added, changed and removed in the file of a running cluster. Login keys
// are only on the hosts that use them, and not in state.
func TestCopies_AddedChangedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	first, second := copiestest.ListenSFTP(t), copiestest.ListenSFTP(t)
	off := copiedTo(t, w.everyHour(8), second)
	off.Spec.Etcd.Backup.Copies = off.Spec.Etcd.Backup.Copies[:1]
	for _, step := range []struct {
		name string
		c    *v1alpha1.Cluster
		key  []byte
		want string
	}{
		{"on", copiedTo(t, w.everyHour(8), first), first.Key, `"name": "vault"`},
		{"another key", copiedTo(t, w.everyHour(8), second), second.Key, `"name": "vault"`},
		{"one is taken out", off, nil, `"name": "nas"`},
		{"on again", copiedTo(t, w.everyHour(8), first), first.Key, `"name": "vault"`},
		{"all are", w.everyHour(8), nil, `"keep": 8`},
	} {
		request := applying(step.c)
		p := w.prepared(w.service().Prepare(t.Context(), request, nil))
		for _, s := range p.Plan().Steps {
			if s.Task != "backup.timer" && s.Task != "record.cluster" || s.Host == "w1" {
				t.Errorf("%s: the plan has %s on %s", step.name, s.Task, s.Host)
			}
		}
		w.apply(p, event.Succeeded)
		cp1 := w.Hosts["cp1"].Files
		if got := cp1[copyKey]; strings.TrimSpace(got) != strings.TrimSpace(string(step.key)) || w.Hosts["w1"].HasFile(copyKey) {
			t.Errorf("%s: the key is %.30q", step.name, got)
		}
		if !strings.Contains(cp1[backupJob], step.want) || strings.Contains(cp1[backupJob], "PRIVATE") {
			t.Errorf("%s: the job is %s", step.name, cp1[backupJob])
		}
		if p := w.prepared(w.service().Prepare(t.Context(), request, nil)); !p.Plan().IsEmpty() {
			t.Errorf("%s: something is left to do: %+v", step.name, p.Plan().Steps)
		}
	}
	keys := map[string]bool{}
	for _, m := range []*copiestest.Machine{first, second} {
		for line := range strings.Lines(string(m.Key)) {
			if len(line) > 60 {
				keys[strings.TrimSpace(line)] = true
			}
		}
	}
	w.silentOn(keys)
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.bare()
}

// The time limit of a copy is at most the snapshot interval, so that a snapshot never
// waits for the copy of the previous one.
func TestCopies_TimeLimitIsSnapshotInterval(t *testing.T) {
	t.Parallel()
	for every, want := range map[time.Duration]string{time.Minute: `"withinSeconds": 60`, 25 * time.Hour: `"withinSeconds": 1800`} {
		w := newWorld(t, "cp1", "w1")
		c := copiedTo(t, w.everyHour(8), copiestest.ListenSFTP(t))
		c.Spec.Etcd.Backup.Every.Duration = every
		w.do(creating(c), event.Succeeded)
		if job := w.Hosts["cp1"].Files[backupJob]; !strings.Contains(job, want) {
			t.Errorf("every %s: want %s in %s", every, want, job)
		}
	}
}

// A missing key is reported before anything is changed.
func TestCopies_ReportMissingKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.create(event.Succeeded)
	c := copiedTo(t, w.everyHour(8), copiestest.ListenSFTP(t))
	c.Spec.Etcd.Backup.Copies[1].SSH.PrivateKeyFrom.File = "/none"
	_, err := w.service().Prepare(t.Context(), applying(c), nil)
	refusal(t, err, registrysecrets.IDSecretUnreadable)
}

// copying returns a cluster whose hosts copy snapshots, and a function that names such a
// copy.
func copying(t *testing.T) (*world, *copiestest.Machine, func(host string, hour int) string) {
	t.Helper()
	w, m := newWorld(t, "cp1", "w1"), copiestest.ListenSFTP(t)
	w.create(event.Succeeded)
	w.do(applying(copiedTo(t, w.everyHour(8), m)), event.Succeeded)
	admin, err := w.service().Records.Kubeconfigs().Load(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	key, err := w.service().keys.Known(t.Context(), "prod")
	if err != nil || key == nil {
		t.Fatalf("hosts copy snapshots without a signing key: %v", err)
	}
	return w, m, func(host string, hour int) string {
		return copies.Name{
			Cluster: "prod", ID: copies.ClusterID(backups.CAIDs(admin)[0]), Host: host,
			Taken: time.Date(2026, 11, 20, hour, 0, 0, 0, time.UTC), Revision: 4711,
		}.WithTag(key).String()
	}
}

// Copies of the cluster are listed, and copies of other clusters are not. Each can be
// fetched unchanged, also when no host answers.
func TestCopies_ListedAndFetched(t *testing.T) {
	t.Parallel()
	w, m, name := copying(t)
	put := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(m.Dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(name("cp1", 17), "seventeen")
	put(name("cp2", 18), "eighteen, of a host that has left")
	put(strings.Replace(name("cp1", 19), "prod_", "other_", 1), "")
	put("prod_000000000000_cp1_20261120-190000_1.tar.age", "of another cluster of that name")
	put("notes.txt", "")
	w.Hosts["cp1"].Files["/mnt/nas/"+name("cp1", 16)] = "sixteen"
	list := func() (out []string) {
		t.Helper()
		r, err := w.impatient().Copies(t.Context(), "prod", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range r.Targets {
			line := to.Name
			for _, c := range to.Copies {
				line += " " + c.Host + c.Taken.Format("/15")
			}
			if to.Problem != nil {
				line += " " + to.Problem.ID
			}
			out = append(out, line)
		}
		return out
	}
	if d := cmp.Diff([]string{"nas cp1/16", "vault cp2/18 cp1/17"}, list()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	fetch := func(o backups.SnapshotOptions, want string) {
		t.Helper()
		i, err := w.impatient().Snapshot(t.Context(), "prod", o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(i.File); err != nil || string(got) != want || i.Bytes != int64(len(want)) || !i.Encrypted {
			t.Errorf("%s is %q, %v, want %q: %+v", o.Copy, got, err, want, i)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(i.File), ".slipway-*")); err != nil || len(left) > 0 {
			t.Errorf("files are left: %v, %v", left, err)
		}
	}
	fetch(backups.SnapshotOptions{Copy: "nas"}, "sixteen")
	w.Hosts["cp1"].Down = errDown
	if d := cmp.Diff([]string{"nas backup-copy-unreachable", "vault cp2/18 cp1/17"}, list()); d != "" {
		t.Errorf("no host answers (-want +got):\n%s", d)
	}
	fetch(backups.SnapshotOptions{Copy: "vault"}, "eighteen, of a host that has left")
	out := filepath.Join(t.TempDir(), "x.age")
	fetch(backups.SnapshotOptions{Copy: "vault/" + name("cp1", 17), Out: out}, "seventeen")
	for of, want := range map[string]string{
		"nas": idCopyTarget, "none": idBackupNotThere, "vault/" + name("cp1", 20): idBackupNotThere, "vault/../x": idBackupNotThere,
		"vault": string(backup.Exists),
	} {
		_, err := w.impatient().Snapshot(t.Context(), "prod", backups.SnapshotOptions{Copy: of}, nil)
		refusal(t, err, want)
	}
	sets, err := w.service().Snapshots(t.Context(), "prod")
	if err != nil || len(sets) != 2 || !sets[0].Encrypted || sets[0].Taken.Hour() != 18 {
		t.Fatalf("%+v, %v", sets, err)
	}
	if p := sets[0].Problem; p == nil || p.ID != "backup-damaged" { // the texts of this test are not sets
		t.Errorf("the problem of a set without content is %v", p)
	}
}

// Each host may mount another directory. While a host does not answer, the newest copy is
// unknown, and an older copy must be given by name.
func TestCopies_NewestUnknownWhileHostIsDown(t *testing.T) {
	t.Parallel()
	w, _ := etcdWorld(t)
	m := copiestest.ListenSFTP(t)
	svc := w.impatient()
	c := copiedTo(t, w.everyHour(8), m)
	if err := svc.Records.Clusters().Save(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	admin, err := svc.Records.Kubeconfigs().Load(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := svc.keys.LoadOrCreate(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for i, host := range []string{"cp1", "cp2"} {
		names[host] = copies.Name{
			Cluster: "prod", ID: copies.ClusterID(backups.CAIDs(admin)[0]), Host: host,
			Taken: time.Date(2026, 11, 20, 16+i, 0, 0, 0, time.UTC), Revision: 4711 + int64(i),
		}.WithTag(key).String()
		w.Hosts[host].Files["/mnt/nas/"+names[host]] = "of " + host
	}
	fetch := func(which string) (string, error) {
		out := filepath.Join(t.TempDir(), "x.age")
		if _, err := svc.Snapshot(t.Context(), c.Name, backups.SnapshotOptions{Copy: which, Out: out}, nil); err != nil {
			return "", err
		}
		raw, err := os.ReadFile(out)
		return string(raw), err
	}
	if got, err := fetch("nas"); err != nil || got != "of cp2" {
		t.Errorf("all answer: %q, %v", got, err)
	}
	w.Hosts["cp2"].Down = errDown
	_, err = fetch("nas")
	refusal(t, err, "backup-copy-unreachable")
	if text := err.Error(); !strings.Contains(text, "cp2 does not answer") || !strings.Contains(text, "--copy nas/"+names["cp1"]) {
		t.Error(text)
	}
	if got, err := fetch("nas/" + names["cp1"]); err != nil || got != "of cp1" {
		t.Errorf("by its name: %q, %v", got, err)
	}
}

// A target that does not respond is reported by name. The other targets are still listed.
func TestCopies_ReportTargetThatDoesNotRespond(t *testing.T) {
	t.Parallel()
	w, m, name := copying(t)
	if err := os.WriteFile(filepath.Join(m.Dir, name("cp1", 17)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.Hosts["cp1"].StalledDir = "/mnt/nas"
	svc := w.impatient()
	r, err := svc.Copies(t.Context(), "prod", nil)
	if err != nil {
		t.Fatal(err)
	}
	nas, vault := r.Targets[0], r.Targets[1]
	if nas.Problem == nil || !strings.Contains(nas.Problem.Message, "cp1: /mnt/nas did not respond within") || r.Good {
		t.Errorf("%+v", nas.Problem)
	}
	if vault.Problem != nil || len(vault.Copies) != 1 {
		t.Errorf("the other target: %+v", vault)
	}

	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := copiedTo(t, w.everyHour(8), m)
	to := c.Spec.Etcd.Backup.Copies[1]
	to.SSH.Port = silent.Addr().(*net.TCPAddr).Port
	w.Hosts["cp1"].Down = errDown
	q, done, err := svc.QueryCopies(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, _, err := q.List(t.Context(), to); err == nil || !strings.Contains(err.Error(), inspect.CopyPlace(to)+" did not respond within") {
		t.Error(err)
	}
	if _, _, err := q.List(t.Context(), c.Spec.Etcd.Backup.Copies[0]); err == nil || strings.Contains(err.Error(), "nil") {
		t.Error(err)
	}
}

// A copy that is larger than listed is not received.
func TestCopies_NotLargerThanListed(t *testing.T) {
	t.Parallel()
	w, m, name := copying(t)
	if err := os.WriteFile(filepath.Join(m.Dir, name("cp1", 17)), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c := copiedTo(t, w.everyHour(8), m)
	q, done, err := w.service().QueryCopies(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	part := filepath.Join(t.TempDir(), "part")
	err = q.Fetch(t.Context(), c.Spec.Etcd.Backup.Copies[1],
		copies.Copy{File: copies.File{Name: name("cp1", 17), Bytes: 100}}, part)
	refusal(t, err, "backup-copy-unreachable")
	if info, err := os.Stat(part); err != nil || info.Size() > 100 {
		t.Errorf("received %d bytes, %v", info.Size(), err)
	}
}

// A copy from a host that is larger than listed is not received either. A copy that stalls
// is given up.
func TestCopies_FromHostLargeOrStalled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		ill  func(*lifecycletest.Host)
		want string
	}{
		{"it has grown", func(m *lifecycletest.Host) { m.SentSnapshot = strings.Repeat("x", 1<<20) }, "the limit is 7"},
		{"it is stalled", func(m *lifecycletest.Host) { m.StalledDir = "/mnt/nas" }, "cp1: no data of /mnt/nas/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, _, name := copying(t)
			file := name("cp1", 16)
			w.Hosts["cp1"].Files["/mnt/nas/"+file] = "sixteen"
			svc := w.impatient()
			out := filepath.Join(t.TempDir(), "x.age")
			listed := event.SinkFunc(func(e event.Event) {
				if strings.HasPrefix(e.Message, "fetching "+file) {
					tc.ill(w.Hosts["cp1"])
				}
			})
			if _, err := svc.Snapshot(t.Context(), "prod", backups.SnapshotOptions{Copy: "nas/" + file, Out: out}, listed); err == nil ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v, %v", left, err)
			}
		})
	}
}

// Failing copies are reported by each command that checks them, with the start of the
// failure.
func TestCopies_FailuresAreReported(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		outcome      func(now time.Time) []op.CopyOutcome
		want         string
	}{
		{"good", "the copy is new", func(now time.Time) []op.CopyOutcome {
			return []op.CopyOutcome{{Target: "nas", Copied: now.Add(-time.Hour), Kept: 3}, {Target: "vault", Copied: now, Kept: 3}}
		}, ""},
		{"running", "a large copy takes some time", func(now time.Time) []op.CopyOutcome {
			return []op.CopyOutcome{{Target: "nas", Copied: now}, {Target: "vault", Copied: now.Add(-time.Hour), Begun: now.Add(-10 * time.Minute)}}
		}, ""},
		{"never ends", "the target may be stalled", func(now time.Time) []op.CopyOutcome {
			return []op.CopyOutcome{{Target: "nas", Copied: now.Add(-time.Hour), Begun: now.Add(-40 * time.Minute)}, {Target: "vault", Copied: now}}
		}, "has not finished: the target may be stalled; the latest copy from this host there is from"},
		{"not reported", "it was killed before it saved an outcome", func(now time.Time) []op.CopyOutcome {
			return []op.CopyOutcome{{Target: "nas", Copied: now}}
		}, "not copied to vault: the target has no copy from this host yet"},
		{"failed", "the machine is off", func(now time.Time) []op.CopyOutcome {
			return []op.CopyOutcome{
				{Target: "nas", Copied: now},
				{Target: "vault", Copied: now.Add(-time.Hour), Failed: "no route", Since: now.Add(-30 * time.Minute)},
			}
		}, "copying its snapshots to vault has failed since"},
		{"never", "it never worked", func(now time.Time) []op.CopyOutcome {
			return []op.CopyOutcome{{Target: "vault", Failed: "no route", Since: now}}
		}, "no route; the target has no copy from this host yet"},
		{"old", "every copy may have been killed", func(now time.Time) []op.CopyOutcome {
			return []op.CopyOutcome{{Target: "nas", Copied: now.Add(-3 * time.Hour)}}
		}, "not copied to nas: the latest"},
		{"in the future", "the clock was ahead", func(now time.Time) []op.CopyOutcome {
			return []op.CopyOutcome{{Target: "nas", Copied: now.Add(20 * time.Hour)}, {Target: "vault", Copied: now.Add(time.Minute)}}
		}, "cannot tell whether its snapshots are copied to nas"},
		{"one too many", "the target may become full", func(now time.Time) []op.CopyOutcome {
			return []op.CopyOutcome{{Target: "nas", Copied: now, Kept: 4, Unremoved: "locked"}, {Target: "vault", Copied: now}}
		}, "copied to nas, but old copies there cannot be removed: locked"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, _, _ := copying(t)
			m := w.Hosts["cp1"]
			m.Snapshot = lifecycletest.NewEtcdSnapshot(t, 4711)
			svc := w.impatient()
			m.TakeSnapshot(t, svc.Now(), "")
			m.ChangeSnapshotReport(t, func(out *op.AutoSnapshotOutcome) { out.Copies = tc.outcome(svc.Now()) })
			toldOf(t, svc, "backup-copy", tc.want, tc.reason)
		})
	}
}
