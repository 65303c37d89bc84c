package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// TestCertificates_ReportVerdictWarningsAndNextCommand checks the verdict, the warnings and the next command for each state of
// the certificates.
func TestCertificates_ReportVerdictWarningsAndNextCommand(t *testing.T) {
	const pki = "/etc/kubernetes/pki/"
	for _, tc := range []struct {
		name, reason string
		left         time.Duration
		within       time.Duration
		change       func(*world)
		verdict      inspect.CertificateVerdict
		warnings     []string
		next         string
	}{
		{
			"fine", "nothing is to be done", 200 * certDay, 0, func(*world) {}, inspect.CertificatesFine,
			[]string{},
			"slipway certs check prod --within 2160h",
		},
		{
			"expiring", "kubelets renew their own", 20 * certDay, 0, func(*world) {}, inspect.CertificatesExpire,
			[]string{"certificate-expires cp1"},
			"slipway certs renew prod",
		},
		{
			"within", "the limit of the request counts", 100 * certDay, 101 * certDay, func(*world) {}, inspect.CertificatesExpire,
			[]string{"certificate-expires cp1"},
			"slipway certs renew prod --within 2424h0m0s",
		},
		{
			"not within", "it ends later", 20 * certDay, 10 * certDay, func(*world) {}, inspect.CertificatesFine,
			[]string{},
			"slipway certs check prod --within 2160h",
		},
		{
			"expired", "kubelets have not renewed their own either", -certDay, 0, func(*world) {}, inspect.CertificatesExpired,
			[]string{"certificate-expires cp1", "certificate-expires w1"},
			"slipway certs renew prod",
		},
		{
			"a kubelet that does not rotate", "its kubelet should have renewed it", 5 * certDay, certDay, func(*world) {},
			inspect.CertificatesExpire,
			[]string{"certificate-expires cp1", "certificate-expires w1"},
			"slipway certs check prod --within 2160h",
		},
		{
			"API down", "the check does not use the API", 200 * certDay, 0,
			func(w *world) { w.API.Mu.Lock(); w.API.Running = false; w.API.Mu.Unlock() },
			inspect.CertificatesFine,
			[]string{},
			"slipway certs check prod --within 2160h",
		},
		{
			"a host down", "the host is reported, and the others are checked", 200 * certDay,
			0, func(w *world) { w.Hosts["w1"].Down = errDown }, inspect.CertificatesUnknown,
			[]string{"host-unreachable w1"},
			"slipway precheck prod",
		},
		{
			"a host down, another's expiring", "the renewal comes first", 20 * certDay, 0, func(w *world) { w.Hosts["w1"].Down = errDown },
			inspect.CertificatesExpire,
			[]string{"host-unreachable w1", "certificate-expires cp1"},
			"slipway certs renew prod",
		},
		{
			"CA without its key", "nothing can be signed there", 200 * certDay, 0,
			func(w *world) { delete(w.Hosts["cp1"].Files, pki+"ca.key") }, inspect.CertificatesExpire,
			[]string{"authority-key-missing cp1"},
			"slipway certs check prod --within 2160h",
		},
		{
			"no key", "the certificate cannot be used", 200 * certDay, 0, func(w *world) { delete(w.Hosts["cp1"].Files, pki+"apiserver.key") },
			inspect.CertificatesExpire,
			[]string{"certificate-unusable cp1"},
			"slipway certs check prod --within 2160h",
		},
		{
			"missing", "the certificate is required", 200 * certDay,
			0, func(w *world) { delete(w.Hosts["cp1"].Files, pki+"front-proxy-client.crt") },
			inspect.CertificatesExpire,
			[]string{"certificate-unusable cp1"},
			"slipway certs check prod --within 2160h",
		},
		{"another CA", "no component here trusts it", 200 * certDay, 0, func(w *world) {
			cp := w.Hosts["cp1"]
			cp.Files[pki+"apiserver.crt"], cp.Files[pki+"apiserver.key"] = pkitest.NewAuthority(t, "other", certTime,
				certTime.Add(certYear)).IssueCertificate(t, "a", certTime.Add(certYear))
		}, inspect.CertificatesExpire, []string{"certificate-unusable cp1"}, "slipway certs check prod --within 2160h"},
		{
			"a CA ends", "a CA on two hosts is reported once", 200 * certDay, 0, func(w *world) {
				ca := pkitest.NewAuthority(t, "kubernetes", certTime.Add(-certYear), certTime.Add(60*certDay))
				for _, m := range w.Hosts {
					m.Files[pki+"ca.crt"], m.Files[pki+"ca.key"] = ca.Cert, ca.Key
				}
				delete(w.Hosts["w1"].Files, pki+"ca.key")
				for _, name := range []string{"apiserver", "apiserver-kubelet-client"} {
					cp := w.Hosts["cp1"]
					cp.Files[pki+name+".crt"], cp.Files[pki+name+".key"] = ca.IssueCertificate(t, name, certTime.Add(59*certDay))
				}
			}, inspect.CertificatesExpire,
			[]string{"certificate-unusable cp1", "certificate-expires cp1", "certificate-unusable w1"},
			"slipway certs check prod --within 2160h",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "cp1", "w1")
			w.create(event.Succeeded)
			w.issueCertificates(tc.left)
			tc.change(w)
			c := w.checked(tc.within)
			if c.Verdict != tc.verdict || c.Next != tc.next || c.Summary == "" {
				t.Errorf("%s: %s, next %s, want %s, %s: %s", c.Verdict, c.Summary, c.Next, tc.verdict, tc.next, tc.reason)
			}
			got := certIDs(c)
			slices.Sort(got)
			slices.Sort(tc.warnings)
			if d := cmp.Diff(tc.warnings, got); d != "" {
				t.Errorf("%s: warnings (-want +got):\n%s\n%v", tc.reason, d, c.Warnings)
			}
			if !slices.IsSortedFunc(c.Certificates, func(a, b inspect.Certificate) int { return a.Expires.Compare(b.Expires) }) {
				t.Error("the warnings are not sorted by time")
			}
		})
	}
}

