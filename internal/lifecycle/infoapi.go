package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module/record"
	"slipway.dev/slipway/internal/spec"
)

// apiAnswer is what the API says.
type apiAnswer struct {
	answers bool
	message string // why it does not
	through string // the host over which it was asked; "" is from here
	nodes   []corev1.Node
	addOns  []AddOn
}

// askAPI asks the API over the first way that leads to it: the own one of the
// control plane that is reached first, then those of others, then from here.
func (l *looker) askAPI(ctx context.Context) *apiAnswer {
	if len(l.admin) == 0 {
		return &apiAnswer{message: "there is no admin kubeconfig yet"}
	}
	var message string
	down := false
	for h := range l.controlPlanes {
		a, err := l.askAt(ctx, h)
		if err == nil {
			return a
		}
		message = "on " + h.spec.Name + ": " + shortly(err)
		down = down || !errors.Is(err, context.DeadlineExceeded) // else the host may hang, and not the API
	}
	if down {
		return &apiAnswer{message: message} // their answer is the answer
	}
	door := l.svc.open(ctx, l.admin, record.Doors(l.env.Cluster)) // else it is told what the first says
	client, err := kube.New(l.admin, l.svc.Dial, kube.Options{Address: door})
	if err != nil {
		return &apiAnswer{message: cmp.Or(message, shortly(err))}
	}
	a, err := l.readAPI(ctx, client)
	if err != nil {
		return &apiAnswer{message: cmp.Or(message, shortly(err))}
	}
	return a
}

// askAt asks the API server of a control plane.
func (l *looker) askAt(ctx context.Context, h *hostLook) (*apiAnswer, error) {
	client, err := l.own(h)
	if err != nil {
		return nil, err
	}
	a, err := l.readAPI(ctx, client)
	if err == nil {
		a.through = h.spec.Name
	}
	return a, err
}

// own speaks to the API server of a control plane.
func (l *looker) own(h *hostLook) (*kube.Client, error) {
	return l.client(h, net.JoinHostPort("127.0.0.1", strconv.Itoa(l.env.Cluster.Spec.ControlPlaneEndpoint.Port)))
}

// shortly is why the API does not answer, without what was asked of it: of a
// connection that was not made, what the network said.
func shortly(err error) string {
	var e *kube.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	if e.Reason != kube.ReasonUnreachable {
		return e.Message
	}
	for err = e; errors.Unwrap(err) != nil; {
		err = errors.Unwrap(err)
	}
	return err.Error()
}

// reached says that a control plane could be asked.
func (l *looker) reached() bool {
	return slices.ContainsFunc(l.hosts, func(h *hostLook) bool {
		return h.err == nil && spec.HasRole(h.spec, v1alpha1.RoleControlPlane)
	})
}

func (l *looker) readAPI(ctx context.Context, client *kube.Client) (*apiAnswer, error) {
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, l.svc.looks.over)
	defer cancel()
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	a := &apiAnswer{answers: true, nodes: nodes}
	if addOns, err := workloads(ctx, client); err == nil {
		a.addOns = addOns
	}
	return a, nil
}

// into adds what the API says to what hosts and records tell.
func (a *apiAnswer) into(in *Info) {
	in.Endpoint.Answers, in.Endpoint.Through, in.Endpoint.Message = a.answers, a.through, a.message
	if !a.answers {
		return
	}
	nodes := a.nodes
	for i := range in.Nodes {
		n := &in.Nodes[i]
		j := slices.IndexFunc(nodes, func(o corev1.Node) bool { return o.Name == n.Name })
		if j < 0 {
			n.Ready, n.Message = "NotReady", "the cluster has no such node"
			continue
		}
		fromAPI(n, &nodes[j])
	}
	for i := range nodes {
		if !slices.ContainsFunc(in.Nodes, func(n NodeInfo) bool { return n.Name == nodes[i].Name }) {
			n := NodeInfo{Name: nodes[i].Name, Roles: []v1alpha1.Role{}, Host: "it is not in the cluster's file"}
			fromAPI(&n, &nodes[i])
			in.Nodes = append(in.Nodes, n)
		}
	}
	if len(a.addOns) > 0 {
		in.AddOns = a.addOns
	}
}

