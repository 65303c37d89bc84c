//go:build e2e && long

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// setValidity sets the validity of certificates in the file, also for serving certificates
// of kubelets, which the cluster signs. It also sets whether hosts renew certificates.
func (b *balanced) setValidity(t *testing.T, d time.Duration, byThemselves bool) {
	t.Helper()
	editSpec(t, b.file, func(spec map[string]any) {
		kubernetes := childMap(spec, "kubernetes")
		childMap(kubernetes, "certificates")["validity"] = d.String()
		childMap(kubernetes, "certificates")["autoRenew"] = byThemselves
		childMap(kubernetes, "controllerManager")["extraArgs"] = map[string]any{"cluster-signing-duration": d.String()}
	})
}

// checked holds the result of 'certs check'.
type checked struct {
	Verdict      string `json:"verdict"`
	Certificates []struct {
		Host    string    `json:"host"`
		Name    string    `json:"name"`
		Expires time.Time `json:"expires"`
		CA      bool      `json:"ca"`
		Rotates bool      `json:"rotates"`
		Due     bool      `json:"due"`
	} `json:"certificates"`
	Automatic []struct {
		Host    string   `json:"host"`
		Active  bool     `json:"active"`
		Result  string   `json:"result"`
		Message string   `json:"message"`
		Renewed []string `json:"renewed"`
	} `json:"automatic"`
}

// leafCertificates returns the certificates that are neither CAs nor created by a kubelet.
func (c checked) leafCertificates() (out []int) {
	for i, cert := range c.Certificates {
		if !cert.CA && !cert.Rotates && cert.Name != "kubelet-serving" {
			out = append(out, i)
		}
	}
	return out
}

// checkCertificates wants a look at the certificates to end with a code.
func (b *balanced) checkCertificates(t *testing.T, code int) checked {
	t.Helper()
	return decodeJSON[checked](t, b.mustExit(t, code, "certs", "check", b.name, "-o", "json").stdout)
}

// TestLongCertificates renews certificates that are valid for a few minutes only. The
// first renewal is shortly before they expire, under a client that writes. The second is
// after they have expired, while all machines were off.
func TestLongCertificates(t *testing.T) {
	const validity = 7 * time.Minute
	b := newBalanced(t, "e2e-certs", 3, 1)
	b.setEndpoint(t, "haproxy")
	b.setValidity(t, validity, false)
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	made := b.checkCertificates(t, 0)
	if len(made.Certificates) < 3*13 {
		t.Errorf("there are only %d certificates", len(made.Certificates))
	}

	w := b.startWriter(t, "renewing")
	eventually(t, validity, "all certificates are about to end", func() error {
		now := decodeJSON[checked](t, b.runSlipway(t, "certs", "check", b.name, "-o", "json").stdout)
		for _, i := range now.leafCertificates() {
			if c := now.Certificates[i]; !c.Due {
				return fmt.Errorf("%s of %s is not", c.Name, c.Host)
			}
		}
		return nil
	})
	r := b.mustExit(t, 0, "certs", "renew", b.name, "--yes")
	t.Logf("figure: renewed in %.0f s", r.took.Seconds())
	n, gap := w.stopWriter(t)
	if w.failures > 0 {
		t.Errorf("%d requests failed", w.failures)
	}
	t.Logf("figure: %d writes acknowledged and none lost, %.1f s without one", n, gap.Seconds())
	b.requireLaterEnds(t, made, b.checkCertificates(t, 0))
	if again := b.mustRun(t, "certs", "renew", b.name, "--yes"); !strings.Contains(again, "othing to do") {
		t.Errorf("renewed, there is something left to do:\n%s", again)
	}
	b.requireEmptyPlan(t, b.file)

	b.mustKubectl(t, b.name, "create", "configmap", "kept", "--from-literal=a=b")
	renewed := b.checkCertificates(t, 0)
	for _, m := range b.nodesOf() {
		b.mustRun(t, "sandbox", "stop", m)
	}
	last := time.Now().Add(validity) // a kubelet may have got another one until its machine stopped
	eventually(t, validity+time.Minute, "certificates have ended", func() error {
		if left := time.Until(last); left > 0 {
			return fmt.Errorf("for %s they have not", left)
		}
		return nil
	})
	for _, m := range b.nodesOf() {
		b.mustRun(t, "sandbox", "start", m)
	}
	eventually(t, time.Minute, "the machines are back", func() error {
		if r := b.runSlipway(t, "certs", "check", b.name, "-o", "json"); r.code != 4 || !strings.Contains(r.stdout, `"unasked": []`) {
			return errors.New(textTail(r.stdout))
		}
		return nil
	})
	if got := b.checkCertificates(t, 4); got.Verdict != "expired" {
		t.Errorf("the verdict is %s", got.Verdict)
	}
	if r := b.runSlipway(t, "kubectl", b.name, "--", "--request-timeout=5s", "get", "nodes"); r.code == 0 {
		t.Error("the API answers, though nothing is valid any more")
	}
	r = b.mustExit(t, 0, "certs", "renew", b.name, "--yes")
	t.Logf("figure: brought back in %.0f s", r.took.Seconds())
	b.requireLaterEnds(t, renewed, b.checkCertificates(t, 0))
	b.waitForRecovery(t)
	b.requireReachableAPI(t)
	if got := b.mustKubectl(t, b.name, "get", "configmap", "kept", "-o", "jsonpath={.data.a}"); got != "b" {
		t.Errorf("what was written before is %q", got)
	}
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.requireEmptyPlan(t, b.file)
	b.deleteCluster(t)
}

