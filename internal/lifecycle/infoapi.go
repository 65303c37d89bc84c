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

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/spec"
)

// apiAnswer is the result of querying the API.
type apiAnswer struct {
	answers bool
	message string // the reason if it does not
	through string // the host over which it was queried; "" means from this machine
	nodes   []corev1.Node
	addOns  []AddOn
}

// askAPI queries the API at the first address that works: the API server of the control
// plane that is reached first, then the other control planes, then the endpoint from
// this machine.
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
		down = down || !errors.Is(err, context.DeadlineExceeded) // otherwise the host may hang and not the API
	}
	if down {
		return &apiAnswer{message: message} // the control planes responded: the API is down
	}
	door := l.svc.FirstReadyAddress(ctx, l.admin, clusterstate.Doors(l.env.Cluster)) // if none works, the first address gives the error
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

// askAt queries the API server of a control plane.
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

// own returns a client for the API server of a control plane.
func (l *looker) own(h *hostLook) (*kube.Client, error) {
	return l.client(h, net.JoinHostPort("127.0.0.1", strconv.Itoa(l.env.Cluster.Spec.ControlPlaneEndpoint.Port)))
}

// shortly returns the reason of an API error without the request; for a failed
// connection, the network error.
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

// reached reports whether a control plane could be queried.
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

// into adds the API's data to the data of the hosts and the saved state.
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
			n := NodeInfo{Name: nodes[i].Name, Roles: []v1alpha1.Role{}, Host: "not in the cluster file"}
			fromAPI(&n, &nodes[i])
			in.Nodes = append(in.Nodes, n)
		}
	}
	if a.addOns == nil { // they could not be queried
		return
	}
	wanted := in.AddOns
	in.AddOns = a.addOns
	for _, w := range wanted {
		if !slices.ContainsFunc(a.addOns, func(o AddOn) bool { return o.Name == w.Name }) {
			w.Missing = true
			in.AddOns = append(in.AddOns, w)
		}
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
	return Resources{CPU: get(corev1.ResourceCPU), Memory: get(corev1.ResourceMemory), Pods: get(corev1.ResourcePods),
		Disk: get(corev1.ResourceEphemeralStorage)}
}

// workloads returns the workloads of the cluster's own namespaces.
func workloads(ctx context.Context, client *kube.Client) ([]AddOn, error) {
	out := []AddOn{}
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
			if !strings.HasPrefix(o.Metadata.Namespace, "kube-") {
				continue
			}
			a := AddOn{
				Name: o.Metadata.Name, Namespace: o.Metadata.Namespace, Version: "-",
				Ready: o.Status.NumberReady, Wanted: o.Status.DesiredNumberScheduled,
			}
			if containers := o.Spec.Template.Spec.Containers; len(containers) > 0 {
				a.Version = tag(containers[0].Image)
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

// tag returns the tag of an image.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, version, ok := strings.Cut(path.Base(image), ":")
	if !ok {
		return "-"
	}
	return version
}

// installed returns the add-ons according to the saved state.
func (l *looker) installed() []AddOn {
	c := l.env.Cluster
	out := []AddOn{{Name: "coredns", Version: "v" + l.env.Release.CoreDNS, Ready: -1, Wanted: -1}}
	if c.Spec.Kubernetes.ProxyMode != "none" {
		out = append(out, AddOn{Name: "kube-proxy", Version: c.Spec.Kubernetes.Version, Ready: -1, Wanted: -1})
	}
	if c.Spec.Network.Plugin == "flannel" {
		out = append(out, AddOn{Name: "kube-flannel", Version: "v" + l.env.Release.Flannel, Ready: -1, Wanted: -1})
	}
	return out
}