func fromAPI(n *NodeInfo, o *corev1.Node) {
	st := kube.State(o)
	n.Version, n.Message, n.Cordoned, n.Ready = cmp.Or(st.Version, n.Version), st.Message, st.Unschedulable, "NotReady"
	if st.Ready {
		n.Ready = "Ready"
	}
	n.Address = cmp.Or(st.InternalIP, n.Address)
	info := o.Status.NodeInfo
	n.OS, n.Kernel, n.Runtime = info.OSImage, info.KernelVersion, info.ContainerRuntimeVersion
	n.Capacity, n.Allocatable, n.ResourcesFrom = resources(o.Status.Capacity), resources(o.Status.Allocatable), "api"
}

func resources(list corev1.ResourceList) Resources {
	get := func(name corev1.ResourceName) string {
		q, ok := list[name]
		if !ok {
			return ""
		}
		return q.String()
	}
	return Resources{CPU: get(corev1.ResourceCPU), Memory: get(corev1.ResourceMemory), Pods: get(corev1.ResourcePods), Disk: get(corev1.ResourceEphemeralStorage)}
}

// workloads are the workloads of the cluster's own namespaces.
func workloads(ctx context.Context, client *kube.Client) ([]AddOn, error) {
	var out []AddOn
	for _, kind := range []string{"daemonsets", "deployments"} {
		raw, err := client.Raw(ctx, "/apis/apps/v1/"+kind)
		if err != nil {
			return nil, err
		}
		var list struct {
			Items []struct {
				Metadata struct{ Name, Namespace string }
				Spec     struct {
					Replicas *int
					Template struct {
						Spec struct{ Containers []struct{ Image string } }
					}
				}
				Status struct{ NumberReady, DesiredNumberScheduled, ReadyReplicas int }
			}
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("reading %s: %w", kind, err)
		}
		for _, o := range list.Items {
			if !strings.HasPrefix(o.Metadata.Namespace, "kube-") || len(o.Spec.Template.Spec.Containers) == 0 {
				continue
			}
			a := AddOn{
				Name: o.Metadata.Name, Namespace: o.Metadata.Namespace, Version: tag(o.Spec.Template.Spec.Containers[0].Image),
				Ready: o.Status.NumberReady, Wanted: o.Status.DesiredNumberScheduled,
			}
			if kind == "deployments" {
				a.Ready, a.Wanted = o.Status.ReadyReplicas, 1
				if o.Spec.Replicas != nil {
					a.Wanted = *o.Spec.Replicas
				}
			}
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b AddOn) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
	})
	return out, nil
}

// tag is an image's version.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, version, ok := strings.Cut(path.Base(image), ":")
	if !ok {
		return "-"
	}
	return version
}

// installed are the add-ons as the records have them, for when nobody else
// tells.
func (l *looker) installed() []AddOn {
	c := l.env.Cluster
	out := []AddOn{{Name: "coredns", Version: "v" + l.env.Release.CoreDNS, Ready: -1, Wanted: -1}}
	if c.Spec.Kubernetes.ProxyMode != "none" {
		out = append(out, AddOn{Name: "kube-proxy", Version: c.Spec.Kubernetes.Version, Ready: -1, Wanted: -1})
	}
	if c.Spec.Network.Plugin == "flannel" {
		out = append(out, AddOn{Name: "flannel", Version: "v" + l.env.Release.Flannel, Ready: -1, Wanted: -1})
	}
	return out
}

// soon is when a certificate's end is warned of.
const soon = 30 * 24 * time.Hour

