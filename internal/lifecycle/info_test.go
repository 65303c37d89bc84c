package lifecycle

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// ids returns the ids of warnings, with their hosts.
func ids(in *inspect.Info) []string {
	out := []string{}
	for _, w := range in.Warnings {
		out = append(out, w.ID+" "+w.Host)
	}
	return out
}

func TestClusterInfo_ReportsEveryProblemAndNextCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	w.API.PutObject("/readyz", object{"ok": true})
	day := func(n int) time.Time { return w.Now().AddDate(0, 0, n).UTC().Truncate(time.Second) }
	cp := w.Hosts["cp1"]
	ca := pkitest.NewAuthority(t, "kubernetes", day(-300), day(3000))
	cp.Files["/etc/kubernetes/pki/ca.crt"] = ca.Cert
	cp.Files["/etc/kubernetes/pki/apiserver.crt"], cp.Files["/etc/kubernetes/pki/apiserver.key"] = ca.IssueCertificate(t,
		"kube-apiserver", day(200))
	cert, key := ca.IssueCertificate(t, "system:kube-scheduler", day(9))
	cp.Files["/etc/kubernetes/scheduler.conf"] = pkitest.MakeKubeconfig("https://example.com:6443", ca.Cert, "", cert, key)
	cert, key = ca.IssueCertificate(t, "admin.conf", day(200))
	cp.Files["/etc/kubernetes/admin.conf"] = pkitest.MakeKubeconfig("https://example.com:6443", ca.Cert, "", cert, key)
	look := func() *inspect.Info {
		t.Helper()
		in, err := w.service().Info(t.Context(), "prod", nil)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	for _, tc := range []struct {
		name, reason string
		do           func()
		verdict      inspect.Verdict
		warnings     []string
		next         string
	}{
		{
			"degraded", "every problem is reported", func() {}, inspect.Degraded,
			[]string{"etcd-member cp2", "etcd-member ", "certificate-expires cp1"},
			"slipway kubectl prod -- get pods -A",
		},
		{
			"endpoint", "each node checks whether it reaches the API", func() { w.Hosts["w1"].CutOff = true }, inspect.Degraded,
			[]string{"endpoint-not-answering w1", "etcd-member cp2", "etcd-member ", "certificate-expires cp1"},
			"slipway kubectl prod -- get pods -A",
		},
		{
			"worker cut off", "the host is reported, and the others answer", func() { w.Hosts["w1"].Down = errors.New("cut") }, inspect.Degraded,
			[]string{"host-unreachable w1", "etcd-member cp2", "etcd-member ", "certificate-expires cp1"},
			"slipway kubectl prod -- get pods -A",
		},
		{
			"an add-on that is gone", "the cluster needs it",
			func() { w.API.RemoveObject("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy") }, inspect.Degraded,
			[]string{"host-unreachable w1", "etcd-member cp2", "etcd-member ", "certificate-expires cp1", "add-on-not-ready "},
			"slipway kubectl prod -- get pods -A",
		},
		{
			"API down", "hosts and state have the rest", func() { w.API.Mu.Lock(); w.API.Running = false; w.API.Mu.Unlock() }, inspect.Down,
			[]string{"api-down ", "host-unreachable w1", "etcd-member ", "certificate-expires cp1"},
			"slipway exec prod@role=control-plane --sudo -- journalctl -u kubelet -n 30 --no-pager",
		},
		{
			"all down", "only state is left", func() { cp.Down = errors.New("cut") }, inspect.Down,
			[]string{"api-down ", "host-unreachable cp1", "host-unreachable w1"},
			"slipway precheck prod",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.do()
			in := look()
			if in.Verdict != tc.verdict || in.Next != tc.next || in.Summary == "" {
				t.Errorf("%s: %s, next %s: %s", in.Verdict, in.Summary, in.Next, tc.reason)
			}
			if d := cmp.Diff(tc.warnings, ids(in)); d != "" {
				t.Errorf("%s: warnings (-want +got):\n%s", tc.reason, d)
			}
			if len(in.Nodes) != 2 || in.Nodes[0].Name != "cp1" || len(in.AddOns) < 3 || len(in.Operations) != 1 {
				t.Errorf("%s: %+v", tc.reason, in)
			}
		})
	}
	if _, err := w.service().Info(t.Context(), "gone", nil); !errors.Is(err, savedstate.ErrNotFound) {
		t.Errorf("a cluster that is not saved: %v", err)
	}
}

// impatient returns a service with short time limits.
func (w *world) impatient() *Service {
	return withShortLimits(w.service())
}

