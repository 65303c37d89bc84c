//go:build e2e && long

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// valid writes into the file for how long certificates are made: those of the
// nodes' kubelets as well, which the cluster signs.
func (b *balanced) valid(t *testing.T, d time.Duration) {
	t.Helper()
	editSpec(t, b.file, func(spec map[string]any) {
		kubernetes := child(spec, "kubernetes")
		child(kubernetes, "certificates")["validity"] = d.String()
		child(kubernetes, "controllerManager")["extraArgs"] = map[string]any{"cluster-signing-duration": d.String()}
	})
}

// checked is what a look at the certificates tells.
type checked struct {
	Verdict      string `json:"verdict"`
	Certificates []struct {
		Host    string    `json:"host"`
		Name    string    `json:"name"`
		Expires time.Time `json:"expires"`
		CA      bool      `json:"ca"`
		Rotates bool      `json:"rotates"`
	} `json:"certificates"`
}

// checks wants a look at the certificates to end with a code.
func (b *balanced) checks(t *testing.T, code int) checked {
	t.Helper()
	return decode[checked](t, b.exits(t, code, "certs", "check", b.name, "-o", "json").stdout)
}

// TestLongCertificates has a cluster's certificates be renewed that were really
// made for minutes: first under a client that writes, when they are about to end,
// then when they have ended, with all machines off meanwhile.
func TestLongCertificates(t *testing.T) {
	const validity = 7 * time.Minute
	b := newBalanced(t, "e2e-certs", 3, 1)
	b.by(t, "haproxy")
	b.valid(t, validity)
	b.create(t, b.file)
	b.back(t)
	made := b.checks(t, 0)
	if len(made.Certificates) < 3*13 {
		t.Errorf("there are only %d certificates", len(made.Certificates))
	}

	w := b.writing(t, "renewing")
	eventually(t, validity, "certificates are about to end", func() error {
		if r := b.run(t, "certs", "check", b.name); r.code != 4 {
			return fmt.Errorf("the check ends with %d", r.code)
		}
		return nil
	})
	r := b.exits(t, 0, "certs", "renew", b.name, "--yes")
	t.Logf("figure: renewed in %.0f s", r.took.Seconds())
	if failed := strings.Count(b.inside(t, w.worker, "cat", "/root/written"), " failed"); failed > 0 {
		t.Errorf("%d writes failed: %s", failed, b.inside(t, w.worker, "cat", "/root/write.err"))
	}
	n, gap := w.stop(t)
	t.Logf("figure: %d writes acknowledged and none lost, %.1f s without one", n, gap.Seconds())
	b.longer(t, made, b.checks(t, 0))
	if again := b.ok(t, "certs", "renew", b.name, "--yes"); !strings.Contains(again, "othing to do") {
		t.Errorf("renewed, there is something left to do:\n%s", again)
	}
	b.unchanged(t, b.file)

	b.kubectl(t, b.name, "create", "configmap", "kept", "--from-literal=a=b")
	renewed := b.checks(t, 0)
	for _, m := range b.nodesOf() {
		b.ok(t, "sandbox", "stop", m)
	}
	last := time.Time{}
	for _, c := range renewed.Certificates {
		if !c.CA && c.Name != "kubelet-serving" && c.Expires.After(last) {
			last = c.Expires
		}
	}
	eventually(t, validity+time.Minute, "certificates have ended", func() error {
		if left := time.Until(last); left > 0 {
			return fmt.Errorf("for %s they have not", left)
		}
		return nil
	})
	for _, m := range b.nodesOf() {
		b.ok(t, "sandbox", "start", m)
	}
	eventually(t, time.Minute, "the machines are back", func() error {
		if r := b.run(t, "certs", "check", b.name, "-o", "json"); r.code != 4 || !strings.Contains(r.stdout, `"unasked": []`) {
			return errors.New(tail(r.stdout))
		}
		return nil
	})
	if got := b.checks(t, 4); got.Verdict != "expired" {
		t.Errorf("the verdict is %s", got.Verdict)
	}
	if r := b.run(t, "kubectl", b.name, "--", "--request-timeout=5s", "get", "nodes"); r.code == 0 {
		t.Error("the API answers, though nothing is valid any more")
	}
	r = b.exits(t, 0, "certs", "renew", b.name, "--yes")
	t.Logf("figure: brought back in %.0f s", r.took.Seconds())
	b.longer(t, renewed, b.checks(t, 0))
	b.back(t)
	b.reached(t)
	if got := b.kubectl(t, b.name, "get", "configmap", "kept", "-o", "jsonpath={.data.a}"); got != "b" {
		t.Errorf("what was written before is %q", got)
	}
	b.smoke(t, b.name, b.user.nodes(t, b.name, b.nodesOf()...))
	b.unchanged(t, b.file)
	b.gone(t)
}

// longer wants every certificate to end later than it did, but for authorities,
// what renews itself, and what a kubelet has made for itself.
func (b *balanced) longer(t *testing.T, before, after checked) {
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
