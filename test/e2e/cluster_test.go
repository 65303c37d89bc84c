//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A planned is the part of `plan -o json` that tests look at.
type planned struct {
	Digest string
	Steps  []struct {
		Task, Host, State string
		Changes           []planChange
	}
}

type planChange struct{ Kind, Target, Summary, Diff string }

// createCluster makes a cluster of the file's hosts. It must succeed.
func (u *user) createCluster(t *testing.T, file string) result {
	t.Helper()
	return u.mustExit(t, 0, "create", "cluster", "-f", file, "--yes")
}

// requireEmptyPlan asserts that the cluster is as its file says: the plan is empty.
func (u *user) requireEmptyPlan(t *testing.T, file string) {
	t.Helper()
	r := u.runSlipway(t, "plan", "-f", file, "--exit-code", "-o", "json")
	if r.code == 0 {
		return
	}
	if r.code != 4 {
		t.Fatalf("plan ends with %d: %s", r.code, textTail(r.stderr))
	}
	t.Errorf("the plan for an unchanged cluster is not empty: %+v", decodeJSON[planned](t, r.stdout).Steps)
}

// waitForEmptyPlan waits until the cluster is as its file says: it serves before the last
// of its parts is there, such as flannel on a worker.
func (u *user) waitForEmptyPlan(t *testing.T, file string) {
	t.Helper()
	eventually(t, 3*time.Minute, "the cluster as its file describes it", func() error {
		if r := u.runSlipway(t, "plan", "-f", file, "--exit-code"); r.code != 0 {
			return errors.New(textTail(r.stdout + r.stderr))
		}
		return nil
	})
}

// waitForNotReady waits until the cluster knows that a machine is off.
func (u *user) waitForNotReady(t *testing.T, cluster, node string) {
	t.Helper()
	eventually(t, 2*time.Minute, "the cluster to notice that "+node+" is off", func() error {
		if got := u.mustKubectl(t, cluster, "get", "node", node, "--no-headers"); !strings.Contains(got, " NotReady ") {
			return fmt.Errorf("not yet: %s", got)
		}
		return nil
	})
}

// A nodeList is the part of `kubectl get nodes -o json` that tests look at.
type nodeList struct {
	Items []struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
		Status struct {
			Conditions []struct{ Type, Status, Message string }
			Addresses  []struct{ Type, Address string }
			NodeInfo   struct{ KubeletVersion string }
		}
	}
}

// waitForNodes waits until the cluster has exactly these nodes, all Ready, and
// answers their internal addresses by name.
func (u *user) waitForNodes(t *testing.T, cluster string, want ...string) map[string]string {
	t.Helper()
	slices.Sort(want)
	addresses := map[string]string{}
	eventually(t, 3*time.Minute, "nodes Ready", func() error {
		list := decodeJSON[nodeList](t, u.mustKubectl(t, cluster, "get", "nodes", "-o", "json"))
		var ready []string
		for _, n := range list.Items {
			if v := n.Status.NodeInfo.KubeletVersion; v != testedVersion() {
				return fmt.Errorf("%s runs kubelet %s, want %s", n.Metadata.Name, v, testedVersion())
			}
			for _, c := range n.Status.Conditions {
				if c.Type == "Ready" && c.Status == "True" {
					ready = append(ready, n.Metadata.Name)
				}
			}
			for _, a := range n.Status.Addresses {
				if a.Type == "InternalIP" {
					addresses[n.Metadata.Name] = a.Address
				}
			}
		}
		slices.Sort(ready)
		if !slices.Equal(ready, want) {
			return fmt.Errorf("ready are %v, want %v", ready, want)
		}
		return nil
	})
	return addresses
}

// A podList is the part of `kubectl get pods -o json` that tests look at.
type podList struct {
	Items []struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct{ NodeName string }
		Status   struct {
			PodIP             string
			ContainerStatuses []struct {
				ContainerID  string
				Ready        bool
				RestartCount int
			}
		}
	}
}

