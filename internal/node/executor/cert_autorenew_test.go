//go:build linux

package executor

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/lock"
	"slipway.dev/slipway/internal/node/op"
)

const (
	apiserverCert = "/etc/kubernetes/pki/apiserver.crt"
	adminConf     = "/etc/kubernetes/admin.conf"
)

// server returns the URL of an API server that is ready or not.
func server(t *testing.T, ready bool) string {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || !ready {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/readyz"
}

// looks runs the certificate check of the host and returns its outcome.
func (h *testHost) looks(job op.AutoRenewal) op.AutoOutcome {
	h.t.Helper()
	if err := os.MkdirAll(h.r.State, 0o700); err != nil {
		h.t.Fatal(err)
	}
	out, err := h.r.AutoRenew(h.t.Context(), job)
	if err != nil {
		h.t.Fatal(err)
	}
	if time.Since(out.At) > time.Minute {
		h.t.Errorf("the check was at %s", out.At)
	}
	out.At = time.Time{}
	if !out.RenewedAt.IsZero() {
		out.RenewedAt = time.Unix(1, 0)
	}
	return out
}

// ofAll renews the certificates of an API server and of the administrator.
func ofAll() op.List {
	return op.List{underCA(apiserverCert, "/etc/kubernetes/pki/apiserver.key"), underCA(adminConf, "")}
}

// TestAutoRenewal_RenewsDueCertificatesIfSafeOrUrgent checks that due certificates are renewed when that interrupts no service.
func TestAutoRenewal_RenewsDueCertificatesIfSafeOrUrgent(t *testing.T) {
	t.Parallel()
	both := []string{apiserverCert, adminConf}
	renewed := op.AutoOutcome{Result: op.AutoRenewed, Renewed: both, RenewedAt: time.Unix(1, 0)}
	const lastFifth, lastTenth = 4 * time.Hour, 2 * time.Hour
	for _, tc := range []struct {
		name, reason string
		left         time.Duration
		own          bool
		peers        []bool
		change       func(*testHost, *op.AutoRenewal)
		want         op.AutoOutcome
		message      string
	}{
		{"not due", "it has hours left", 20 * time.Hour, true, []bool{true}, nil, op.AutoOutcome{Result: op.AutoNothing}, ""},
		{"due", "all API servers are healthy", lastFifth, true, []bool{true, true}, nil, renewed, ""},
		{"alone", "there is no other API server", lastFifth, true, nil, nil, renewed, ""},
		{
			"another is down", "there is time to wait for it", lastFifth, true,
			[]bool{true, false},
			nil,
			op.AutoOutcome{Result: op.AutoPostponed},
			"renewal can wait",
		},
		{
			"itself is down", "the others serve with what they have", lastFifth, false,
			[]bool{true},
			nil,
			op.AutoOutcome{Result: op.AutoPostponed},
			"renewal can wait",
		},
		{"another is down for long", "its own must not end for that", lastTenth, true, []bool{true, false}, nil, renewed, ""},
		{"all are down", "nothing is lost by it", lastFifth, false, []bool{false, false}, nil, renewed, ""},
		{"expired", "so that it serves again", -time.Hour, false, []bool{true}, nil, renewed, ""},
		{"a manager is at work", "it may be about the same files", lastTenth, true, []bool{true}, func(h *testHost, _ *op.AutoRenewal) {
			if _, ok, err := h.r.TakeLock(h.t.Context(), lock.Lock{Operation: "upgrade-1", Manager: "m", Fence: 1}, false); err != nil || !ok {
				h.t.Fatal(ok, err)
			}
		}, op.AutoOutcome{Result: op.AutoPostponed}, "operation upgrade-1 is running"},
		{"one cannot be renewed", "the others are", lastFifth, true, []bool{true}, func(h *testHost, j *op.AutoRenewal) {
			r := j.Ops[0].(op.RenewCertificate)
			r.CAKey = "/etc/kubernetes/pki/none.key"
			j.Ops[0] = r
		}, op.AutoOutcome{Result: op.AutoFailed, Renewed: []string{adminConf}, RenewedAt: time.Unix(1, 0)}, "none.key"},
		{"afterwards it does not serve", "the failure is reported", lastFifth, true, []bool{true}, func(_ *testHost, j *op.AutoRenewal) {
			j.Serves = op.List{op.Wait{Path: "/never", TimeoutSeconds: 1}}
		}, op.AutoOutcome{Result: op.AutoFailed, Renewed: both, RenewedAt: time.Unix(1, 0)}, "/never did not answer"},
		{"it did not serve before", "the renewal does not wait for it", -time.Hour, false, []bool{false}, func(_ *testHost, j *op.AutoRenewal) {
			j.Serves = op.List{op.Wait{Path: "/never", TimeoutSeconds: 1}}
		}, renewed, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := withCertificates(t, tc.left)
			job := op.AutoRenewal{Cluster: "demo", Ops: ofAll(), Own: server(t, tc.own)}
			for _, ready := range tc.peers {
				job.Peers = append(job.Peers, server(t, ready))
			}
			if tc.change != nil {
				if err := os.MkdirAll(h.r.State, 0o700); err != nil {
					t.Fatal(err)
				}
				tc.change(h, &job)
			}
			before := h.snapshot()
			got := h.looks(job)
			if !strings.Contains(got.Message, tc.message) || tc.message == "" && got.Message != "" {
				t.Errorf("it says %q, want %q", got.Message, tc.message)
			}
			got.Message = ""
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			after := h.snapshot()
			for _, path := range both {
				if changed := before[path].Content != after[path].Content; changed != strings.Contains(strings.Join(tc.want.Renewed, " "), path) {
					t.Errorf("%s changed: %t", path, changed)
				}
			}
		})
	}
}

