package webhookcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A world is a fake API with the configuration of a webhook, and a clock.
type world struct {
	client *fake.Clientset
	now    time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	hook := admissionregistrationv1.ValidatingWebhook{Name: "clusters.slipway.dev"}
	return &world{
		client: fake.NewClientset(&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{hook, hook},
		}),
		now: time.Now(),
	}
}

func (w *world) newKeeper() *Keeper {
	return New(Config{
		Client: w.client, Namespace: "system", Secret: "cert", Service: "hook", Configuration: "hook",
		Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
	})
}

// bundle returns the CA in the configuration. All webhooks have the same one.
func (w *world) bundle(t *testing.T) []byte {
	t.Helper()
	is, err := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "hook", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ca := is.Webhooks[0].ClientConfig.CABundle
	if !bytes.Equal(ca, is.Webhooks[1].ClientConfig.CABundle) {
		t.Error("the webhooks have different CAs")
	}
	return ca
}

// connect connects as an API server does: it trusts a CA, at the time of the world.
func (w *world) connect(t *testing.T, k *Keeper, ca []byte) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	server, client := net.Pipe()
	defer server.Close()
	defer client.Close()
	go func() { _ = tls.Server(server, &tls.Config{GetCertificate: k.GetCertificate}).Handshake() }() // ends with the pipe
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return tls.Client(client, &tls.Config{RootCAs: roots, ServerName: "hook.system.svc", Time: func() time.Time { return w.now }}).
		HandshakeContext(ctx)
}

func (w *world) ensure(t *testing.T, k *Keeper) {
	t.Helper()
	if err := k.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestEnsure_ServesWhatTheAPIServerVerifies(t *testing.T) {
	w := newWorld(t)
	k := w.newKeeper()
	if k.Ready() == nil {
		t.Error("it is ready without a certificate")
	}
	w.ensure(t, k)
	if err := k.Ready(); err != nil {
		t.Error(err)
	}
	if err := w.connect(t, k, w.bundle(t)); err != nil {
		t.Error(err)
	}
	w.client.ClearActions()
	w.ensure(t, k)
	for _, a := range w.client.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("an unchanged certificate: %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestEnsure_IsTheSameInAllReplicas starts replicas at the same time.
func TestEnsure_IsTheSameInAllReplicas(t *testing.T) {
	w := newWorld(t)
	replicas := []*Keeper{w.newKeeper(), w.newKeeper(), w.newKeeper()}
	var g sync.WaitGroup
	for _, k := range replicas {
		g.Go(func() {
			if err := k.Ensure(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	for i, k := range replicas {
		w.ensure(t, k)
		if err := w.connect(t, k, w.bundle(t)); err != nil {
			t.Errorf("replica %d: %v", i, err)
		}
	}
}

// TestEnsure_Renews lets time pass. A replica that has not seen the renewal yet is trusted until then.
func TestEnsure_Renews(t *testing.T) {
	for _, tc := range []struct {
		name     string
		later    time.Duration
		serving  bool // the certificate is renewed
		ca       bool // the CA is renewed
		stillOld bool // the earlier certificate is still trusted
	}{
		{"early", servingLifetime / 2, false, false, true},
		{"serving", servingLifetime * 3 / 4, true, false, true},
		{"CA", caLifetime * 3 / 4, true, true, false},
		{"all expired", caLifetime + time.Hour, true, true, false},
		{"clock set back", -time.Hour, true, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			k, other := w.newKeeper(), w.newKeeper()
			w.ensure(t, k)
			w.ensure(t, other)
			before, cert := w.bundle(t), k.serving.Leaf
			w.now = w.now.Add(tc.later)
			w.ensure(t, k)
			after := w.bundle(t)
			if renewed := !bytes.Equal(before, after); renewed != tc.ca {
				t.Errorf("the CA was renewed: %t, want %t", renewed, tc.ca)
			}
			if renewed := !cert.Equal(k.serving.Leaf); renewed != tc.serving {
				t.Errorf("the certificate was renewed: %t, want %t", renewed, tc.serving)
			}
			if err := w.connect(t, k, after); err != nil {
				t.Errorf("the renewed certificate: %v", err)
			}
			if err := w.connect(t, other, after); (err == nil) != tc.stillOld {
				t.Errorf("another replica: %v, trusted is wanted: %t", err, tc.stillOld)
			}
			if expired := tc.later > caLifetime; tc.ca && bytes.Contains(after, bytes.TrimSpace(before)) == expired {
				t.Errorf("the earlier CA is in the bundle: %t", !expired)
			}
		})
	}
}

// TestEnsure_ReplacesDamagedSecret has a Secret that a user has edited.
func TestEnsure_ReplacesDamagedSecret(t *testing.T) {
	for _, key := range []string{keyCA, keyCAKey, keyServing, keyServingKey} {
		for name, damage := range map[string]func([]byte) []byte{
			"missing": func([]byte) []byte { return nil },
			"text":    func([]byte) []byte { return []byte("a") },
			"PEM":     func([]byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("a")}) },
		} {
			t.Run(key+" "+name, func(t *testing.T) {
				w := newWorld(t)
				w.ensure(t, w.newKeeper())
				secrets := w.client.CoreV1().Secrets("system")
				s, err := secrets.Get(t.Context(), "cert", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				s.Data[key] = damage(s.Data[key])
				if _, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				k := w.newKeeper()
				w.ensure(t, k)
				if err := w.connect(t, k, w.bundle(t)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestEnsure_NeedsConfiguration has no configuration: the installation makes it.
func TestEnsure_NeedsConfiguration(t *testing.T) {
	w := newWorld(t)
	w.client = fake.NewClientset()
	k := w.newKeeper()
	if err := k.Ensure(t.Context()); err == nil {
		t.Error("no error without the configuration")
	}
	if err := k.Ready(); err != nil {
		t.Errorf("the certificate is not served: %v", err)
	}
}