// smokeTest shows that the cluster works, with an echo server on every node: pod
// to pod across nodes, a ClusterIP, a name in DNS, a node port on each node.
func (u *user) smokeTest(t *testing.T, cluster string, addresses map[string]string) {
	t.Helper()
	manifest, err := filepath.Abs("../../docs/guide/echo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	u.mustKubectl(t, cluster, "apply", "-f", manifest)
	u.mustKubectl(t, cluster, "rollout", "status", "daemonset/echo", "--timeout=120s")
	pods := decodeJSON[podList](t, u.mustKubectl(t, cluster, "get", "pods", "-l", "app=echo", "-o", "json"))
	if len(pods.Items) != len(addresses) {
		t.Fatalf("%d echo pods on %d nodes", len(pods.Items), len(addresses))
	}
	clusterIP := u.mustKubectl(t, cluster, "get", "service", "echo", "-o", "jsonpath={.spec.clusterIP}")
	for _, from := range pods.Items {
		for _, to := range pods.Items {
			u.requireAnswer(t, cluster, from.Metadata.Name, "http://"+to.Status.PodIP+":8080/", to.Metadata.Name)
		}
		u.requireAnswer(t, cluster, from.Metadata.Name, "http://"+clusterIP+"/", "echo-")
		u.requireAnswer(t, cluster, from.Metadata.Name, "http://echo/", "echo-")
		u.requireAnswer(t, cluster, from.Metadata.Name, "http://echo.default.svc.cluster.local/", "echo-")
	}
	for node, address := range addresses {
		eventually(t, time.Minute, "node port on "+node, func() error { return httpGet("http://"+address+":30080/", "echo-") })
	}
}

// hostPort shows that a pod answers on a port of its node, which wants a packet
// filter program that the node does not have.
func (u *user) hostPort(t *testing.T, cluster, node, address string) {
	t.Helper()
	const name, image = "host-port", "slipway.dev/echo:1"
	pod, err := json.Marshal(map[string]any{"spec": map[string]any{
		"nodeName": node,
		"containers": []any{map[string]any{
			"name": name, "image": image, "ports": []any{map[string]any{"containerPort": 8080, "hostPort": 30081}},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	u.mustKubectl(t, cluster, "run", name, "--image="+image, "--overrides="+string(pod))
	u.mustKubectl(t, cluster, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	eventually(t, time.Minute, "host port on "+node, func() error { return httpGet("http://"+address+":30081/", name) })
	u.mustKubectl(t, cluster, "delete", "pod", name, "--now")
}

// requireAnswer asserts that a pod gets an answer from a URL that has a text in it.
func (u *user) requireAnswer(t *testing.T, cluster, pod, url, want string) {
	t.Helper()
	eventually(t, time.Minute, url+" from "+pod, func() error {
		r := u.runSlipway(t, "kubectl", cluster, "--", "exec", pod, "--", "/echo", "get", url)
		if r.code != 0 {
			return fmt.Errorf("exit code %d: %s", r.code, textTail(r.stderr))
		}
		if !strings.Contains(r.stdout, want) {
			return fmt.Errorf("answer %q has no %q", r.stdout, want)
		}
		return nil
	})
}

// httpGet asks from this host.
func httpGet(url, want string) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if !strings.Contains(string(body), want) {
		return fmt.Errorf("%s: answer %q has no %q", resp.Status, body, want)
	}
	return nil
}

// recordPulse returns values that change with any restart or rewrite: containers,
// invocation ids of units, and the inodes and times of files.
func (u *user) recordPulse(t *testing.T, cluster string, machines []string) map[string]string {
	t.Helper()
	out := u.recordMachinePulse(t, machines)
	pods := decodeJSON[podList](t, u.mustKubectl(t, cluster, "get", "pods", "-A", "-o", "json"))
	for _, p := range pods.Items {
		for i, c := range p.Status.ContainerStatuses {
			out[fmt.Sprintf("container %s/%s/%d", p.Metadata.Namespace, p.Metadata.Name, i)] = fmt.Sprint(c.ContainerID, c.RestartCount)
		}
	}
	return out
}

// recordMachinePulse is the pulse of the machines alone.
func (u *user) recordMachinePulse(t *testing.T, machines []string) map[string]string {
	t.Helper()
	out := map[string]string{}
	const look = `for u in containerd docker cri-docker kubelet; do echo "$u $(systemctl show -p InvocationID --value $u)"; done
find /etc /usr/local /opt /var/lib/slipway /var/lib/kubelet -xdev -type f ! -path '/var/lib/kubelet/pods/*' ! -path '*/blobs/*' ! ` +
		`-path '/var/lib/kubelet/*_state' \
  ! -path '*/lock*' ! -path '/var/lib/slipway/fence' -printf 'file %p %i %T@\n' 2>/dev/null; true`
	for _, m := range machines {
		for line := range strings.Lines(u.mustExec(t, m, "sh", "-c", look)) {
			text := strings.TrimSpace(line)
			cut := strings.Index(text, " ")
			if strings.HasPrefix(text, "file ") {
				cut = 5 + strings.Index(text[5:], " ")
			}
			if cut > 0 {
				out[m+" "+text[:cut]] = text[cut:]
			}
		}
	}
	return out
}

// stillBeats fails the test for everything that has changed between two
// pulses.
func stillBeats(t *testing.T, what string, before, after map[string]string) {
	t.Helper()
	for key, was := range before {
		if is, ok := after[key]; !ok || is != was {
			t.Errorf("%s: %s was %s and is %q", what, key, was, is)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			t.Errorf("%s: %s is new", what, key)
		}
	}
}
