//go:build linux

package executor

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/certs"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

func authority() op.Certificate {
	return op.Certificate{
		Cert: "/etc/pki/ca.crt", Key: "/etc/pki/ca.key", Authority: true, CommonName: "etcd-ca",
		ValiditySeconds: 3600 * 24 * 365,
	}
}

func (h *testHost) server() op.Certificate {
	return op.Certificate{
		Cert: "/etc/pki/server.crt", Key: "/etc/pki/server.key", CA: []byte(h.read("etc/pki/ca.crt")), CAKey: "/etc/pki/ca.key",
		CommonName: "e1", Names: []string{"e1", "192.0.2.1", "localhost", "2001:db8::1"}, Server: true, Client: true, ValiditySeconds: 3600,
	}
}

func (h *testHost) cert(name string) *x509.Certificate {
	h.t.Helper()
	c, err := pki.ParseCertificate([]byte(h.read(name)))
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func TestCertificate_IsSignedByCAForItsNames(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	before := h.snapshot()
	h.apply(authority())
	ca := h.read("etc/pki/ca.crt")
	o := h.server()
	h.apply(o)
	if r := append(h.check(authority()), h.check(o)...); r[0].Status != op.Unchanged || r[1].Status != op.Unchanged {
		t.Errorf("once made they are as wanted: %+v", r)
	}
	for file, mode := range map[string]string{"ca.key": "-rw-------", "server.key": "-rw-------", "server.crt": "-rw-r--r--"} {
		if got := h.snapshot()["/etc/pki/"+file].Mode.String(); got != mode {
			t.Errorf("%s has mode %s, want %s", file, got, mode)
		}
	}
	if _, err := tls.X509KeyPair([]byte(h.read("etc/pki/server.crt")), []byte(h.read("etc/pki/server.key"))); err != nil {
		t.Error(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	cert := h.cert("etc/pki/server.crt")
	for _, name := range []string{"e1", "192.0.2.1", "localhost", "2001:db8::1"} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := cert.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	h.apply(op.RestoreHost{})
	if d := cmp.Diff(before, h.snapshot()); d != "" {
		t.Errorf("put back, the host is another (-want +got):\n%s", d)
	}
}

// TestCertificate_IsSignedWithCAFilesOfHost checks that a CA on the host can be named by its files, so that
// its key does not leave the host. The pair is removed when its step no longer wants it.
func TestCertificate_IsSignedWithCAFilesOfHost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := op.Certificate{
		Cert: "/etc/ours/client.crt", Key: "/etc/ours/client.key", CAFile: "/etc/pki/ca.crt", CAKey: "/etc/pki/ca.key",
		CommonName: "slipway:kube-vip", Client: true, ValiditySeconds: 3600,
	}
	if r := h.check(o); r[0].Status != op.Changed {
		t.Errorf("without a CA: %+v", r[0])
	}
	if r := h.r.Apply(t.Context(), h.batch(o), nil)[0]; r.Status != op.Failed || r.Error.Reason != op.IDAuthorityNoKey {
		t.Errorf("it is created without a CA: %+v", r)
	}
	h.apply(authority(), o, op.RevertStep{Step: "step"})
	ca, made := h.cert("etc/pki/ca.crt"), h.cert("etc/ours/client.crt")
	if err := made.CheckSignatureFrom(ca); err != nil || made.Subject.CommonName != "slipway:kube-vip" {
		t.Errorf("%s is not signed by the CA on the host: %v", made.Subject, err)
	}
	if r := h.check(o); r[0].Status != op.Unchanged {
		t.Errorf("after it was created: %+v", r[0])
	}
	h.apply(authority(), op.RevertStep{Step: "step"})
	for path := range h.outside() {
		if strings.HasPrefix(path, "/etc/ours") {
			t.Errorf("%s remains when it is no longer wanted", path)
		}
	}
}

// TestCertificate_IsRenewedOnlyForRelevantChanges checks which changes renew an existing certificate, how the
// check reports them, and whether the key is kept.
func TestCertificate_IsRenewedOnlyForRelevantChanges(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		change       func(*testHost, *op.Certificate)
		want         string
		key          bool // the key is kept
	}{
		{"nothing", "a certificate as wanted is kept", func(*testHost, *op.Certificate) {}, "", true},
		{
			"names", "the host has another address", func(_ *testHost, o *op.Certificate) { o.Names = []string{"192.0.2.2"} },
			"renew: the names or the usage have changed", true,
		},
		{
			"purpose", "a server that calls others", func(_ *testHost, o *op.Certificate) { o.Client = false },
			"renew: the names or the usage have changed", true,
		},
		{
			"validity", "the existing certificate keeps its validity",
			func(_ *testHost, o *op.Certificate) { o.ValiditySeconds = 7200 }, "", true,
		},
		{"authority", "others do not know the old one", func(h *testHost, o *op.Certificate) {
			other := authority()
			other.Cert, other.Key = "/etc/pki/other.crt", "/etc/pki/other.key"
			h.apply(other)
			o.CA, o.CAKey = []byte(h.read("etc/pki/other.crt")), other.Key
		}, "renew: the CA has changed", true},
		{"authority not known yet", "a plan is made before it is read", func(_ *testHost, o *op.Certificate) { o.CA = nil }, "", true},
		{
			"no certificate", "a crash came between key and certificate",
			func(h *testHost, _ *op.Certificate) { h.remove("etc/pki/server.crt") }, "create", true,
		},
		{
			"half a certificate", "a crash came in between",
			func(h *testHost, _ *op.Certificate) { h.write("etc/pki/server.crt", "-----BEGIN CERT") }, "create", true,
		},
		{
			"no key", "the certificate alone is worth nothing",
			func(h *testHost, _ *op.Certificate) { h.remove("etc/pki/server.key") }, "renew: the key has changed", false,
		},
		{
			"another key", "they belong together",
			func(h *testHost, _ *op.Certificate) { h.write("etc/pki/server.key", h.read("etc/pki/ca.key")) }, "renew: the key has changed", false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.apply(authority())
			o := h.server()
			h.apply(o)
			key := h.read("etc/pki/server.key")
			wanted := o
			tc.change(h, &wanted)
			if got := h.check(wanted)[0].Summary; got != tc.want {
				t.Fatalf("check says %q, want %q: %s", got, tc.want, tc.reason)
			}
			if tc.want == "" {
				return
			}
			h.apply(wanted)
			if r := h.check(wanted)[0]; r.Status != op.Unchanged {
				t.Errorf("applied, it says %q", r.Summary)
			}
			if kept := h.read("etc/pki/server.key") == key; kept != tc.key {
				t.Errorf("the key was kept: %t, want %t", kept, tc.key)
			}
		})
	}
}

