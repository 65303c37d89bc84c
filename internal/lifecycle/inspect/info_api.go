package inspect

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

// apiResult is the result of querying the API.
type apiResult struct {
	answers bool
	message string // the reason if it does not
	through string // the host over which it was queried; "" means from this machine
	nodes   []corev1.Node
	addOns  []AddOn
}

// queryAPI queries the API at the first address that works: the API server of the control
// plane that is reached first, then the other control planes, then the endpoint from
// this machine.
func (s *Session) queryAPI(ctx context.Context) *apiResult {
	if len(s.Admin) == 0 {
		return &apiResult{message: "there is no admin kubeconfig yet"}
	}
	var message string
	down := false
	for h := range s.ControlPlanes {
		a, err := s.queryAPIOf(ctx, h)
		if err == nil {
			return a
		}
		message = "on " + h.Spec.Name + ": " + describeAPIError(err)
		down = down || !errors.Is(err, context.DeadlineExceeded) // otherwise the host may hang and not the API
	}
	if down {
		return &apiResult{message: message} // the control planes responded: the API is down
	}
	// if none works, the first address gives the error
	door := s.in.c.Access.FirstReadyAddress(ctx, s.Admin, clusterstate.APIAddresses(s.Env.Cluster))
	client, err := kube.New(s.Admin, s.in.c.DialAPI, kube.Options{Address: door})
	if err != nil {
		return &apiResult{message: cmp.Or(message, describeAPIError(err))}
	}
	a, err := s.readAPI(ctx, client)
	if err != nil {
		return &apiResult{message: cmp.Or(message, describeAPIError(err))}
	}
	return a
}

// queryAPIOf queries the API server of a control plane.
func (s *Session) queryAPIOf(ctx context.Context, h *Host) (*apiResult, error) {
	client, err := s.ControlPlaneClient(h)
	if err != nil {
		return nil, err
	}
	a, err := s.readAPI(ctx, client)
	if err == nil {
		a.through = h.Spec.Name
	}
	return a, err
}

// ControlPlaneClient returns a client for the API server of a control plane.
func (s *Session) ControlPlaneClient(h *Host) (*kube.Client, error) {
	return s.newAPIClient(h, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Env.Cluster.Spec.ControlPlaneEndpoint.Port)))
}

// describeAPIError returns the reason of an API error without the request; for a failed
// connection, the network error.
func describeAPIError(err error) string {
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

// hasReachableControlPlane reports whether a control plane could be queried.
func (s *Session) hasReachableControlPlane() bool {
	return slices.ContainsFunc(s.Hosts, func(h *Host) bool {
		return h.Err == nil && spec.HasRole(h.Spec, v1alpha1.RoleControlPlane)
	})
}

func (s *Session) readAPI(ctx context.Context, client *kube.Client) (*apiResult, error) {
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, s.in.Limits.Through)
	defer cancel()
	nodes, err := client.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	a := &apiResult{answers: true, nodes: nodes}
	if addOns, err := listWorkloads(ctx, client); err == nil {
		a.addOns = addOns
	}
	return a, nil
}

// addTo adds the API's data to the data of the hosts and the saved state.
func (a *apiResult) addTo(in *Info) {
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
		setNodeState(n, &nodes[j])
	}
	for i := range nodes {
		if !slices.ContainsFunc(in.Nodes, func(n NodeInfo) bool { return n.Name == nodes[i].Name }) {
			n := NodeInfo{Name: nodes[i].Name, Roles: []v1alpha1.Role{}, Host: "not in the cluster file"}
			setNodeState(&n, &nodes[i])
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

func setNodeState(n *NodeInfo, o *corev1.Node) {
	st := kube.NodeStateOf(o)
	n.Version, n.Message, n.Cordoned, n.Ready = cmp.Or(st.Version, n.Version), st.Message, st.Unschedulable, "NotReady"
	if st.Ready {
		n.Ready = "Ready"
	}
	n.Address = cmp.Or(st.InternalIP, n.Address)
	info := o.Status.NodeInfo
	n.OS, n.Kernel, n.Runtime = info.OSImage, info.KernelVersion, info.ContainerRuntimeVersion
	n.Capacity, n.Allocatable, n.ResourcesFrom = readResources(o.Status.Capacity), readResources(o.Status.Allocatable), "api"
}

func readResources(list corev1.ResourceList) Resources {
	get := func(name corev1.ResourceName) string {
		q, ok := list[name]
		if !ok {
			return ""
		}
		return q.String()
	}
	return Resources{
		CPU: get(corev1.ResourceCPU), Memory: get(corev1.ResourceMemory), Pods: get(corev1.ResourcePods),
		Disk: get(corev1.ResourceEphemeralStorage),
	}
}

// listWorkloads returns the workloads of the cluster's own namespaces.
func listWorkloads(ctx context.Context, client *kube.Client) ([]AddOn, error) {
	out := []AddOn{}
	for _, kind := range []string{"daemonsets", "deployments"} {
		raw, err := client.GetRaw(ctx, "/apis/apps/v1/"+kind)
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
				a.Version = imageTag(containers[0].Image)
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

// imageTag returns the tag of an image.
func imageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, version, ok := strings.Cut(path.Base(image), ":")
	if !ok {
		return "-"
	}
	return version
}

// expectedAddOns returns the add-ons according to the saved state.
func (s *Session) expectedAddOns() []AddOn {
	c := s.Env.Cluster
	out := []AddOn{{Name: "coredns", Version: "v" + s.Env.Release.CoreDNS, Ready: -1, Wanted: -1}}
	if c.Spec.Kubernetes.ProxyMode != "none" {
		out = append(out, AddOn{Name: "kube-proxy", Version: c.Spec.Kubernetes.Version, Ready: -1, Wanted: -1})
	}
	if c.Spec.Network.Plugin == "flannel" {
		out = append(out, AddOn{Name: "kube-flannel", Version: "v" + s.Env.Release.Flannel, Ready: -1, Wanted: -1})
	}
	return out
}
