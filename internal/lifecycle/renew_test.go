package lifecycle

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// certificatesOf creates a running cluster whose certificates expire after the given time.
func certificatesOf(t *testing.T, left time.Duration, machines ...string) *world {
	t.Helper()
	w := newWorld(t, machines...)
	w.ManagedEtcd = slices.Contains(machines, "e1")
	w.create(event.Succeeded)
	w.issueCertificates(left)
	return w
}

func (w *world) renew(r Renewal, want event.Outcome) *Result {
	w.t.Helper()
	return w.do(RenewCertsRequest{Name: "prod", Renewal: r}, want)
}

// fresh returns the certificates that expire a year from now, by host.
func (w *world) fresh() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, c := range w.checked(0).Certificates {
		if c.Problem != "" {
			w.t.Errorf("%s of %s: %s", c.Name, c.Host, c.Problem)
		}
		if c.Expires.Equal(certTime.Add(certYear)) {
			out[c.Host] += " " + c.Name
		}
	}
	for host, names := range out {
		list := strings.Fields(names)
		slices.Sort(list)
		out[host] = strings.Join(list, " ")
	}
	return out
}

const (
	allOfControl = "admin.conf apiserver apiserver-etcd-client apiserver-kubelet-client controller-manager.conf " +
		"etcd-healthcheck-client etcd-peer etcd-server front-proxy-client scheduler.conf"
	allOfFirst = allOfControl + " super-admin.conf"
	allOfEtcd  = "etcd-healthcheck-client etcd-peer etcd-server"
	// The API server's client certificate for a managed etcd is renewed by another
	// operation, which the test plays.
	managedFirst = "admin.conf apiserver apiserver-kubelet-client controller-manager.conf etcd-healthcheck-client " +
		"etcd-peer etcd-server front-proxy-client scheduler.conf super-admin.conf"
)

// withKubelet adds the kubelet's certificates to names, at their place in the order.
func withKubelet(names string) string {
	return strings.Replace(names, "scheduler.conf", "kubelet-client kubelet-serving scheduler.conf", 1)
}

// order returns the hosts that a task has changed, in the order of the changes.
func (w *world) order(task string) (hosts []string) {
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Task == task && e.Outcome == event.Changed {
			hosts = append(hosts, e.Host)
		}
	}
	return hosts
}

// TestRenew_ReplacesOnlyDueCertificates renews certificates that are due, host by host, and nothing else. Afterwards
// nothing is left to do.
func TestRenew_ReplacesOnlyDueCertificates(t *testing.T) {
	t.Parallel()
	w := certificatesOf(t, 20*certDay, "cp1", "cp2", "cp3", "w1")
	before := map[string]map[string]string{}
	for name, m := range w.Hosts {
		before[name] = maps.Clone(m.Files)
	}
	conf := string(w.stored())
	res := w.renew(Renewal{}, event.Succeeded)
	want := map[string]string{"cp1": allOfFirst, "cp2": allOfControl, "cp3": allOfControl}
	if d := cmp.Diff(want, w.fresh()); d != "" {
		t.Errorf("renewed (-want +got):\n%s", d)
	}
	for name, m := range w.Hosts {
		for path, was := range before[name] {
			if m.Files[path] != was && !strings.HasSuffix(path, ".crt") && !strings.HasSuffix(path, ".conf") {
				t.Errorf("%s of %s changed", path, name)
			}
		}
	}
	for _, task := range []string{"certs.etcd", "certs.control-plane"} {
		if got := w.order(task); len(got) != 3 {
			t.Errorf("%s on %v", task, got)
		}
	}
	if now := w.stored(); string(now) == conf || !bytes.Equal(now, w.outside("cp1")) {
		t.Errorf("the saved admin kubeconfig is the old one: %t", string(now) == conf)
	}
	if len(res.Ready) != 2 || res.Ready[0] != "31 certificates renewed on 3 hosts" {
		t.Errorf("ready: %q", res.Ready)
	}
	w.wantStatus(v1alpha1.PhaseRunning, "renew-certs Succeeded", "create Succeeded")
	if c := w.checked(0); c.Verdict != inspect.CertificatesFine {
		t.Errorf("afterwards: %s, %v", c.Summary, c.Warnings)
	}
	p := w.prepared(w.service().Prepare(t.Context(), RenewCertsRequest{Name: "prod"}, nil))
	if !p.Plan().IsEmpty() {
		t.Errorf("something is left to do: %+v", p.Plan().Steps)
	}
	w.apply(p, event.Succeeded)
	w.wantStatus(v1alpha1.PhaseRunning, "renew-certs Succeeded", "create Succeeded")
}