// TestCertificate_IsRenewedInTimeAndEndsBeforeItsCA checks that a certificate is renewed
// before it expires, and is not valid for longer than its CA.
func TestCertificate_IsRenewedInTimeAndEndsBeforeItsCA(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.apply(authority())
	o := h.server()
	h.apply(o)
	s := &host.Host{Root: h.r.Root, State: h.r.State}
	cert, key, err := certs.ReadPair(s, o)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]string{
		40 * time.Minute: "", 50 * time.Minute: "renew: it expires soon or has expired", 2 * time.Hour: "renew: it expires soon or has expired",
	} {
		if got, err := certs.PairChange(o, cert, key, time.Now().Add(after)); got != want || err != nil {
			t.Errorf("%s after it was made for an hour: %q, %v, want %q", after, got, err, want)
		}
	}
	o.ValiditySeconds = 100 * 365 * 24 * 3600
	o.Names = nil
	h.apply(o)
	if got, most := h.cert("etc/pki/server.crt").NotAfter, h.cert("etc/pki/ca.crt").NotAfter; got.After(most) {
		t.Errorf("it outlives its CA: %s, %s", got, most)
	}
}

// TestCACertificate_IsCreatedOnceAndNeverReplaced checks that a CA is created once and never replaced, because it may have
// signed certificates.
func TestCACertificate_IsCreatedOnceAndNeverReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := authority()
	h.apply(o)
	cert := h.read("etc/pki/ca.crt")
	o.CommonName, o.ValiditySeconds = "other", 60
	if r := h.apply(o)[0]; r.Status != op.Unchanged || h.read("etc/pki/ca.crt") != cert {
		t.Errorf("it was made again: %+v", r)
	}
	h.write("etc/pki/ca.key", "")
	if r := h.check(o)[0]; r.Error == nil || r.Error.Reason != "AuthorityKeyLost" {
		t.Errorf("its key is lost: %+v", r)
	}
	h.write("etc/pki/ca.crt", "")
	if r := h.check(o)[0]; r.Summary != "create" {
		t.Errorf("a crash has left empty files: %+v", r)
	}
}

func TestWait_TimesOutIfProgramFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	there := func(path string) op.Wait {
		return op.Wait{Name: "a file", Program: []string{"/usr/bin/test", "-e", h.path(path)}, TimeoutSeconds: 1}
	}
	if r := h.check(there("etc/hosts"), there("nosuch")); r[0].Summary != "" || r[1].Summary != "wait" || r[1].Target != "a file" {
		t.Errorf("%+v", r)
	}
	r := h.r.Apply(t.Context(), h.batch(there("nosuch")), nil)[0]
	if r.Error == nil || r.Error.Reason != "Timeout" || !strings.HasPrefix(r.Error.Message, "a file did not answer within 1s") {
		t.Errorf("it never comes: %+v", r.Error)
	}
	if r := h.check(op.Wait{Program: []string{"true"}})[0]; r.Error == nil || r.Error.Reason != "Invalid" {
		t.Errorf("a wait without a name is accepted: %+v", r)
	}
}