// Every host has exactly the certificates of its roles.
func TestCertificates_MatchRolesOfEachHost(t *testing.T) {
	t.Parallel()
	const node, control, member = "ca kubelet-client kubelet-serving", "admin.conf apiserver apiserver-etcd-client " +
		"apiserver-kubelet-client controller-manager.conf etcd-ca front-proxy-ca front-proxy-client " +
		"scheduler.conf", "etcd-healthcheck-client etcd-peer etcd-server"
	for _, tc := range []struct {
		name    string
		managed bool
		hosts   []string
		want    map[string]string
	}{
		{"stacked", false, []string{"cp1", "cp2", "w1"}, map[string]string{
			"cp1": node + " " + control + " " + member + " super-admin.conf", "cp2": node + " " + control + " " + member, "w1": node,
		}},
		{"managed", true, []string{"cp1", "e1", "w1"}, map[string]string{
			"cp1": node + " " + control + " " + member + " super-admin.conf", "e1": "etcd-ca " + member, "w1": node + " etcd-ca " + member,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.hosts...)
			w.ManagedEtcd = tc.managed
			w.create(event.Succeeded)
			w.issueCertificates(200 * certDay)
			got := map[string]string{}
			for _, c := range w.checked(0).Certificates {
				got[c.Host] += " " + c.Name
				if c.SecondsLeft < int64(199*certDay/time.Second) || c.Authority == "" || c.Due || c.Path == "" {
					t.Errorf("%+v", c)
				}
			}
			for host, want := range tc.want {
				names, wanted := strings.Fields(got[host]), strings.Fields(want)
				slices.Sort(names)
				slices.Sort(wanted)
				if d := cmp.Diff(wanted, names); d != "" {
					t.Errorf("%s (-want +got):\n%s", host, d)
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("hosts: %v", got)
			}
		})
	}
}

// cluster-info has the same warnings as certs check. A cluster that is not yet running has
// none.
func TestClusterInfo_WarnsOfSameCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.Hosts["cp1"].Refuse = func(step string, _ op.Op) *op.Error {
		if step == "kubeadm.init.certs" {
			return &op.Error{Reason: "CommandFailed", Message: "no"}
		}
		return nil
	}
	w.create(event.Failed)
	var list diag.List
	if _, err := w.service().Certificates(t.Context(), Subject{Name: "prod"}, 0, nil); !errors.As(err, &list) || list[0].ID != idNotCreated {
		t.Errorf("the cluster is not running: %v", err)
	}
	w.Hosts["cp1"].Refuse = nil
	w.resume(event.Succeeded)
	w.issueCertificates(20 * certDay)
	delete(w.Hosts["cp1"].Files, "/etc/kubernetes/pki/apiserver.crt")
	in, err := w.service().Info(t.Context(), "prod", nil)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, d := range w.checked(0).Warnings {
		told = append(told, d.String())
	}
	for _, d := range in.Warnings {
		if !strings.HasPrefix(d.ID, "certificate-") {
			continue
		}
		if i := slices.Index(told, d.String()); i < 0 {
			t.Errorf("only cluster-info reports: %s", d)
		} else {
			told = slices.Delete(told, i, i+1)
		}
	}
	if len(told) > 0 || in.Certificates[0].Name != "apiserver" || in.Certificates[0].Problem == "" {
		t.Errorf("only certs check reports: %s; first: %+v", told, in.Certificates[0])
	}
}

// The certificates of a cluster that is not saved can be checked with its file.
func TestCertificates_CanBeCheckedWithClusterFileOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.create(event.Succeeded)
	w.issueCertificates(200 * certDay)
	w.home = t.TempDir()
	if _, err := w.service().Certificates(t.Context(), Subject{Name: "prod"}, 0, nil); !errors.Is(err, savedstate.ErrNotFound) {
		t.Errorf("the cluster is not saved: %v", err)
	}
	c, err := w.service().Certificates(t.Context(), Subject{Cluster: w.Manifest()}, 0, nil)
	if err != nil || c.Verdict != inspect.CertificatesFine || len(c.Certificates) < 10 {
		t.Errorf("%v: %+v", err, c)
	}
}
