//go:build e2e && long

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// longestGap is how long requests through a worker's endpoint may fail after
// the loss of a control plane.
const longestGap = time.Minute

// A balanced is control planes, workers, and a machine that Slipway does not
// know.
type balanced struct {
	*user
	name                   string
	file                   string
	hosts                  map[string]any // of the file, by name
	controlPlanes, workers []string       // the names of the cluster's hosts
	spare                  string         // the machine that Slipway does not know
	addresses              map[string]string
	virtual                string // an unused address
	before                 map[string]snapshot
}

func newBalanced(t *testing.T, name string, controlPlanes, workers int) *balanced {
	t.Helper()
	b := &balanced{user: newUser(t), name: name, hosts: map[string]any{}, addresses: map[string]string{}, before: map[string]snapshot{}}
	b.file = b.createMachines(t, name, controlPlanes+workers+1, "--control-planes", strconv.Itoa(controlPlanes))
	editSpec(t, b.file, func(spec map[string]any) {
		for i, h := range spec["hosts"].([]any) {
			host := h.(map[string]any)["name"].(string)
			switch {
			case i < controlPlanes:
				b.controlPlanes = append(b.controlPlanes, host)
			case i < controlPlanes+workers:
				b.workers = append(b.workers, host)
			default:
				b.spare = host
			}
			b.hosts[host], b.addresses[host] = h, h.(map[string]any)["address"].(string)
		}
	})
	ip := netip.MustParseAddr(b.addresses[b.spare]).As4()
	ip[3] = 200
	b.virtual = netip.AddrFrom4(ip).String()
	for m := range b.hosts {
		b.before[m] = b.takeSnapshot(t, m)
	}
	b.setHosts(t, b.controlPlanes, b.workers)
	return b
}

// setHosts has the file name these hosts alone.
func (b *balanced) setHosts(t *testing.T, controlPlanes, workers []string) {
	t.Helper()
	b.controlPlanes, b.workers = controlPlanes, workers
	editSpec(t, b.file, func(spec map[string]any) {
		var hosts []any
		for _, m := range b.nodesOf() {
			hosts = append(hosts, b.hosts[m])
		}
		spec["hosts"] = hosts
	})
}

func (b *balanced) nodesOf() []string {
	return append(append([]string{}, b.controlPlanes...), b.workers...)
}

// setEndpoint writes the endpoint into the file.
func (b *balanced) setEndpoint(t *testing.T, mode string) {
	t.Helper()
	editSpec(t, b.file, func(spec map[string]any) {
		ep := map[string]any{"mode": mode}
		switch mode {
		case "keepalived":
			ep["address"] = b.virtual
		case "external":
			ep["address"] = b.addresses[b.spare]
		}
		spec["controlPlaneEndpoint"] = ep
	})
}

