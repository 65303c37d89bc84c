//go:build e2e && long

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLongLost has hosts die for good: of three control planes that hold an
// address the one that holds it, and a worker. Another machine comes in the
// control plane's place, and the dead one comes back.
func TestLongLost(t *testing.T) {
	b := newBalanced(t, "e2e-lost", 3, 2)
	b.setEndpoint(t, "keepalived")
	r := b.createCluster(t, b.file)
	t.Logf("figure: created in %.0f s", r.took.Seconds())
	b.waitForRecovery(t)
	b.requireReachableAPI(t)
	var dead string
	eventually(t, longestGap, "a control plane holds the address", func() (err error) {
		dead, err = b.addressHolder(t)
		return err
	})
	b.setHosts(t, slices.DeleteFunc(slices.Clone(b.controlPlanes), func(cp string) bool { return cp == dead }), b.workers)
	b.mustRun(t, "sandbox", "kill", dead)
	b.requireReachableAPI(t)
	for _, step := range []struct {
		name string
		do   func(t *testing.T, dead string)
	}{
		{"without a majority", b.refusesAnother},
		{"the dead one is given up", b.forgetControlPlane},
		{"another machine in its place", b.replaceControlPlane},
		{"another name in the certificates", b.addCertificateName},
		{"the dead one is back", b.turnsAway},
		{"a dead worker is given up", b.forgetsWorker},
	} {
		t.Run(step.name, func(t *testing.T) { step.do(t, dead) })
		if t.Failed() {
			return
		}
	}
	b.deleteCluster(t)
}

// refusesAnother asks for a live control plane to leave while one is dead: it is
// refused, with what to do first, and nothing is touched.
func (b *balanced) refusesAnother(t *testing.T, dead string) {
	live := b.controlPlanes[1]
	before := b.recordMachinePulse(t, b.nodesOf())
	refusedBy(t, b.mustExit(t, 2, "delete", "node", live, "--yes"), dead, "[host-unreachable]")
	refusedBy(t, b.mustExit(t, 2, "delete", "node", live, "--yes", "--ignore-errors"),
		"[etcd-quorum]", "without "+live+" etcd has 2 members, of which 1 respond", "do not respond ("+dead+")", "--forget")
	stillBeats(t, "a control plane that must not leave", before, b.recordMachinePulse(t, b.nodesOf()))
}

// forgetControlPlane gives a dead control plane up, while a client writes.
func (b *balanced) forgetControlPlane(t *testing.T, dead string) {
	b.waitForNotReady(t, b.name, dead)
	w, l := b.startWriter(t, "forgotten"), b.startLookout(t, b.controlPlanes...)
	r := b.mustExit(t, 0, "delete", "node", dead, "--yes", "--forget")
	if !strings.Contains(r.stdout+r.stderr, "its files remain on the host") {
		t.Errorf("nobody says what stays on the machine:\n%s%s", r.stdout, r.stderr)
	}
	b.requireWhole(t, w, l, fmt.Sprintf("%s, which held the address, given up in %.0f s", dead, r.took.Seconds()))
}

// replaceControlPlane has another machine become a control plane, while a client writes.
func (b *balanced) replaceControlPlane(t *testing.T, _ string) {
	b.hosts[b.spare].(map[string]any)["roles"] = []any{"control-plane"}
	b.setHosts(t, append(slices.Clone(b.controlPlanes), b.spare), b.workers)
	w, l := b.startWriter(t, "replaced"), b.startLookout(t, b.controlPlanes...)
	r := b.mustExit(t, 0, "add", "nodes", "-f", b.file, "--yes")
	b.requireWhole(t, w, l, fmt.Sprintf("another machine came in %.0f s", r.took.Seconds()))
}