// TestBlock_WaitsForGateBeforeChange checks that lines change only when the gate is open, and that unchanged
// lines need no open gate.
func TestBlock_WaitsForGateBeforeChange(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	block := op.Block{Path: "/etc/hosts", Name: "demo", Lines: []string{"192.0.2.1 api"}}
	block.Gate = &op.Wait{Path: "/etc/open", TimeoutSeconds: 1}
	before := h.read("etc/hosts")
	if r := h.r.Apply(t.Context(), h.batch(block), nil)[0]; r.Error == nil || r.Error.Reason != "Timeout" || h.read("etc/hosts") != before {
		t.Errorf("written past its gate: %+v", r)
	}
	h.write("etc/open", "")
	if r := h.apply(block)[0]; r.Status != op.Changed {
		t.Errorf("not written: %+v", r)
	}
	if err := os.Remove(h.path("etc/open")); err != nil {
		t.Fatal(err)
	}
	if r := h.apply(block)[0]; r.Status != op.Unchanged {
		t.Errorf("it is as wanted: %+v", r)
	}
}

// TestUnpack_WaitsForGateAndSkipsIfServing checks that programs are not replaced while the service that they
// provide responds. Otherwise, they are replaced when their gate is open.
func TestUnpack_WaitsForGateAndSkipsIfServing(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	of := func(content string) op.Unpack {
		return op.Unpack{Blob: h.tarball(map[string]string{"p": content}), Name: "x", Dir: "/opt/x"}
	}
	h.apply(of("old"))
	h.write("etc/serves", "")
	u := of("new")
	u.UnlessServes = &op.Wait{Path: "/etc/serves", TimeoutSeconds: 1}
	if r := h.apply(u)[0]; r.Status != op.Unchanged || h.read("opt/x/p") != "old" {
		t.Errorf("it serves: %+v", r)
	}
	gated := of("new")
	gated.Gate = &op.Wait{Path: "/etc/open", TimeoutSeconds: 1}
	if r := h.r.Apply(t.Context(), h.batch(gated), nil)[0]; r.Error == nil || r.Error.Reason != "Timeout" || h.read("opt/x/p") != "old" {
		t.Errorf("unpacked past its gate: %+v", r)
	}
	if err := os.Remove(h.path("etc/serves")); err != nil {
		t.Fatal(err)
	}
	if r := h.apply(u)[0]; r.Status != op.Changed || h.read("opt/x/p") != "new" {
		t.Errorf("it does not serve: %+v", r)
	}
	if r := h.apply(gated)[0]; r.Status != op.Unchanged {
		t.Errorf("it is as wanted: %+v", r)
	}
	h.write("etc/open", "")
	gated.Blob = h.tarball(map[string]string{"p": "newer"})
	if r := h.apply(gated)[0]; r.Status != op.Changed || h.read("opt/x/p") != "newer" {
		t.Errorf("the gate is open: %+v", r)
	}
}

// TestUnit_WaitsForGateOnlyBeforeRestart checks that a restart waits for its gate and a start does not. With
// KeepRunning, a running unit is not restarted.
func TestUnit_WaitsForGateOnlyBeforeRestart(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	unit := op.Unit{Name: "old.service", Running: op.Bool(true), RestartOn: []string{"/etc/app.conf"}}
	unit.Gate = &op.Wait{Name: "the others", Program: []string{"/usr/bin/test", "-e", h.path("etc/healthy")}, TimeoutSeconds: 1}
	h.apply(op.File{Path: "/etc/app.conf", Content: []byte("1\n")}, unit)
	h.apply(op.File{Path: "/etc/app.conf", Content: []byte("2\n")})
	keep := unit
	keep.KeepRunning = true
	if r := h.apply(keep)[0]; r.Status != op.Unchanged {
		t.Errorf("it runs: %+v", r)
	}
	starts := func() int { return h.see().Units["old.service"].Starts }
	r := h.r.Apply(t.Context(), h.batch(unit), nil)[0]
	if r.Error == nil || r.Error.Reason != "Timeout" || starts() != 1 {
		t.Errorf("restarted past its gate: %+v, %d starts", r, starts())
	}
	h.write("etc/healthy", "")
	if r := h.apply(unit)[0]; r.Status != op.Changed || starts() != 2 {
		t.Errorf("not restarted: %+v, %d starts", r, starts())
	}
	// A unit that crashes repeatedly does not count as running.
	h.apply(op.File{Path: "/etc/app.conf", Content: []byte("3\n")})
	w := h.see()
	w.Units["old.service"].Sub = "auto-restart"
	h.world(w)
	if r := h.apply(keep)[0]; r.Status != op.Changed || starts() != 3 {
		t.Errorf("not started with what is there now: %+v, %d starts", r, starts())
	}
}