// TestAutoRenewal_KeepsLastRenewalInOutcome checks that the outcome still has the last renewal when no
// certificate is due.
func TestAutoRenewal_KeepsLastRenewalInOutcome(t *testing.T) {
	t.Parallel()
	h := withCertificates(t, time.Hour)
	job := op.AutoRenewal{Cluster: "demo", Ops: ofAll()}
	first, again := h.looks(job), h.looks(job)
	first.Result = op.AutoNothing
	if d := cmp.Diff(first, again); d != "" || len(again.Renewed) != 2 {
		t.Errorf("the second look (-want +got):\n%s", d)
	}
}

// TestAutoRenewal_StartsKubeletOnlyIfItStoppedIt checks that a stopped kubelet remains stopped, unless an interrupted
// renewal stopped it.
func TestAutoRenewal_StartsKubeletOnlyIfItStoppedIt(t *testing.T) {
	o := underCA(kubeletPEM, "")
	o.Due, o.Unit, o.LeaveStopped = op.DueExpired, "kubelet.service", true
	runs := func(h *testHost) bool { return h.see().Units["kubelet.service"].Active }
	for _, tc := range []struct {
		name, reason string
		left         time.Duration
		before       op.AutoResult
		runs, want   bool
	}{
		{"stopped", "an administrator stopped it", time.Hour, op.AutoNothing, false, false},
		{"stopped, and expired", "it is renewed and remains stopped", -time.Hour, op.AutoNothing, false, false},
		{"cut off", "the interrupted renewal stopped it", time.Hour, op.AutoBegun, false, true},
		{"expired", "it is started again", -time.Hour, op.AutoNothing, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := withCertificates(t, tc.left)
			h.running(tc.runs)
			h.write(strings.TrimPrefix(op.AutoOutcomeFile, "/"), `{"result":"`+string(tc.before)+`"}`)
			out := h.looks(op.AutoRenewal{Cluster: "demo", Ops: op.List{o}})
			if out.Result == op.AutoFailed || runs(h) != tc.want {
				t.Errorf("%s: it runs: %t, %+v", tc.reason, runs(h), out)
			}
			if renewed := len(out.Renewed) > 0; renewed && tc.left > 0 && tc.before != op.AutoBegun || !renewed && tc.left < 0 {
				t.Errorf("renewed: %v", out.Renewed)
			}
		})
	}
}

// TestInstallHelper_InstallsRepairsAndRemovesProgram checks that the helper program is installed at the path that units use.
// Another version is replaced, and a program that is no longer wanted is removed.
func TestInstallHelper_InstallsRepairsAndRemovesProgram(t *testing.T) {
	t.Parallel()
	const path = "/usr/local/lib/slipway/slipway-node"
	h := newHost(t)
	before := h.snapshot()
	o := op.InstallHelper{Path: path}
	for _, step := range []struct {
		name, want string
		change     func()
	}{
		{"none", "create", func() {}},
		{"another", "replace another version", func() { h.write(path, "older") }},
		{"not to be run", "make it executable", func() {
			if err := os.Chmod(h.path(path), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		step.change()
		if r := h.check(o)[0]; r.Summary != step.want {
			t.Errorf("%s: %q", step.name, r.Summary)
		}
		h.apply(o, op.RevertStep{Step: "step"})
		if r := h.check(o)[0]; r.Status != op.Unchanged {
			t.Errorf("%s: afterwards %+v", step.name, r)
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if h.read(path) != string(self) {
		t.Error("it is not the program")
	}
	h.apply(op.RevertStep{Step: "step"})
	after := h.snapshot()
	for p := range after {
		if strings.HasPrefix(p, "/var/lib/slipway") || p == "/var/lib" {
			delete(after, p)
		}
	}
	delete(before, "/var/lib")
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("put back (-want +got):\n%s", d)
	}
}