// judge is the verdict, with what is wrong and what to do about it.
func (l *looker) judge(in *Info, c *v1alpha1.Cluster, ops []v1alpha1.Operation) {
	warn := func(id, host, hint, format string, args ...any) {
		in.Warnings = append(in.Warnings, diag.Diagnostic{ID: id, Severity: diag.Warning, Host: host, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if len(l.admin) > 0 && !in.Endpoint.Answers {
		warn(idAPIDown, "", "", "the API does not answer (%s); what follows is from the hosts and the records", in.Endpoint.Message)
	}
	l.judgeHosts(in, warn)
	l.judgeEtcd(in, warn)
	for _, cert := range in.Certificates {
		left := cert.Expires.Sub(l.svc.Now())
		switch {
		case left < 0:
			warn(idCertificateExpires, cert.Host, "", "%s expired on %s", cert.Path, cert.Expires.Format(time.DateOnly))
		case left < soon && !cert.CA && !strings.HasPrefix(cert.Path, "/var/lib/kubelet/"): // the kubelet renews its own
			warn(idCertificateExpires, cert.Host, "", "%s expires on %s", cert.Path, cert.Expires.Format(time.DateOnly))
		}
	}
	running := false
	if len(ops) > 0 && ops[0].Spec.Type != string(InitOS) {
		switch o := ops[0]; o.Status.Phase {
		case v1alpha1.OperationRunning:
			running = true
		case v1alpha1.OperationFailed, v1alpha1.OperationCancelled:
			warn(idOperationUnfinished, "", "see why: slipway operations show "+o.Name+" --failed", "the latest operation, %s %s, is not finished", o.Spec.Type, o.Name)
		}
	}
	l.conclude(in, c, running)
}

func (l *looker) judgeHosts(in *Info, warn func(id, host, hint, format string, args ...any)) {
	for _, h := range l.hosts {
		if h.err != nil {
			d := why(h.err)
			warn(cmp.Or(d.ID, idNodeNotReady), h.spec.Name, d.Hint, "%s", d.Message)
		}
		if h.kubelet != "" && h.kubelet != "active" && in.Phase != v1alpha1.PhasePending {
			warn(idNodeNotReady, h.spec.Name, "", "its kubelet is %s", h.kubelet)
		}
		if h.asked && h.endpoint != nil && in.Endpoint.Answers {
			warn(idEndpointDead, h.spec.Name, "", "the API does not answer there: %v", h.endpoint)
		}
	}
	for _, n := range in.Nodes {
		if n.Ready == "NotReady" {
			warn(idNodeNotReady, n.Name, "", "the node is not ready: %s", n.Message)
		}
		if n.Ready == "Ready" && n.Cordoned {
			warn(idNodeNotReady, n.Name, "take it back: slipway kubectl "+in.Name+" -- uncordon "+n.Name, "the node is cordoned: no pods are sent there")
		}
	}
}

func (l *looker) judgeEtcd(in *Info, warn func(id, host, hint, format string, args ...any)) {
	if in.Etcd.Message != "" && in.Etcd.Type != "external" && len(l.admin) > 0 && l.reached() {
		warn(idEtcdMember, "", "", "etcd cannot be asked (%s)", in.Etcd.Message)
	}
	voters := 0
	for _, m := range in.Etcd.Members {
		if !m.Learner {
			voters++
		}
		if !m.Healthy {
			warn(idEtcdMember, cmp.Or(m.Name, m.ID), "", "the etcd member does not answer")
		}
	}
	if voters > 0 && voters%2 == 0 {
		warn(idEtcdMember, "", "", "etcd has %d members: one more or one less would survive as many losses", voters)
	}
}

// conclude says it in one word, one line, and one command.
func (l *looker) conclude(in *Info, c *v1alpha1.Cluster, running bool) {
	ready := 0
	for _, n := range in.Nodes {
		if n.Ready == "Ready" {
			ready++
		}
	}
	in.Next = "slipway kubectl " + in.Name + " -- get pods -A"
	switch {
	case len(l.admin) == 0:
		in.Verdict, in.Summary = Absent, "its control plane has not come up yet"
	case !in.Endpoint.Answers:
		in.Verdict, in.Summary = Down, "the API does not answer"
		in.Next = "slipway exec " + in.Name + "@role=control-plane --sudo -- journalctl -u kubelet -n 30 --no-pager"
		if !l.reached() {
			in.Summary = "no control plane can be reached, and the API does not answer"
			in.Next = "slipway precheck " + in.Name
		}
	case len(in.Warnings) > 0:
		in.Verdict = Degraded
		in.Summary = fmt.Sprintf("the API answers, %d of %d nodes are ready", ready, len(in.Nodes))
	default:
		in.Verdict = Healthy
		in.Summary = fmt.Sprintf("the API answers on every node, all %d nodes are ready", len(in.Nodes))
	}
	switch {
	case running:
		in.Next = "slipway operations watch " + c.Status.Operation
	case slices.ContainsFunc(in.Warnings, func(d diag.Diagnostic) bool { return d.ID == idOperationUnfinished }):
		in.Next = "slipway resume " + in.Name
	}
}