// stored returns the kubeconfig that the manager saves.
func (w *world) stored() []byte {
	w.t.Helper()
	text, err := w.service().Records.Kubeconfigs().Load(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// TestRenew_ReplacesAllExpiredCertificates renews all certificates after they have expired, when no API server
// serves and no kubelet can authenticate.
func TestRenew_ReplacesAllExpiredCertificates(t *testing.T) {
	for name, tc := range map[string]struct {
		machines []string
		want     map[string]string
	}{
		"one": {[]string{"cp1"}, map[string]string{"cp1": withKubelet(allOfFirst)}},
		"stacked": {
			[]string{"cp1", "cp2", "cp3", "w1", "w2"},
			map[string]string{
				"cp1": withKubelet(allOfFirst), "cp2": withKubelet(allOfControl),
				"cp3": withKubelet(allOfControl), "w1": "kubelet-client", "w2": "kubelet-client",
			},
		},
		"managed": {[]string{"cp1", "e1", "e2"}, map[string]string{"cp1": withKubelet(managedFirst), "e1": allOfEtcd, "e2": allOfEtcd}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := certificatesOf(t, -certDay, tc.machines...)
			w.renew(Renewal{}, event.Succeeded)
			if d := cmp.Diff(tc.want, w.fresh()); d != "" {
				t.Errorf("renewed (-want +got):\n%s", d)
			}
			if c := w.checked(0); c.Verdict != inspect.CertificatesFine {
				t.Errorf("afterwards: %s, %v", c.Summary, c.Warnings)
			}
			if tokens := w.API.JoinTokens(); len(tokens) > 0 {
				t.Errorf("%d join tokens are left", len(tokens))
			}
			for name, m := range w.Hosts {
				if m.HasFile("/etc/kubernetes/bootstrap-kubelet.conf") {
					t.Errorf("%s still has a token", name)
				}
			}
			w.wantPhase(v1alpha1.PhaseRunning)
		})
	}
}

// TestRenew_ReplacesOnlySelectedCertificates renews the selected certificates and no others.
func TestRenew_ReplacesOnlySelectedCertificates(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		left         time.Duration
		renew        Renewal
		want         map[string]string
	}{
		{"nothing due", "they expire much later", 200 * certDay, Renewal{}, map[string]string{}},
		{"all", "all are renewed, whenever they expire", 200 * certDay, Renewal{All: true}, map[string]string{"cp1": allOfFirst}},
		{"within", "they expire within that time", 200 * certDay, Renewal{Within: 201 * certDay}, map[string]string{"cp1": allOfFirst}},
		{"not within", "they expire later", 20 * certDay, Renewal{Within: 19 * certDay}, map[string]string{}},
		{
			"by name", "only the named certificates are renewed", 200 * certDay,
			Renewal{Names: []string{"apiserver", "etcd-peer"}},
			map[string]string{"cp1": "apiserver etcd-peer"},
		},
		{
			"by name, expired", "the others are not renewed", 1 * certDay,
			Renewal{Names: []string{"scheduler.conf"}},
			map[string]string{"cp1": "scheduler.conf"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := certificatesOf(t, tc.left, "cp1", "w1")
			w.renew(tc.renew, event.Succeeded)
			if d := cmp.Diff(tc.want, w.fresh()); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
	t.Run("managed", func(t *testing.T) {
		w := certificatesOf(t, 200*certDay, "cp1", "e1")
		client := w.Hosts["cp1"].Files["/etc/kubernetes/pki/apiserver-etcd-client.crt"]
		w.renew(Renewal{All: true}, event.Succeeded)
		if d := cmp.Diff(map[string]string{"cp1": managedFirst, "e1": allOfEtcd}, w.fresh()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if w.Hosts["cp1"].Files["/etc/kubernetes/pki/apiserver-etcd-client.crt"] == client {
			t.Error("the API server's etcd client certificate is the old one")
		}
	})
}

// refusedWith checks that a request is refused and nothing is touched.
func (w *world) refusedWith(r Request, id string) {
	w.t.Helper()
	before := map[string]map[string]string{}
	for name, m := range w.Hosts {
		before[name] = m.AllState()
	}
	p, err := w.service().Prepare(w.t.Context(), r, nil)
	if err == nil {
		w.t.Fatalf("not refused: %+v", errors.Join(p.Close()))
	}
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != id || list[0].Hint == "" {
		w.t.Errorf("refused with %v, want %s and a hint", err, id)
	}
	for name, m := range w.Hosts {
		if d := cmp.Diff(before[name], m.AllState()); d != "" {
			w.t.Errorf("%s was touched (-want +got):\n%s", name, d)
		}
	}
}

// A renewal is refused without a usable CA, for an unknown certificate or cluster, and
// while a host is down.
func TestRenew_ChangesNothingWhenRefused(t *testing.T) {
	const pki = "/etc/kubernetes/pki/"
	for _, tc := range []struct {
		name, id string
		left     time.Duration
		renew    Renewal
		change   func(*testing.T, *world)
	}{
		{
			"authority without its key", "authority-key-missing", -certDay,
			Renewal{},
			func(_ *testing.T, w *world) { delete(w.Hosts["cp2"].Files, pki+"ca.key") },
		},
		{
			"authority of etcd without its key", "authority-key-missing", 10 * certDay,
			Renewal{},
			func(_ *testing.T, w *world) { delete(w.Hosts["cp2"].Files, pki+"etcd/ca.key") },
		},
		{"another authority", "certificate-foreign", 10 * certDay, Renewal{}, func(t *testing.T, w *world) {
			ca := pkitest.NewAuthority(t, "other", certTime, certTime.Add(certYear))
			w.Hosts["cp1"].Files[pki+"ca.crt"], w.Hosts["cp1"].Files[pki+"ca.key"] = ca.Cert, ca.Key
		}},
		{"authority expired", "authority-expired", -certDay, Renewal{Names: []string{"apiserver"}}, func(t *testing.T, w *world) {
			ca := pkitest.NewAuthority(t, "kubernetes", certTime.Add(-certYear), certTime.Add(-certDay))
			cp := w.Hosts["cp1"]
			cp.Files[pki+"ca.crt"], cp.Files[pki+"ca.key"] = ca.Cert, ca.Key
			cp.Files[pki+"apiserver.crt"], cp.Files[pki+"apiserver.key"] = ca.IssueCertificate(t, "a", certTime.Add(-certDay))
		}},
		{"no such certificate", "unknown-certificate", 10 * certDay, Renewal{Names: []string{"apisever"}}, func(*testing.T, *world) {}},
		{"a host down", "host-unreachable", 10 * certDay, Renewal{}, func(_ *testing.T, w *world) { w.Hosts["cp2"].Down = errDown }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := certificatesOf(t, tc.left, "cp1", "cp2", "cp3")
			tc.change(t, w)
			w.refusedWith(RenewCertsRequest{Name: "prod", Renewal: tc.renew}, tc.id)
		})
	}
	w := newWorld(t, "cp1")
	if _, err := w.service().Prepare(t.Context(), RenewCertsRequest{Name: "prod"}, nil); !errors.Is(err, savedstate.ErrNotFound) {
		t.Errorf("a cluster that is not recorded: %v", err)
	}
	w.Hosts["cp1"].Refuse = func(step string, _ op.Op) *op.Error {
		if step == "kubeadm.init.certs" {
			return &op.Error{Reason: "CommandFailed", Message: "no"}
		}
		return nil
	}
	w.create(event.Failed)
	w.refusedWith(RenewCertsRequest{Name: "prod"}, idNotCreated)
}

// TestRenew_ResumesForHostsThatWereDown renews certificates without hosts that are down. A resume renews
// theirs later.
func TestRenew_ResumesForHostsThatWereDown(t *testing.T) {
	t.Parallel()
	w := certificatesOf(t, 10*certDay, "cp1", "cp2", "cp3", "w1")
	w.Hosts["w1"].Down, w.Hosts["cp3"].Down = errDown, errDown
	w.do(RenewCertsRequest{Name: "prod", Options: Options{IgnoreErrors: true}}, event.Partial)
	w.Hosts["w1"].Down, w.Hosts["cp3"].Down = nil, nil
	if d := cmp.Diff(map[string]string{"cp1": allOfFirst, "cp2": allOfControl}, w.fresh()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	w.resume(event.Succeeded)
	if d := cmp.Diff(map[string]string{"cp1": allOfFirst, "cp2": allOfControl, "cp3": allOfControl}, w.fresh()); d != "" {
		t.Errorf("resumed (-want +got):\n%s", d)
	}
}

// TestRenew_StopsAtFailingControlPlaneAndResumes checks that a control plane that does not serve with its new
// certificates stops the rollout. When the cause is fixed, a resume finishes it.
func TestRenew_StopsAtFailingControlPlaneAndResumes(t *testing.T) {
	t.Parallel()
	w := certificatesOf(t, 10*certDay, "cp1", "cp2", "cp3")
	w.Hosts["cp1"].Refuse = func(step string, o op.Op) *op.Error {
		if step == "certs.control-plane" && o.Kind() == op.KindStaticPodRestart {
			return &op.Error{Reason: op.ReasonNotServing, Message: "it does not come up"}
		}
		return nil
	}
	w.Hosts["cp1"].State["read by /etc/kubernetes/manifests/kube-scheduler.yaml"] = "another"
	res := w.renew(Renewal{}, event.Failed)
	if f := res.Failures[0]; f.Host != "cp1" || f.Task != "certs.control-plane" || f.Reason != op.ReasonNotServing {
		t.Errorf("%+v", f)
	}
	failed := slices.IndexFunc(w.events, func(e event.Event) bool { return e.Type == event.StepFinished && e.Outcome == event.Failed })
	for _, e := range w.events[failed:] {
		if e.Type == event.StepStarted && e.Task == "certs.control-plane" {
			t.Errorf("%s was started after the failure", e.Host)
		}
	}
	w.wantStatus(v1alpha1.PhaseRunning, "renew-certs Failed", "create Succeeded")
	if _, err := w.service().PrepareRollback(t.Context(), rollingBack(), nil); err == nil || !strings.Contains(err.Error(), idNoWayBack) {
		t.Errorf("rolled back: %v", err)
	}
	w.Hosts["cp1"].Refuse = nil
	w.resume(event.Succeeded)
	if d := cmp.Diff(map[string]string{"cp1": allOfFirst, "cp2": allOfControl, "cp3": allOfControl}, w.fresh()); d != "" {
		t.Errorf("resumed (-want +got):\n%s", d)
	}
	w.wantStatus(v1alpha1.PhaseRunning, "renew-certs Succeeded", "create Succeeded")
}

// TestRenew_KeepsOtherOperationUnfinished checks that an operation that was unfinished before
// a renewal remains unfinished after it.
func TestRenew_KeepsOtherOperationUnfinished(t *testing.T) {
	t.Parallel()
	w := certificatesOf(t, 10*certDay, "cp1", "w1")
	w.Hosts["w1"].Refuse = func(step string, _ op.Op) *op.Error {
		if step == "kubernetes.kubelet" {
			return &op.Error{Reason: "CommandFailed", Message: "no"}
		}
		return nil
	}
	c := w.Manifest()
	c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(50)}
	w.do(ApplyRequest{Subject: Subject{Cluster: c}, ApplyOptions: ApplyOptions{KeepFailed: true}}, event.Failed)
	w.renew(Renewal{}, event.Succeeded)
	w.wantStatus(v1alpha1.PhaseFailed, "renew-certs Succeeded", "apply Failed", "create Succeeded")
	w.Hosts["w1"].Refuse = nil
	w.resume(event.Succeeded)
	w.wantStatus(v1alpha1.PhaseRunning, "renew-certs Succeeded", "apply Succeeded", "create Succeeded")
}

// TestRenew_WarnsOfEarlierCAExpiry checks the warning about a CA that expires before the new
// certificates would.
func TestRenew_WarnsOfEarlierCAExpiry(t *testing.T) {
	t.Parallel()
	w := certificatesOf(t, 10*certDay, "cp1")
	ca := pkitest.NewAuthority(t, "front-proxy-ca", certTime.Add(-certYear), certTime.Add(100*certDay))
	f := w.Hosts["cp1"].Files
	f["/etc/kubernetes/pki/front-proxy-ca.crt"], f["/etc/kubernetes/pki/front-proxy-ca.key"] = ca.Cert, ca.Key
	f["/etc/kubernetes/pki/front-proxy-client.crt"], f["/etc/kubernetes/pki/front-proxy-client.key"] = ca.IssueCertificate(t,
		"a", certTime.Add(10*certDay))
	p := w.prepared(w.service().Prepare(t.Context(), RenewCertsRequest{Name: "prod"}, nil))
	if list := p.Findings(); len(list) != 1 || list[0].ID != "validity-beyond-authority" ||
		!strings.Contains(list[0].Message, "front-proxy-ca expires on 2027-02-28") {
		t.Errorf("%v", list)
	}
	w.apply(p, event.Succeeded)
	if got := w.CertificateEnd("cp1", "/etc/kubernetes/pki/front-proxy-client.crt"); !got.Equal(certTime.Add(100 * certDay)) {
		t.Errorf("it expires on %s", got)
	}
}

// TestRenew_UsesChangedValidity changes the validity of certificates. It applies from the next
// renewal on, and nothing is restarted.
func TestRenew_UsesChangedValidity(t *testing.T) {
	t.Parallel()
	w := certificatesOf(t, 200*certDay, "cp1", "cp2", "w1")
	c := w.Manifest()
	c.Spec.Kubernetes.Certificates.Validity = &metav1.Duration{Duration: 2 * certYear}
	p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil))
	for _, s := range p.Plan().Steps {
		for _, c := range s.Changes {
			if c.Kind == op.KindUnit {
				t.Errorf("%s on %s restarts %s", s.Task, s.Host, c.Target)
			}
		}
	}
	w.events = nil
	w.apply(p, event.Succeeded)
	if d := cmp.Diff([]string{"cp1", "cp2"}, slices.Sorted(slices.Values(w.turns("certs.timer")))); d != "" {
		t.Errorf("hosts whose automatic renewal uses the new validity (-want +got):\n%s", d)
	}
	if p = w.prepared(w.service().Prepare(t.Context(), applying(c), nil)); !p.Plan().IsEmpty() {
		t.Errorf("something is left to do: %+v", p.Plan().Steps)
	}
	admin := "/etc/kubernetes/admin.conf"
	if got := w.CertificateEnd("cp2", admin); !got.Equal(certTime.Add(200 * certDay)) {
		t.Errorf("a certificate that was not renewed expires on %s", got)
	}
	w.renew(Renewal{All: true}, event.Succeeded)
	for _, f := range []string{"/etc/kubernetes/pki/apiserver.crt", admin} {
		if got := w.CertificateEnd("cp2", f); !got.Equal(certTime.Add(2 * certYear)) {
			t.Errorf("%s expires on %s", f, got)
		}
	}
}

// TestRenew_DeletesTokenAfterFailure fails on a node whose kubelet needs a token.
func TestRenew_DeletesTokenAfterFailure(t *testing.T) {
	t.Parallel()
	w := certificatesOf(t, -certDay, "cp1", "w1")
	created := false
	w.Hosts["w1"].Refuse = func(step string, _ op.Op) *op.Error {
		if step != "readmit.kubelet" {
			return nil
		}
		created = len(w.API.JoinTokens()) > 0
		return &op.Error{Reason: "CommandFailed", Message: "no"}
	}
	w.renew(Renewal{}, event.Failed)
	if tokens := w.API.JoinTokens(); !created || len(tokens) > 0 {
		t.Errorf("a token was created: %t; %d are left", created, len(tokens))
	}
}

// TestRenew_ResumesAfterKill renews a cluster whose certificates have all expired, kills the manager
// at the end of each step, and resumes.
func TestRenew_ResumesAfterKill(t *testing.T) {
	w := certificatesOf(t, -certDay, "cp1", "cp2", "w1")
	request := RenewCertsRequest{Name: "prod"}
	want := map[string]string{"cp1": withKubelet(allOfFirst), "cp2": withKubelet(allOfControl), "w1": "kubelet-client"}
	moments := w.killed(t, request)
	if len(moments) < 10/oneIn {
		t.Errorf("%d moments", len(moments))
	}
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			k := m.world
			k.useT(t)
			k.goOn(request)
			if d := cmp.Diff(want, k.fresh()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if _, ops := k.status(); ops[0] != "renew-certs Succeeded" {
				t.Errorf("operations %v", ops)
			}
			if tokens := k.API.JoinTokens(); len(tokens) > 0 || k.Hosts["w1"].HasFile("/etc/kubernetes/bootstrap-kubelet.conf") {
				t.Errorf("%d join tokens are left", len(tokens))
			}
			conf := k.stored()
			if !bytes.Equal(conf, k.outside("cp1")) {
				t.Error("the saved admin kubeconfig differs from the one on the control plane")
			}
			k.wantPhase(v1alpha1.PhaseRunning)
		})
	}
}

// outside returns the kubeconfig that the manager should save.
func (w *world) outside(host string) []byte {
	w.t.Helper()
	c, err := w.service().Cluster(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	conf, err := clusterstate.MakeExternalKubeconfig(module.Env{Cluster: c},
		kubeconfig.Untrusted{Text: []byte(w.Hosts[host].Files["/etc/kubernetes/admin.conf"])}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return conf
}