// TestLongAutoRenew lets hosts automatically renew certificates that are valid for a few
// minutes only, under a client that writes. No command runs meanwhile.
func TestLongAutoRenew(t *testing.T) {
	const validity = 7 * time.Minute
	b := newBalanced(t, "e2e-auto", 3, 1)
	b.setEndpoint(t, "haproxy")
	b.setValidity(t, validity, true)
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	made := b.checkCertificates(t, 0)
	if len(made.Automatic) != 3 { // a worker's kubelet renews all that it has
		t.Errorf("there are timers on %d hosts", len(made.Automatic))
	}
	for _, a := range made.Automatic {
		if !a.Active || len(a.Renewed) > 0 {
			t.Errorf("%+v", a)
		}
	}
	b.requireEmptyPlan(t, b.file)

	w := b.startWriter(t, "by-itself")
	var now checked
	renewed := map[string]map[string]bool{} // by host, over all runs: not all of one is due at once
	eventually(t, validity, "the hosts have renewed their certificates", func() error {
		now = decodeJSON[checked](t, b.runSlipway(t, "certs", "check", b.name, "-o", "json").stdout)
		for _, a := range now.Automatic {
			if renewed[a.Host] == nil {
				renewed[a.Host] = map[string]bool{}
			}
			for _, path := range a.Renewed {
				renewed[a.Host][path] = true
			}
		}
		before := map[string]time.Time{}
		for _, i := range made.leafCertificates() {
			before[made.Certificates[i].Host+" "+made.Certificates[i].Name] = made.Certificates[i].Expires
		}
		for _, i := range now.leafCertificates() {
			if c := now.Certificates[i]; !c.Expires.After(before[c.Host+" "+c.Name]) {
				return fmt.Errorf("%s of %s ends %s", c.Name, c.Host, c.Expires)
			}
		}
		for _, a := range now.Automatic {
			if a.Result == "begun" { // it waits for what it serves
				return fmt.Errorf("%s is at it", a.Host)
			}
		}
		return nil
	})
	n, gap := w.stopWriter(t)
	if w.failures > 0 {
		t.Errorf("%d requests failed", w.failures)
	}
	t.Logf("figure: the timers have renewed; %d writes acknowledged and none lost, %.1f s without one", n, gap.Seconds())
	for _, a := range now.Automatic {
		if strings.Contains(a.Host, "-w") || a.Host == w.worker {
			continue
		}
		if len(renewed[a.Host]) < 10 || a.Result == "failed" {
			t.Errorf("%+v; renewed were %v", a, renewed[a.Host])
		}
	}

	b.mustRun(t, "apply", "-f", b.file, "--yes") // it takes over the administrator's new kubeconfig
	b.requireEmptyPlan(t, b.file)
	editSpec(t, b.file, func(spec map[string]any) {
		childMap(childMap(spec, "kubernetes"), "certificates")["autoRenew"] = false
	})
	b.mustExit(t, 0, "apply", "-f", b.file, "--yes")
	b.requireEmptyPlan(t, b.file)
	for _, m := range b.nodesOf() {
		if r := b.runSlipway(t, "sandbox", "exec", m, "--", "test", "-e", "/etc/systemd/system/slipway-certs.timer"); r.code == 0 {
			t.Errorf("%s has its timer yet", m)
		}
	}
	b.deleteCluster(t)
}

// requireLaterEnds requires that every certificate ends later than before, except CAs,
// certificates with automatic renewal, and certificates that a kubelet has created.
func (b *balanced) requireLaterEnds(t *testing.T, before, after checked) {
	t.Helper()
	was := map[string]time.Time{}
	for _, c := range before.Certificates {
		was[c.Host+" "+c.Name] = c.Expires
	}
	if len(after.Certificates) != len(before.Certificates) {
		t.Errorf("there are %d certificates, and were %d", len(after.Certificates), len(before.Certificates))
	}
	for _, c := range after.Certificates {
		own := c.CA || c.Rotates || c.Name == "kubelet-serving"
		if before := was[c.Host+" "+c.Name]; !own && !c.Expires.After(before) {
			t.Errorf("%s of %s ends %s, and ended %s", c.Name, c.Host, c.Expires, before)
		}
	}
}