// requested returns a certificate that the manager signs.
func (h *testHost) requested() op.Certificate {
	o := h.server()
	o.CAKey, o.Cert, o.Key = "", "/etc/pki/client.crt", "/etc/pki/client.key"
	return o
}

// signs acts as the manager, which has the key of the CA.
func (h *testHost) signs(request []byte, o op.Certificate) []byte {
	h.t.Helper()
	text, err := pki.SignRequest(request, o, []byte(h.read("etc/pki/ca.key")), time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	return text
}

// TestCertificateRequest_CreatesKeyAndRequestOnHost checks that the key and the request are created on the host, and
// that the signed certificate is installed. After an interruption, the request uses the
// same key. After completion, nothing is requested.
func TestCertificateRequest_CreatesKeyAndRequestOnHost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.apply(authority())
	o := h.requested()
	before := h.snapshot()
	if r := h.check(op.CertificateRequest{Certificate: o})[0]; r.Summary != "create" || len(r.Output) > 0 || r.Target != o.Key {
		t.Errorf("without a key: %+v", r)
	}
	if d := cmp.Diff(before, h.snapshot()); d != "" {
		t.Errorf("a check has changed the host:\n%s", d)
	}
	first := h.apply(op.CertificateRequest{Certificate: o})[0]
	key := h.read("etc/pki/client.key")
	again := h.check(op.CertificateRequest{Certificate: o})[0]
	if first.Status != op.Changed || again.Status != op.Unchanged || len(first.Output) == 0 || len(again.Output) == 0 {
		t.Fatalf("%+v, %+v", first, again)
	}
	if mode := h.snapshot()["/etc/pki/client.key"].Mode.String(); mode != "-rw-------" {
		t.Errorf("the key has mode %s", mode)
	}
	o.Signed = h.signs(again.Output, o)
	if r := h.apply(o)[0]; r.Status != op.Changed {
		t.Errorf("%+v", r)
	}
	if _, err := tls.X509KeyPair([]byte(h.read("etc/pki/client.crt")), []byte(key)); err != nil {
		t.Error(err)
	}
	o.Signed = nil
	for _, r := range h.check(op.CertificateRequest{Certificate: o}, o) {
		if r.Status != op.Unchanged || len(r.Output) > 0 {
			t.Errorf("there is nothing to do: %+v", r)
		}
	}
	h.remove("etc/pki/client.key")
	if r := h.check(op.CertificateRequest{Certificate: o}, o); r[0].Summary != "create" || r[1].Summary != "renew: the key has changed" {
		t.Errorf("the key is lost: %+v", r)
	}
	o.CA = nil
	if r := h.check(o)[0]; r.Status != op.Changed {
		t.Errorf("another CA is about to sign: %+v", r)
	}
}

// TestCertificate_IsInstalledOnlyIfItMatchesRequest checks that a host installs only a certificate for its key, as
// requested and signed by the CA that it trusts.
func TestCertificate_IsInstalledOnlyIfItMatchesRequest(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		change       func(*testHost, *op.Certificate)
	}{
		{"nothing", "the manager has not signed", func(_ *testHost, o *op.Certificate) { o.Signed = nil }},
		{"another key", "the key was lost in between", func(h *testHost, o *op.Certificate) {
			h.remove("etc/pki/client.key")
			h.apply(op.CertificateRequest{Certificate: *o})
		}},
		{"no key", "the key was lost in between", func(h *testHost, _ *op.Certificate) { h.remove("etc/pki/client.key") }},
		{"other names", "it is of another host", func(_ *testHost, o *op.Certificate) { o.Names = []string{"e2"} }},
		{"another CA", "the host does not trust it", func(h *testHost, o *op.Certificate) {
			other := authority()
			other.Cert, other.Key = "/etc/pki/other.crt", "/etc/pki/other.key"
			h.apply(other)
			o.CA = []byte(h.read("etc/pki/other.crt"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.apply(authority())
			o := h.requested()
			o.Signed = h.signs(h.apply(op.CertificateRequest{Certificate: o})[0].Output, o)
			tc.change(h, &o)
			if r := h.r.Apply(t.Context(), h.batch(o), nil)[0]; r.Status != op.Failed {
				t.Errorf("%s: %+v", tc.reason, r)
			}
			if _, there := h.snapshot()["/etc/pki/client.crt"]; there {
				t.Error("it was installed")
			}
		})
	}
}
