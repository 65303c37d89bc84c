package lifecycle

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/records"
)

// otherKey returns the signing key of another manager or of an attacker.
func otherKey(t *testing.T) *backup.SigningKey {
	t.Helper()
	text, err := backup.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := backup.ParseSigningKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func asItIs(*backup.Set) {}

// Anyone who can write to the backup directory can forge a set. An unverified set is
// restored or tested only on request, and then only its data goes to hosts.
func TestRestore_RefusesUnverifiedSetUnlessRequested(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	foreign := otherKey(t)
	for _, tc := range []struct {
		name  string
		file  string
		trust backups.SetTrust
		id    string
		told  bool
	}{
		{"signed by the cluster's key", file, backups.SetTrust{}, "", false},
		{"not signed", written(t, file, asItIs, nil), backups.SetTrust{}, string(backup.Unverified), false},
		{"signed by another key", written(t, file, asItIs, foreign), backups.SetTrust{}, string(backup.Unverified), false},
		{
			"signed by another key, which is trusted", written(t, file, asItIs, foreign),
			backups.SetTrust{SignedBy: foreign.PublicKey().String()},
			"", false,
		},
		{
			"signed by a key that is not the trusted one", written(t, file, asItIs, nil),
			backups.SetTrust{SignedBy: foreign.PublicKey().String()},
			string(backup.Unverified), false,
		},
		{"no key", file, backups.SetTrust{SignedBy: "ed25519:AAAA"}, idBadSigner, false},
		{"not signed, on purpose", written(t, file, asItIs, nil), backups.SetTrust{Unverified: true}, "", true},
		{
			"another cluster's, on purpose", written(t, file, func(s *backup.Set) { s.Authority = "a" }, nil),
			backups.SetTrust{Unverified: true},
			idBackupOther, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := restoring(tc.file)
			r.SetTrust = tc.trust
			p, err := w.service().Prepare(t.Context(), r, nil)
			_, drillErr := w.impatient().Drill(t.Context(), "prod", backups.DrillOptions{From: tc.file, SetTrust: tc.trust}, nil)
			if tc.id != "" {
				refusal(t, err, tc.id)
				refusal(t, drillErr, tc.id)
				return
			}
			p = w.prepared(p, err)
			if told := slices.ContainsFunc(p.Findings(),
				func(d diag.Diagnostic) bool { return d.ID == string(backup.Unverified) }); told != tc.told {
				t.Errorf("findings: %v", p.Findings())
			}
			if says := strings.Contains(p.Plan().Removes[0], "NOT VERIFIED"); says != tc.told ||
				!strings.Contains(p.Plan().Removes[0], "(snapshot of cp") {
				t.Errorf("the plan has %q", p.Plan().Removes)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Keys that hosts have lost are restored from a verified set. From an unverified set they
// are restored only on request, and a resume keeps that choice.
func TestRestore_UsesUnverifiedKeysOnlyOnRequest(t *testing.T) {
	t.Parallel()
	const lost = "/etc/kubernetes/pki/sa.key"
	for name, tc := range map[string]struct {
		trust backups.SetTrust
		keys  bool
	}{
		"verified":           {backups.SetTrust{}, true},
		"not verified":       {backups.SetTrust{Unverified: true}, false},
		"not verified, keys": {backups.SetTrust{Unverified: true, WithKeys: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, file := restorable(t)
			delete(w.Hosts["cp2"].Files, lost)
			r := restoring(file)
			if tc.trust.Unverified {
				r = restoring(written(t, file, asItIs, nil))
				r.SetTrust = tc.trust
			}
			p := w.prepared(w.service().Prepare(t.Context(), r, nil))
			says := slices.ContainsFunc(p.Findings(), func(d diag.Diagnostic) bool {
				return d.ID == string(backup.Unverified) && strings.Contains(d.Hint, "may have these keys")
			})
			if err := p.Close(); err != nil || says != tc.trust.WithKeys {
				t.Errorf("warning about the keys: %t, want %t; %v", says, tc.trust.WithKeys, err)
			}
			w.refusing("cp3", "restore.start")
			w.do(r, event.Failed)
			w.Hosts["cp3"].Refuse = nil
			w.resume(event.Succeeded)
			if w.Hosts["cp2"].HasFile(lost) != tc.keys {
				t.Errorf("cp2 has its key: %t, want %t", w.Hosts["cp2"].HasFile(lost), tc.keys)
			}
			if got := w.Hosts["cp2"].Files[facts.EtcdData]; !strings.HasPrefix(got, "restored ") {
				t.Errorf("cp2 has %q", got)
			}
		})
	}
}

// TestRestore_RefusesWithKeysForVerifiedSet checks that WithKeys is refused for a verified set, whose
// keys are used anyway.
func TestRestore_RefusesWithKeysForVerifiedSet(t *testing.T) {
	t.Parallel()
	w, file := restorable(t)
	r := restoring(file)
	r.WithKeys = true
	_, err := w.service().Prepare(t.Context(), r, nil)
	refusal(t, err, idWithKeys)
}

// TestRestore_ResumesOperationFromBeforeSigning checks that a restore by a program without signatures
// resumes with its set. A restore that began with a verified set does not resume with an
// unverified one.
func TestRestore_ResumesOperationFromBeforeSigning(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		record func(*v1alpha1.OperationParameters)
		id     string
	}{
		"before signing": {func(p *v1alpha1.OperationParameters) { p.Unverified, p.Verified = false, false }, ""},
		"verified then":  {func(p *v1alpha1.OperationParameters) { p.Unverified, p.Verified = false, true }, string(backup.Unverified)},
	} {
		t.Run(name, func(t *testing.T) {
			w, file := restorable(t)
			r := restoring(written(t, file, asItIs, nil))
			r.Unverified = true
			w.refusing("cp3", "restore.start")
			w.do(r, event.Failed)
			w.Hosts["cp3"].Refuse = nil
			s := w.service()
			ops, err := s.Records.Operations().List(t.Context(), "prod")
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range ops {
				if operation.Kind(o.Spec.Kind) == operation.RestoreEtcd {
					tc.record(&o.Spec.Parameters)
					if err := s.Records.Operations().Save(t.Context(), &o); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tc.id != "" {
				_, err := s.PrepareResume(t.Context(), resuming(), nil)
				refusal(t, err, tc.id)
				return
			}
			w.resume(event.Succeeded)
			if got := w.Hosts["cp2"].Files[facts.EtcdData]; !strings.HasPrefix(got, "restored ") {
				t.Errorf("cp2 has %q", got)
			}
		})
	}
}

// Without a name, the newest verified set is used. A set that has the file name of another
// set is reported.
func TestRestoreTest_UsesNewestVerifiedSet(t *testing.T) {
	t.Parallel()
	w, s, _, i := drilled(t)
	later := func(name string) string { return filepath.Join(filepath.Dir(i.File), name) }
	forged := written(t, i.File, func(s *backup.Set) { s.Taken = s.Taken.Add(time.Hour) }, otherKey(t))
	if err := os.Rename(forged, later("prod-20270101-000000.tar")); err != nil {
		t.Fatal(err)
	}
	r, err := s.Drill(t.Context(), "prod", backups.DrillOptions{}, nil)
	if err != nil || r.File != i.File || !r.Verified || len(r.Warnings) > 0 || r.Revision != 4711 || r.Member != i.Member {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = s.Drill(t.Context(), "prod", backups.DrillOptions{SetTrust: backups.SetTrust{Unverified: true}}, nil)
	if err != nil || r.File != later("prod-20270101-000000.tar") || r.Verified || len(r.Warnings) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	list, err := s.Snapshots(t.Context(), "prod")
	if err != nil || len(list) != 2 || list[0].Verified || !list[1].Verified {
		t.Errorf("%+v, %v", list, err)
	}
	raw, err := os.ReadFile(i.File)
	if err == nil {
		err = os.WriteFile(later("prod-20270102-000000.tar"), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err = s.Drill(t.Context(), "prod", backups.DrillOptions{From: later("prod-20270102-000000.tar")}, nil)
	if err != nil || len(r.Warnings) != 1 || r.Warnings[0].ID != idBackupRenamed {
		t.Errorf("%+v, %v", r, err)
	}
	w.remove(i.File)
	w.remove(later("prod-20270102-000000.tar"))
	_, err = s.Drill(t.Context(), "prod", backups.DrillOptions{}, nil)
	refusal(t, err, string(backup.Unverified))
}

// Hosts that make sets have the signing key, and the cluster state has its public key.
// Other hosts do not have the key.
func TestSigningKey_ExistsOnlyOnBackupHosts(t *testing.T) {
	t.Parallel()
	const at = "/etc/slipway/backup-signing.key"
	w, m, name := copying(t)
	key, text, err := w.service().keys.LoadOrCreate(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Hosts["cp1"].Files[at]; got != text.Reveal() || w.Hosts["w1"].HasFile(at) {
		t.Errorf("cp1 has %.20q; w1 has one: %t", got, w.Hosts["w1"].HasFile(at))
	}
	planted := copies.Name{
		Cluster: "prod", ID: strings.Split(name("cp1", 17), "_")[1], Host: "cp1",
		Taken: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), Revision: 1 << 62,
	}.String()
	for _, file := range []string{name("cp1", 17), planted} {
		if err := os.WriteFile(filepath.Join(m.Dir, file), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		o    backups.SnapshotOptions
		want string
	}{
		{"the newest", backups.SnapshotOptions{Copy: "vault"}, name("cp1", 17)},
		{"the newest of all", backups.SnapshotOptions{Copy: "vault", SetTrust: backups.SetTrust{Unverified: true}}, planted},
		{"by its name", backups.SnapshotOptions{Copy: "vault/" + planted, Out: filepath.Join(t.TempDir(), "x")}, planted},
	} {
		i, err := w.impatient().Snapshot(t.Context(), "prod", tc.o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(i.File); err != nil || string(got) != tc.want || i.Verified != (tc.want != planted) || i.Revision == 0 {
			t.Errorf("%s is %q, %+v, %v", tc.name, got, i, err)
		}
	}
	r, err := w.impatient().Copies(t.Context(), "prod", nil)
	if err != nil || len(r.Targets[1].Copies) != 2 || r.Targets[1].Copies[0].Verified || !r.Targets[1].Copies[1].Verified {
		t.Errorf("%+v, %v", r, err)
	}
	data, ok := w.API.Objects["/api/v1/namespaces/kube-system/configmaps/"+clusterstate.Name]["data"].(object)
	if got := data[clusterstate.SignerKey]; !ok || got != key.PublicKey().String() {
		t.Errorf("the cluster state has %q", got)
	}
}

// TestSigningKey_IsTakenOverFromFirstManager checks that hosts keep the key of the first manager. A
// later manager takes it over and still trusts the sets that it signed before.
func TestSigningKey_IsTakenOverFromFirstManager(t *testing.T) {
	t.Parallel()
	const at = "/etc/slipway/backup-signing.key"
	w, _, _ := copying(t)
	first := w.Hosts["cp1"].Files[at]
	s := w.service()
	own, _, err := s.keys.LoadOrCreate(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	other, err := backup.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	w.Hosts["cp1"].Files[at] = string(other) // the key of the other manager, which was first
	c := w.Manifest()
	recorded, err := s.Cluster(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	c.Spec = recorded.Spec
	apply := applying(c)
	for range 2 { // it is only planned: nothing is changed, and it is reported again
		p := w.prepared(s.Prepare(t.Context(), apply, nil))
		if !adopts(p) {
			t.Errorf("the takeover is not reported: %+v", p.Findings())
		}
		for _, step := range p.Plan().Steps {
			for _, change := range step.Changes {
				if change.Target == at {
					t.Errorf("the key of the first manager is replaced: %+v", step)
				}
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		former, err := s.Records.Backups().LoadFormerSigners(t.Context(), "prod")
		if err != nil || len(former) > 0 {
			t.Errorf("a plan has added %v to the former keys, %v", former, err)
		}
		if _, text, err := s.keys.LoadOrCreate(t.Context(), "prod"); err != nil || text.Reveal() != first {
			t.Errorf("a plan has changed the key of the manager: %v", err)
		}
	}
	p := w.prepared(s.Prepare(t.Context(), apply, nil))
	lock, err := s.Records.Locks().Acquire(t.Context(), "prod", records.Holder{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Apply(t.Context())
	var held *LockedError
	if !errors.As(err, &held) {
		t.Errorf("the key is taken over without the lock: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	w.apply(p, event.Succeeded)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	_, text, err := s.keys.LoadOrCreate(t.Context(), "prod")
	if err != nil || text.Reveal() != string(other) || text.Reveal() == first {
		t.Errorf("the manager has not taken the key over: %v", err)
	}
	keys, err := s.keys.Trusted(t.Context(), "prod", backups.SetTrust{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(keys, func(k backup.PublicKey) bool { return k.String() == own.PublicKey().String() }) {
		t.Error("its own sets are no longer trusted")
	}
	p = w.prepared(s.Prepare(t.Context(), apply, nil))
	if adopts(p) {
		t.Error("the takeover is reported again")
	}
	if w.Hosts["cp1"].Files[at] != string(other) {
		t.Error("the key of the first manager is no longer on its host")
	}
	// Without any other change, the key is taken over as well, under the lock.
	if err := s.Records.Backups().AdoptKey(t.Context(), "prod", []byte(first), own.PublicKey().String()); err != nil {
		t.Fatal(err)
	}
	p = w.prepared(s.Prepare(t.Context(), apply, nil))
	if !p.Plan().IsEmpty() || !adopts(p) {
		t.Errorf("the plan is empty: %t; findings: %+v", p.Plan().IsEmpty(), p.Findings())
	}
	w.apply(p, event.Succeeded)
	if _, text, err := s.keys.LoadOrCreate(t.Context(), "prod"); err != nil || text.Reveal() != string(other) {
		t.Errorf("the manager has not taken the key over: %v", err)
	}
}

// adopts reports whether a plan warns about taking over the key of the hosts.
func adopts(p Prepared) bool {
	return slices.ContainsFunc(p.Findings(), func(d diag.Diagnostic) bool { return d.ID == idSignerAdopted && d.Severity == diag.Warning })
}

// TestSigningKey_IsNotTakenFromJoiningHost checks that the signing key on a joining control plane is not
// trusted: a previous owner may have left it there.
func TestSigningKey_IsNotTakenFromJoiningHost(t *testing.T) {
	t.Parallel()
	const at = "/etc/slipway/backup-signing.key"
	w, m, _ := copying(t)
	own := w.Hosts["cp1"].Files[at]
	left, err := backup.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	w.Hosts["cp2"] = lifecycletest.NewHost("cp2", "192.0.2.20", w.API)
	w.Hosts["cp2"].Files[at] = string(left)
	delete(w.Hosts["cp1"].Files, at) // otherwise its key is used, and cp2 is not queried
	p := w.prepared(w.service().Prepare(t.Context(), applying(copiedTo(t, w.everyHour(8), m)), nil))
	if adopts(p) {
		t.Errorf("the key of a host that joins is taken over: %+v", p.Findings())
	}
	w.apply(p, event.Succeeded)
	for _, host := range []string{"cp1", "cp2"} {
		if w.Hosts[host].Files[at] != own {
			t.Errorf("%s does not have the key of the manager", host)
		}
	}
}
