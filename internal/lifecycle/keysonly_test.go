package lifecycle

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// External etcd is backed up by its owner, but an upgrade still saves the keys of the
// cluster. The missing data of such a set are reported wherever they are needed.
func TestUpgrade_SavesKeysWithExternalEtcd(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1", "w1")
	w.etcdOfOthers()
	w.Hosts["cp1"].Refuse = func(_ string, o op.Op) *op.Error {
		if o.Kind() != op.KindEtcdSnapshot {
			return nil
		}
		return &op.Error{Reason: "NotOurs", Message: "it is the etcd of others"}
	}
	p := w.prepared(w.service().Prepare(t.Context(), toNewest, nil))
	var text bytes.Buffer
	if err := p.Plan().WriteText(&text); err != nil || !strings.Contains(text.String(), "the owner of the external etcd backs up its data") {
		t.Errorf("the plan does not say who backs up the data (%v):\n%s", err, &text)
	}
	res := w.apply(p, event.Succeeded)
	w.keptAs(older, res)
	if !slices.ContainsFunc(res.Ready, func(line string) bool { return strings.Contains(line, "without the data of the external etcd") }) {
		t.Errorf("%q does not name the missing data", res.Ready)
	}
	sets, err := w.service().Snapshots(t.Context(), "prod")
	if err != nil || !sets[0].KeysOnly || sets[0].Snapshot != nil || sets[0].Problem != nil {
		t.Fatalf("the list is %+v, %v", sets, err)
	}
	set, small, err := backup.Read(sets[0].File, nil, &bytes.Buffer{}, nil)
	if err != nil || set.Authority == "" || set.EtcdType != spec.EtcdExternal {
		t.Fatalf("the set is %+v, %v", set, err)
	}
	var names []string
	for _, c := range small {
		names = append(names, strings.TrimPrefix(c.Name, "files/etc/kubernetes/"))
	}
	want := []string{
		"cluster.yaml", "pki/ca.crt", "pki/ca.key", "pki/front-proxy-ca.crt", "pki/front-proxy-ca.key",
		"pki/sa.key", "pki/sa.pub",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	_, err = w.service().PrepareRollback(t.Context(), rollingBack(), nil)
	wantRefused(t, err, idUpgradeCommitted)
	if strings.Contains(err.Error(), "etcd restore") ||
		!strings.Contains(err.Error(), "only the owner of the external etcd can have a backup") {
		t.Errorf("the refusal does not name the owner of the external etcd: %v", err)
	}
	if o, err := w.service().past.LatestUpgrade(t.Context(), "prod"); err != nil ||
		!strings.Contains(w.service().describeRestoreInstead(t.Context(), o), "ask the owner of the external etcd to restore the data") {
		t.Errorf("the hint instead of a rollback is %s, %v", w.service().describeRestoreInstead(t.Context(), o), err)
	}

	// Nor does the set have data for a cluster with stacked etcd.
	c, err := w.service().Cluster(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	c.Spec.Etcd = v1alpha1.Etcd{Type: spec.EtcdStacked}
	if err := w.service().Records.Clusters().Save(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	_, err = w.service().Prepare(t.Context(),
		RestoreEtcdRequest{Name: "prod", Backup: sets[0].File}, nil)
	wantRefused(t, err, idBackupNoData)
	_, err = w.service().Drill(t.Context(), "prod", backups.DrillOptions{From: sets[0].File}, nil)
	wantRefused(t, err, idBackupNoData)
	_, err = w.service().Drill(t.Context(), "prod", backups.DrillOptions{}, nil)
	wantRefused(t, err, string(backup.Unknown)) // the set does not count as the newest
}

// etcdOfOthers changes the saved cluster so that its etcd is external.
func (w *world) etcdOfOthers() {
	w.t.Helper()
	c, err := w.service().Cluster(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(lifecycletest.ServerCert().PrivateKey)
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	cert, key := filepath.Join(dir, "etcd.crt"), filepath.Join(dir, "etcd.key")
	err = errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lifecycletest.ServerCert().Certificate[0]}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	if err != nil {
		w.t.Fatal(err)
	}
	c.Spec.Etcd = v1alpha1.Etcd{Type: spec.EtcdExternal, External: &v1alpha1.ExternalEtcd{
		Endpoints: []string{"https://" + w.Hosts["cp1"].Address + ":2379"}, CAFile: cert, CertFile: cert, KeyFile: key,
	}}
	if err := w.service().Records.Clusters().Save(w.t.Context(), c, nil); err != nil {
		w.t.Fatal(err)
	}
}