// withShortLimits shortens the time limits of a service.
func withShortLimits(s *Service) *Service {
	const soon = 6 * time.Second // enough for a fake host on a busy machine
	s.Limits = inspect.Limits{Total: 4 * soon, Host: soon, Through: soon}
	s.TotalTime, s.HostTime, s.QueryTime, s.StallTime = 4*soon, soon, soon/2, soon
	return s
}

// Hosts that hang do not keep others from being asked, and do not make the cluster count
// as down.
func TestClusterInfo_HostsThatHang(t *testing.T) {
	for name, hang := range map[string][]string{"a worker": {"w1"}, "a control plane": {"cp1"}, "all": {"cp1", "cp2", "cp3", "w1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := running(t, threeAndTwo[:4], threeAndTwo[:4])
			w.API.PutObject("/readyz", object{"ok": true})
			for _, m := range hang {
				w.Hosts[m].Hangs = true
			}
			in, err := w.impatient().Info(t.Context(), "prod", nil)
			if err != nil {
				t.Fatal(err)
			}
			if in.Verdict != inspect.Degraded || !in.Endpoint.Answers {
				t.Errorf("%s: %s; the API answers: %+v", in.Verdict, in.Summary, in.Endpoint)
			}
			for _, n := range in.Nodes {
				if hangs := slices.Contains(hang, n.Name); n.Ready != "Ready" || (n.Host == "ok") == hangs {
					t.Errorf("node %s, which hangs: %t, is %+v", n.Name, hangs, n)
				}
			}
			for _, m := range hang {
				if !slices.Contains(ids(in), "host-unreachable "+m) {
					t.Errorf("%s is not reported as unreachable: %v", m, in.Warnings)
				}
			}
			if asked := in.Etcd.Through != ""; asked != (len(hang) < 4) {
				t.Errorf("etcd was queried: %t: %s", asked, in.Etcd.Message)
			}
		})
	}
}

// TestClusterInfo_HasDetailsOfEtcdNodesAndCertificates checks the details of the
// endpoint, etcd members, nodes and certificates.
func TestClusterInfo_HasDetailsOfEtcdNodesAndCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	w.API.PutObject("/readyz", object{"ok": true})
	ca := pkitest.NewAuthority(t, "etcd-ca", w.Now(), w.Now().AddDate(1, 0, 0))
	files := w.Hosts["cp1"].Files
	files["/etc/kubernetes/pki/etcd/ca.crt"] = ca.Cert
	files["/etc/kubernetes/pki/etcd/server.crt"], files["/etc/kubernetes/pki/etcd/server.key"] = ca.IssueCertificate(t,
		"cp1", w.Now().AddDate(0, 2, 0))
	in, err := w.service().Info(t.Context(), "prod", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !in.Endpoint.Answers || in.Endpoint.Through != "cp1" || in.Endpoint.Address != "example.com:6443" {
		t.Errorf("endpoint %+v", in.Endpoint)
	}
	want := []inspect.EtcdMember{
		{Name: "cp1", ID: "a", Endpoint: "https://a:2379", Leader: true, Answers: true, Healthy: true, Version: "3.7.0", DBBytes: 4096},
		{Name: "cp2", ID: "b", Endpoint: "https://b:2379"},
	}
	if d := cmp.Diff(want, in.Etcd.Members, cmpopts.IgnoreUnexported(inspect.EtcdMember{})); d != "" {
		t.Errorf("etcd (-want +got):\n%s", d)
	}
	w.Hosts["cp1"].EtcdAlarm = "memberID:10 alarm:NOSPACE "
	if in, err := w.service().Info(t.Context(), "prod", nil); err != nil ||
		!slices.ContainsFunc(in.Warnings, func(d diag.Diagnostic) bool { return d.Host == "cp1" && d.Message == "etcd reports alarm NOSPACE" }) {
		t.Errorf("the etcd alarm is not reported: %v, %v", err, in.Warnings)
	}
	if n := in.Nodes[0]; n.Ready != "Ready" || n.Host != "ok" || n.Endpoint != "ok" || n.Kubelet != "active" || n.ResourcesFrom != "api" {
		t.Errorf("cp1: %+v", n)
	}
	if first := in.Certificates[0]; first.Name != "etcd-server" || first.Subject != "cp1" || first.Authority != "etcd-ca" ||
		in.Certificates[1].Subject != "etcd-ca" {
		t.Errorf("certificates %+v, want the soonest first", in.Certificates[:2])
	}
}