// requireWhole wants the cluster to be as its file says, and ends who wrote and looked
// meanwhile.
func (b *balanced) requireWhole(t *testing.T, w *writer, l *lookout, what string) {
	t.Helper()
	b.waitForRecovery(t)
	b.requireReachableAPI(t)
	b.waitForEmptyPlan(t, b.file)
	l.endLookout(t, what)
	n, gap := w.stopWriter(t)
	t.Logf("figure: %s: %d writes acknowledged and none lost, %.1f s without one", what, n, gap.Seconds())
	if gap > longestGap {
		t.Errorf("%s: nothing was written for %s", what, gap)
	}
	if _, err := b.addressHolder(t); err != nil {
		t.Error(err)
	}
}

// apiServer is a shell script that tells which process is the API server, and
// since when: another one has another number or beginning.
const apiServer = `for d in /proc/[0-9]*; do
if [ "$(cat "$d/comm" 2>/dev/null)" = kube-apiserver ]; then echo "${d#/proc/} since $(cut -d' ' -f22 "$d/stat")"; fi
done; true`

// addCertificateName adds a name to the certificates of API servers, which take it up as
// they run.
func (b *balanced) addCertificateName(t *testing.T, _ string) {
	const name = "api.lost.example.com"
	servers := func() map[string]string {
		out := map[string]string{}
		for _, cp := range b.controlPlanes {
			if out[cp] = b.mustExec(t, cp, "sh", "-c", apiServer); strings.Count(out[cp], "\n") != 1 {
				t.Fatalf("the API servers on %s are %q, want one", cp, out[cp])
			}
		}
		return out
	}
	before, ca := servers(), x509.NewCertPool()
	if !ca.AppendCertsFromPEM([]byte(b.mustExec(t, b.controlPlanes[0], "cat", "/etc/kubernetes/pki/ca.crt"))) {
		t.Fatal("the cluster's authority has no certificate")
	}
	asks := func(cp, name string) error {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp",
			net.JoinHostPort(b.addresses[cp], "6443"), &tls.Config{RootCAs: ca, ServerName: name})
		if err != nil {
			return err
		}
		return conn.Close()
	}
	for _, cp := range b.controlPlanes {
		var other x509.HostnameError
		if err := asks(cp, name); !errors.As(err, &other) {
			t.Errorf("%s is asked for a name that it does not have: %v", cp, err)
		}
	}
	editSpec(t, b.file, func(spec map[string]any) {
		childMap(childMap(spec, "kubernetes"), "apiServer")["certSANs"] = []any{name}
	})
	r := b.mustExit(t, 0, "apply", "-f", b.file, "--yes")
	done := time.Now()
	for _, cp := range b.controlPlanes {
		eventually(t, 2*time.Minute, "a certificate of "+cp+" for "+name, func() error { return asks(cp, name) })
		for _, had := range []string{b.virtual, b.addresses[cp], "api." + b.name + ".internal", "kubernetes.default.svc"} {
			if err := asks(cp, had); err != nil {
				t.Errorf("%s has lost a name: %v", cp, err)
			}
		}
	}
	t.Logf("figure: another name in the certificates in %.0f s, shown by all API servers %.0f s later",
		r.took.Seconds(), time.Since(done).Seconds())
	for cp, is := range servers() {
		if is != before[cp] {
			t.Errorf("the API server of %s was restarted: it is process %s and was %s", cp, is, before[cp])
		}
	}
	b.requireEmptyPlan(t, b.file)
}