// setUpBalancer sets up HAProxy, from the image in the bundle and without a container, on
// the machine that is not in the cluster.
func (b *balanced) setUpBalancer(t *testing.T) {
	t.Helper()
	machine := b.spare
	b.mustExec(t, machine, "mkdir", "-p", "/opt/lb")
	for i, layer := range imageLayers(t, "slipway.dev/haproxy:1") {
		archive := fmt.Sprintf("/opt/layer-%d.tar.gz", i)
		b.copyTo(t, machine, layer, archive)
		b.mustExec(t, machine, "tar", "-xzf", archive, "-C", "/opt/lb")
	}
	var servers strings.Builder
	for _, cp := range b.controlPlanes {
		fmt.Fprintf(&servers,
			"  server %s %s:6443 check check-ssl verify none inter 1s fall 2 rise 2 on-marked-down shutdown-sessions\n", cp, b.addresses[cp])
	}
	config := filepath.Join(b.home, "lb.cfg")
	if err := os.WriteFile(config, []byte(`global
  maxconn 4096
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
frontend api
  bind *:6443
  default_backend api
backend api
  option httpchk GET /readyz
  http-check expect status 200
`+servers.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	b.copyTo(t, machine, config, "/opt/lb/lb.cfg")
	b.mustExec(t, machine, "systemd-run", "--unit=lb", "--property=RootDirectory=/opt/lb", "/usr/sbin/haproxy", "-db", "-f", "/lb.cfg")
	eventually(t, 20*time.Second, "the load balancer listens", func() error {
		if r := b.runSlipway(t, "sandbox", "exec", machine, "--", "sh", "-c", "ss -ltn | grep -q :6443"); r.code != 0 {
			return errors.New(textTail(r.stderr))
		}
		return nil
	})
}

// imageLayers are the files of an image's layers in the cached bundle.
func imageLayers(t *testing.T, ref string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(cacheDir(), "bundles", testedVersion()+"_*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("there are %d bundles of %s in the cache: %v", len(found), testedVersion(), err)
	}
	blob := func(digest string) string {
		return filepath.Join(found[0], "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
	}
	type descriptor struct {
		Digest      string
		Annotations map[string]string
	}
	read := func(path string) (out struct{ Manifests, Layers []descriptor }) {
		raw, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, bundle := range read(filepath.Join(found[0], "index.json")).Manifests {
		for _, m := range read(blob(bundle.Digest)).Manifests {
			if m.Annotations["org.opencontainers.image.ref.name"] != ref {
				continue
			}
			var out []string
			for _, l := range read(blob(m.Digest)).Layers {
				out = append(out, blob(l.Digest))
			}
			return out
		}
	}
	t.Fatalf("the bundle has no image %s", ref)
	return nil
}

// requireReachableAPI wants the API to answer through every worker's endpoint.
func (b *balanced) requireReachableAPI(t *testing.T) {
	t.Helper()
	for _, w := range b.workers {
		eventually(t, longestGap, "the API through the endpoint of "+w, func() error {
			if r := b.runSlipway(t, "sandbox", "exec", w, "--", "kubectl", "--kubeconfig=/etc/kubernetes/kubelet.conf",
				"--request-timeout=5s", "get", "--raw=/api/v1/nodes/"+w); r.code != 0 {
				return errors.New(textTail(r.stderr))
			}
			return nil
		})
	}
}

// killControlPlanes kills each control plane in turn, and starts it again. A virtual address
// is lost at least once with its holder.
func (b *balanced) killControlPlanes(t *testing.T, mode string) {
	holders := 0
	for _, cp := range b.controlPlanes {
		what := cp
		if mode == "keepalived" {
			holder, err := b.addressHolder(t)
			if err != nil {
				t.Fatal(err)
			}
			if holder == cp {
				what += ", which held the address,"
				holders++
			}
		}
		w := b.startWriter(t, "without-"+cp)
		b.mustRun(t, "sandbox", "kill", cp)
		b.requireReachableAPI(t)
		eventually(t, 2*time.Minute, cp+" is noticed to be gone", func() error {
			other := b.controlPlanes[0]
			if cp == other {
				other = b.controlPlanes[1]
			}
			out := b.runSlipway(t, "sandbox", "exec", other, "--", "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf",
				"--cache-dir=/run/kubectl", "get", "nodes", "--no-headers").stdout
			if strings.Count(out, " NotReady ") != 1 || strings.Count(out, " Ready ") != 4 {
				return fmt.Errorf("want %s alone not to be ready:\n%s", cp, out)
			}
			return nil
		})
		b.mustRun(t, "sandbox", "start", cp)
		b.waitForRecovery(t)
		n, gap := w.stopWriter(t)
		t.Logf("figure: %s killed: %d writes acknowledged and none lost, %.1f s without one", what, n, gap.Seconds())
		if gap > longestGap {
			t.Errorf("without %s nothing was written for %s", cp, gap)
		}
	}
	if mode == "keepalived" && holders == 0 {
		t.Error("no control plane was killed while it held the address")
	}
}

// waitForRecovery wants all nodes ready, and etcd with all its votes.
func (b *balanced) waitForRecovery(t *testing.T) {
	t.Helper()
	eventually(t, 3*time.Minute, "the API of "+b.controlPlanes[0], func() error {
		if r := b.runSlipway(t, "kubectl", b.name, "--", "--request-timeout=5s", "get", "--raw=/readyz"); r.code != 0 {
			return errors.New(textTail(r.stderr))
		}
		return nil
	})
	b.user.waitForNodes(t, b.name, b.nodesOf()...)
	for _, cp := range b.controlPlanes {
		b.requireVoters(t, cp, b.controlPlanes...)
	}
}

// rebootAll reboots all machines at once.
func (b *balanced) rebootAll(t *testing.T) {
	begin := time.Now()
	for _, m := range b.nodesOf() {
		b.mustRun(t, "sandbox", "kill", m)
	}
	for _, m := range b.nodesOf() {
		b.mustRun(t, "sandbox", "start", m)
	}
	b.waitForRecovery(t)
	b.requireReachableAPI(t)
	t.Logf("figure: all machines lost at once and started: back after %.0f s", time.Since(begin).Seconds())
	b.waitForEmptyPlan(t, b.file)
}

// runMode is the life of a cluster in a mode.
func (b *balanced) runMode(t *testing.T, mode string) {
	if mode == "external" {
		b.setUpBalancer(t)
	}
	b.setEndpoint(t, mode)
	r := b.createCluster(t, b.file)
	t.Logf("figure: created in %.0f s", r.took.Seconds())
	b.waitForRecovery(t)
	b.requireReachableAPI(t)
	b.smokeTest(t, b.name, b.user.waitForNodes(t, b.name, b.nodesOf()...))
	b.requireEmptyPlan(t, b.file)
	if mode == "updater" {
		t.Run("with its token", b.updaterHeld)
	}
	if mode == "keepalived" {
		t.Run("the holder's API server stops", func(t *testing.T) { b.givesUp(t) })
	}
	b.killControlPlanes(t, mode)
	t.Run("all rebooted", func(t *testing.T) { b.rebootAll(t) })
	b.deleteCluster(t)
}

// addressHolder is the control plane that holds the address; it must be one alone.
func (b *balanced) addressHolder(t *testing.T) (string, error) {
	t.Helper()
	var holders []string
	for _, cp := range b.controlPlanes {
		if strings.Contains(b.mustExec(t, cp, "ip", "-o", "addr"), " "+b.virtual+"/32 ") {
			holders = append(holders, cp)
		}
	}
	if len(holders) != 1 {
		return "", fmt.Errorf("%v hold the address, want one", holders)
	}
	return holders[0], nil
}

// givesUp stops only the API server on the host with the address: another control plane
// takes the address.
func (b *balanced) givesUp(t *testing.T) {
	was, err := b.addressHolder(t)
	if err != nil {
		t.Fatal(err)
	}
	b.mustExec(t, was, "mv", "/etc/kubernetes/manifests/kube-apiserver.yaml", "/root/kube-apiserver.yaml")
	begin := time.Now()
	eventually(t, longestGap, "another control plane holds the address", func() error {
		is, err := b.addressHolder(t)
		if err == nil && is == was {
			err = fmt.Errorf("%s, whose API server is gone, still holds it", was)
		}
		return err
	})
	t.Logf("figure: the address left a control plane without API server after %.0f s", time.Since(begin).Seconds())
	b.requireReachableAPI(t)
	b.mustExec(t, was, "mv", "/root/kube-apiserver.yaml", "/etc/kubernetes/manifests/kube-apiserver.yaml")
	b.waitForRecovery(t)
}

// deleteCluster deletes the cluster, after which the hosts are as before.
func (b *balanced) deleteCluster(t *testing.T) {
	for _, w := range b.workers[:1] {
		b.mustExec(t, w, "rm", "-f", clientBinary, clientConfig, clientSeen)
	}
	b.mustExit(t, 0, "delete", "cluster", b.name, "--yes", "--allow-removal")
	for _, m := range b.nodesOf() {
		requireSame(t, m+" before and after", "touched", b.before[m], b.takeSnapshot(t, m))
	}
}

func TestLongEndpointHAProxy(t *testing.T) { newBalanced(t, "e2e-lb", 3, 2).runMode(t, "haproxy") }
func TestLongEndpointUpdater(t *testing.T) { newBalanced(t, "e2e-lb", 3, 2).runMode(t, "updater") }
func TestLongEndpointKeepalived(t *testing.T) {
	newBalanced(t, "e2e-lb", 3, 2).runMode(t, "keepalived")
}

func TestLongEndpointExternal(t *testing.T) { newBalanced(t, "e2e-lb", 3, 2).runMode(t, "external") }

// TestLongEndpointSwitches goes from mode to mode on a running cluster, with a
// client that writes through a worker's endpoint all along.
func TestLongEndpointSwitches(t *testing.T) {
	b := newBalanced(t, "e2e-lb", 3, 2)
	b.setUpBalancer(t)
	b.setEndpoint(t, "haproxy")
	b.createCluster(t, b.file)
	b.waitForRecovery(t)
	for i, mode := range []string{"updater", "keepalived", "external", "haproxy"} {
		w := b.startWriter(t, fmt.Sprintf("to-%s-%d", mode, i))
		b.setEndpoint(t, mode)
		begin := time.Now()
		r := b.mustExit(t, 0, "apply", "-f", b.file, "--yes")
		b.requireReachableAPI(t)
		b.requireEmptyPlan(t, b.file)
		n, gap := w.stopWriter(t)
		t.Logf("figure: to %s in %.0f s: %d writes acknowledged and none lost, %.1f s without one", mode, r.took.Seconds(), n, gap.Seconds())
		if gap > longestGap {
			t.Errorf("on the way to %s nothing was written for %s", mode, gap)
		}
		t.Logf("%s: %s", mode, time.Since(begin).Round(time.Second))
		b.waitForRecovery(t)
	}
	b.deleteCluster(t)
}
