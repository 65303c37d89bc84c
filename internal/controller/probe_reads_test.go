package controller

import (
	"crypto/tls"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// newReadyWorld returns a world with a created cluster that is probed often. serving, if not nil, has the serving
// certificate of its API.
func newReadyWorld(t *testing.T, serving *atomic.Pointer[tls.Certificate]) *world {
	t.Helper()
	w := prepareWorld(t, "cp1", "w1")
	w.health = soon
	if serving != nil {
		w.API.ServingCert = serving.Load
	}
	w.start()
	w.APIAddresses = []string{w.Hosts["cp1"].Address}
	w.createKey()
	w.create(w.object("cp1", "w1"))
	w.waitForCondition("Reconciled", metav1.ConditionTrue, "IntentApplied")
	for _, kind := range []string{"Ready", "HostsReachable"} {
		w.waitForCondition(kind, metav1.ConditionTrue, "")
	}
	return w
}

// waitForProbes waits until the API of the cluster was probed that often.
func (w *world) waitForProbes(number int32) {
	w.t.Helper()
	want := w.dials.Load() + number
	w.eventually(func() string {
		if w.dials.Load() < want {
			return "the API of the cluster is not probed"
		}
		return ""
	})
}

// TestHealth_ReadsOnlyChangedObjects counts the requests of probes of the API and of the hosts.
func TestHealth_ReadsOnlyChangedObjects(t *testing.T) {
	t.Parallel()
	w := newReadyWorld(t, nil)
	w.waitForProbes(5) // each object was read
	before := w.traffic.settle()
	const probes = 10
	w.waitForProbes(probes)
	<-time.After(2 * soon.HostsPeriod)
	if now := w.traffic.requests()[before:]; len(now) > 1 { // a status can be written again
		t.Errorf("%d requests for %d probes without a change:\n%s", len(now), probes, strings.Join(now, "\n"))
	}
	key := new(corev1.Secret)
	if err := w.api.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: keySecret}, key); err != nil {
		t.Fatal(err)
	}
	key.Data["id_ed25519"] = newKey(t)
	if err := w.api.Update(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	w.eventually(func() string {
		if !slices.ContainsFunc(w.traffic.requests()[before:], func(r string) bool { return strings.HasSuffix(r, "/secrets/"+keySecret) }) {
			return "the changed Secret is not read"
		}
		return ""
	})
}

// A servingCA is a CA that signs the serving certificate of the cluster's API.
type servingCA struct {
	*pkitest.Authority
	serving tls.Certificate
}

func newServingCA(t *testing.T, name string) *servingCA {
	t.Helper()
	a := &servingCA{Authority: pkitest.NewAuthority(t, name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))}
	cert, key := a.IssueCertificate(t, "example.com", time.Now().Add(time.Hour))
	var err error
	if a.serving, err = tls.X509KeyPair([]byte(cert), []byte(key)); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestHealth_UsesKubeconfigOfRotatedCA rotates the CA of the cluster, as an operation does: the saved kubeconfig trusts
// both CAs for a while. Afterwards no probe trusts the former CA.
func TestHealth_UsesKubeconfigOfRotatedCA(t *testing.T) {
	t.Parallel()
	var serving atomic.Pointer[tls.Certificate]
	first := lifecycletest.ServerCert()
	serving.Store(&first)
	w := newReadyWorld(t, &serving)
	store := w.openSaved()
	saved := store.Kubeconfigs()
	admin, err := saved.Load(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	trust := func(cas ...*servingCA) {
		t.Helper()
		var text strings.Builder
		for _, ca := range cas {
			text.WriteString(ca.Cert)
		}
		if err := saved.Save(t.Context(), "prod", pki.WithKubeconfigCA(admin, []byte(text.String()))); err != nil {
			t.Fatal(err)
		}
		w.waitForProbes(3) // the watch has reported the change
	}
	serve := func(ca *servingCA) { serving.Store(&ca.serving) }
	trustFirst := &servingCA{Authority: &pkitest.Authority{Cert: string(w.API.CA())}}
	former, next := newServingCA(t, "former"), newServingCA(t, "next")
	trust(trustFirst, former, next)
	serve(former)
	w.waitForCondition("Ready", metav1.ConditionTrue, "NodesReady")
	serve(next)
	w.waitForProbes(3)
	w.waitForCondition("Ready", metav1.ConditionTrue, "NodesReady")
	trust(next)
	w.waitForProbes(3)
	w.waitForCondition("Ready", metav1.ConditionTrue, "NodesReady")
	serve(former) // another server has its key
	w.waitForCondition("Ready", metav1.ConditionUnknown, "NoAnswer")
	serve(next)
	w.waitForCondition("Ready", metav1.ConditionTrue, "NodesReady")
}