// turnsAway starts a machine that was removed while it was off. The machine has no vote in
// the cluster, does not take the address, and cannot be added until it has been reset.
// Then it is reset.
func (b *balanced) turnsAway(t *testing.T, dead string) {
	host := "root@" + b.addresses[dead]
	l := b.startLookout(t, append(slices.Clone(b.controlPlanes), dead)...)
	b.mustRun(t, "sandbox", "start", dead)
	eventually(t, time.Minute, "its kubelet", func() error {
		if r := b.runSlipway(t, "sandbox", "exec", dead, "--", "systemctl", "is-active", "kubelet"); r.code != 0 {
			return errors.New(strings.TrimSpace(r.stdout))
		}
		return nil
	})
	<-time.After(30 * time.Second) // in which it tries
	b.waitForRecovery(t)
	b.requireReachableAPI(t)
	if got := b.mustKubectl(t, b.name, "get", "nodes", "-o", "name"); strings.Contains(got, "/"+dead+"\n") {
		t.Errorf("the machine is a node again:\n%s", got)
	}
	forgotten := func() string {
		return b.mustKubectl(t, b.name, "get", "validatingadmissionpolicy", "slipway-forgotten-machines", "--ignore-not-found",
			"-o", `jsonpath={.metadata.annotations.slipway\.dev/machine-ids}`)
	}
	if id := strings.TrimSpace(b.mustExec(t, dead, "cat", "/etc/machine-id")); forgotten() != id {
		t.Errorf("the cluster turns away %q, want %s", forgotten(), id)
	}
	refusedBy(t, b.mustExit(t, 2, "add", "nodes", b.name, "--host", host+"=control-plane,name="+dead, "--yes"),
		"[host-returned]", "slipway delete node --host")
	b.requireEmptyPlan(t, b.file)
	b.mustExit(t, 0, "delete", "node", "--cluster", b.name, "--host", host, "--yes")
	l.endLookout(t, dead+" back")
	requireSame(t, dead+" before it was in the cluster and put back", "touched", b.before[dead], b.takeSnapshot(t, dead))
	if got := forgotten(); got != "" {
		t.Errorf("it has been put back, and the cluster turns away %q", got)
	}
	b.requireEmptyPlan(t, b.file)
	if _, err := b.addressHolder(t); err != nil {
		t.Error(err)
	}
}

// forgetsWorker has a worker die, and gives it up; not as long as it only cannot
// be reached.
func (b *balanced) forgetsWorker(t *testing.T, _ string) {
	worker := b.workers[1]
	b.mustExec(t, worker, "systemctl", "stop", "ssh")
	refusedBy(t, b.mustExit(t, 2, "delete", "node", worker, "--yes", "--forget"), "[host-runs]", "40 seconds")
	b.mustRun(t, "sandbox", "kill", worker)
	refusedBy(t, b.mustExit(t, 2, "delete", "node", worker, "--yes"), "[host-unreachable]", "--forget")
	b.waitForNotReady(t, b.name, worker)
	r := b.mustExit(t, 0, "delete", "node", worker, "--yes", "--forget")
	t.Logf("figure: a dead worker given up in %.0f s", r.took.Seconds())
	b.setHosts(t, b.controlPlanes, b.workers[:1])
	b.waitForRecovery(t)
	b.requireReachableAPI(t)
	b.waitForEmptyPlan(t, b.file)
}

// A lookout looks, again and again, which machines hold the virtual address.
type lookout struct {
	stop        func()
	done        chan struct{}
	looks, none int
	several     []string
}

func (b *balanced) startLookout(t *testing.T, machines ...string) *lookout {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &lookout{done: make(chan struct{})}
	l.stop = func() { cancel(); <-l.done }
	t.Cleanup(l.stop)
	holds := func(m string) bool {
		out, err := b.command(ctx, "sandbox", "exec", m, "--", "ip", "-o", "addr").Output()
		return err == nil && strings.Contains(string(out), " "+b.virtual+"/32 ")
	}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			var by []string
			for _, m := range machines {
				if holds(m) {
					by = append(by, m)
				}
			}
			// It may have moved between one look and the other.
			several := len(by) > 1 && holds(by[0])
			if ctx.Err() != nil {
				return
			}
			l.looks++
			switch {
			case several:
				l.several = append(l.several, strings.Join(by, " and "))
			case len(by) == 0:
				l.none++
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return l
}

// endLookout wants no two to have held the address.
func (l *lookout) endLookout(t *testing.T, what string) {
	t.Helper()
	l.stop()
	t.Logf("figure: %s: of %d looks at the address several held it in %d, nobody in %d", what, l.looks, len(l.several), l.none)
	if len(l.several) > 0 || l.looks == l.none {
		t.Errorf("%s: the address was held by %v, by nobody in %d of %d looks", what, l.several, l.none, l.looks)
	}
}
