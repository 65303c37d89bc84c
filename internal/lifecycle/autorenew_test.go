package lifecycle

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki/pkitest"
)

const (
	timerTask   = "certs.timer"
	timerUnit   = "slipway-certs.timer"
	keptHelper  = "/usr/local/lib/slipway/slipway-node"
	renewalFile = "/etc/slipway/renewal.json"
)

// TestCertificates_ReportAutomaticRenewal checks that each host's automatic renewal of certificates is reported,
// and also a host that does not renew them.
func TestCertificates_ReportAutomaticRenewal(t *testing.T) {
	at := certTime.Add(-time.Hour)
	for _, tc := range []struct {
		name, reason string
		change       func(*lifecycletest.Host)
		want         inspect.AutoRenewal
		verdict      inspect.CertificateVerdict
		warning      string
	}{
		{
			"no outcome yet", "the timer is active", func(*lifecycletest.Host) {},
			inspect.AutoRenewal{Host: "cp1", Active: true},
			inspect.CertificatesFine, "",
		},
		{
			"nothing due", "the renewal ran",
			func(m *lifecycletest.Host) {
				m.Files[op.AutoOutcomeFile] = `{"at":"2026-11-20T17:00:00Z","result":"nothing-due"}`
			},
			inspect.AutoRenewal{Host: "cp1", Active: true, AutoOutcome: &op.AutoOutcome{At: at, Result: op.AutoNothing}},
			inspect.CertificatesFine, "",
		},
		{
			"failed", "the failure needs attention", func(m *lifecycletest.Host) {
				m.Files[op.AutoOutcomeFile] = `{"at":"2026-11-20T17:00:00Z","result":"failed","message":"no key"}`
			},
			inspect.AutoRenewal{Host: "cp1", Active: true, AutoOutcome: &op.AutoOutcome{At: at, Result: op.AutoFailed, Message: "no key"}},
			inspect.CertificatesExpire, "renewal-failed cp1",
		},
		{
			"not for days", "the timer may be off", func(m *lifecycletest.Host) {
				m.Files[op.AutoOutcomeFile] = `{"at":"2026-11-17T17:00:00Z","result":"nothing-due"}`
			},
			inspect.AutoRenewal{Host: "cp1", Active: true, AutoOutcome: &op.AutoOutcome{At: at.AddDate(0, 0, -3), Result: op.AutoNothing}},
			inspect.CertificatesExpire, "renewal-timer cp1",
		},
		{
			"timer changed", "the timer may never fire", func(m *lifecycletest.Host) { m.Files["/etc/systemd/system/"+timerUnit] = "[Timer]\n" },
			inspect.AutoRenewal{Host: "cp1"},
			inspect.CertificatesExpire, "renewal-timer cp1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "cp1", "w1")
			w.create(event.Succeeded)
			w.issueCertificates(200 * certDay)
			tc.change(w.Hosts["cp1"])
			c := w.checked(0)
			if d := cmp.Diff([]inspect.AutoRenewal{tc.want}, c.Automatic); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if got := strings.Join(certIDs(c), " "); got != tc.warning || c.Verdict != tc.verdict {
				t.Errorf("%s: %s, %s, want %s, %s", tc.reason, c.Verdict, got, tc.verdict, tc.warning)
			}
			if unattended := tc.warning != ""; unattended != (c.Next == "slipway apply prod") {
				t.Errorf("next: %s", c.Next)
			}
		})
	}
}

// TestApply_SwitchesAutomaticRenewal switches automatic renewal off and on in the cluster file. Hosts
// keep the helper of the manager that applied last.
func TestApply_SwitchesAutomaticRenewal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	off := w.Manifest()
	off.Spec.Kubernetes.Certificates.AutoRenew = op.Bool(false)
	for _, step := range []struct {
		name string
		req  Request
		on   bool
	}{{"off", applying(off), false}, {"on again", applying(w.Manifest()), true}} {
		p := w.prepared(w.service().Prepare(t.Context(), step.req, nil))
		for _, s := range p.Plan().Steps {
			if s.Task != timerTask && s.Task != "record.cluster" {
				t.Errorf("%s: the plan has %s on %s", step.name, s.Task, s.Host)
			}
		}
		w.apply(p, event.Succeeded)
		for name, m := range w.Hosts {
			if on := step.on && name == "cp1"; m.HasFile(renewalFile) != on { // a worker's kubelet renews all that it has
				t.Errorf("%s: %s on %s: %t", step.name, renewalFile, name, !on)
			}
		}
		if c := w.checked(0); len(c.Automatic) > 0 != step.on || c.Verdict != inspect.CertificatesFine {
			t.Errorf("%s: %+v, %s", step.name, c.Automatic, c.Summary)
		}
		if p := w.prepared(w.service().Prepare(t.Context(), step.req, nil)); !p.Plan().IsEmpty() {
			t.Errorf("%s: something is left to do: %+v", step.name, p.Plan().Steps)
		}
	}
	w.Hosts["cp1"].State["helper "+keptHelper] = "that of another version"
	p := w.prepared(w.service().Prepare(t.Context(), applying(w.Manifest()), nil))
	if len(p.Plan().Steps) != 1 || p.Plan().Steps[0].Host != "cp1" || p.Plan().Steps[0].Task != timerTask {
		t.Errorf("with another helper: %+v", p.Plan().Steps)
	}
	w.apply(p, event.Succeeded)
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
	w.bare()
}

// TestKubeconfig_ReplacesExpiredOne checks that an expired kubeconfig is replaced with the
// hosts' newer one, which is saved. If that one has expired too, nothing is gained.
func TestKubeconfig_ReplacesExpiredOne(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		kept, theirs time.Duration
		taken        bool
	}{{"valid", certDay, 100 * certDay, false}, {"expired", -certDay, 100 * certDay, true}, {"both expired", -certDay, -certDay, false}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1")
			w.create(event.Succeeded)
			ca := pkitest.NewAuthority(t, "kubernetes", certTime.Add(-certYear), certTime.Add(certYear))
			conf := func(left time.Duration) string {
				cert, key := ca.IssueCertificate(t, "kubernetes-admin", certTime.Add(left))
				return pkitest.MakeKubeconfig("https://api.prod.internal:6443", ca.Cert, "", cert, key)
			}
			c, err := w.service().Cluster(t.Context(), "prod")
			if err != nil {
				t.Fatal(err)
			}
			kept, err := clusterstate.MakeExternalKubeconfig(module.Env{Cluster: c}, kubeconfig.Untrusted{Text: []byte(conf(tc.kept))}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.service().Records.Kubeconfigs().Save(t.Context(), "prod", kept); err != nil {
				t.Fatal(err)
			}
			w.Hosts["cp1"].Files["/etc/kubernetes/admin.conf"] = conf(tc.theirs)
			got, _, err := w.service().Kubeconfig(t.Context(), "prod", false)
			if err != nil {
				t.Fatal(err)
			}
			if taken := !bytes.Equal(got, kept); taken != (tc.taken || tc.kept < 0) || !slices.Equal(got, w.stored()) {
				t.Errorf("it is the kubeconfig of the hosts: %t; saved: %t", taken, slices.Equal(got, w.stored()))
			}
		})
	}
}
