package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
)

// Nodes is a client for nodes.
type Nodes struct{ *connection }

// Node annotations that list Slipway's labels and taints, so that a label that is removed
// from the cluster file is removed from the node while other labels are kept.
const (
	LabelsAnnotation = "slipway.dev/labels" // keys: "a,b"
	TaintsAnnotation = "slipway.dev/taints" // keys and effects: "a:NoSchedule"
)

// NodeState is a summary of a node.
type NodeState struct {
	Name  string
	Ready bool
	// Message is the reason why it is not ready.
	Message string
	// Reported is the time of its kubelet's report, in whole seconds of the host's
	// clock.
	Reported      time.Time
	MachineID     string
	InternalIP    string // the first, if there are two
	Version       string // the kubelet's
	Labels        map[string]string
	Taints        []v1alpha1.Taint
	Unschedulable bool
}

// HasStaleTaint reports whether the cluster still keeps pods away from a node that may be
// Ready: it removes the taint a moment later. The taint that evicts pods may remain for
// some seconds more; pods tolerate that one for five minutes.
func (s NodeState) HasStaleTaint() bool {
	return slices.ContainsFunc(s.Taints, func(t v1alpha1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady && t.Effect == string(corev1.TaintEffectNoSchedule)
	})
}

// NodeStateOf reads a node.
func NodeStateOf(n *corev1.Node) NodeState {
	s := NodeState{
		Name: n.Name, MachineID: n.Status.NodeInfo.MachineID, Version: n.Status.NodeInfo.KubeletVersion,
		Labels: n.Labels, Unschedulable: n.Spec.Unschedulable,
		Message: "its kubelet has not reported yet",
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			s.Ready = c.Status == corev1.ConditionTrue
			s.Message, s.Reported = c.Message, c.LastHeartbeatTime.Time
		}
	}
	if s.Ready {
		s.Message = ""
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && s.InternalIP == "" {
			s.InternalIP = a.Address
		}
	}
	for _, t := range n.Spec.Taints {
		s.Taints = append(s.Taints, v1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return s
}

// ReadySince reports whether the node is ready according to a report of its kubelet after
// the kubelet was started. An older report is from the previous kubelet process, and the
// new process may first report that it is not ready.
func (s NodeState) ReadySince(started time.Time) bool {
	return s.Ready && !s.Reported.Before(started.Truncate(time.Second))
}

// List returns all nodes of the cluster, sorted by name.
func (c Nodes) List(ctx context.Context) ([]corev1.Node, error) {
	list, err := c.dynamic.Resource(nodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", c.describeError(err))
	}
	out := make([]corev1.Node, len(list.Items))
	for i := range list.Items {
		if err := fromUnstructured(&list.Items[i], &out[i]); err != nil {
			return nil, fmt.Errorf("reading node %s: %w", list.Items[i].GetName(), err)
		}
	}
	slices.SortFunc(out, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Get returns a node, nil without an error if it does not exist.
func (c Nodes) Get(ctx context.Context, name string) (*corev1.Node, error) {
	u, err := c.dynamic.Resource(nodes).Get(ctx, name, metav1.GetOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, c.describeError(err))
	}
	n := &corev1.Node{}
	if err := fromUnstructured(u, n); err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return n, nil
}

// NodeWant is the wanted state of a node from the cluster file.
type NodeWant struct {
	Labels map[string]string
	Taints []v1alpha1.Taint
	// Marks are additional labels of kubeadm. They are not listed in the annotation:
	// kubeadm created them, and they stay as long as the node exists.
	Marks []string
	// OwnedLabels (keys) and OwnedTaints ("key:effect") belong to Slipway in addition to
	// those listed on the node: they are removed if they are not wanted. An example is
	// the taint that kubeadm sets on every control plane.
	OwnedLabels []string
	OwnedTaints []string
}

// Patch sets a node's labels and taints as wanted, and returns the changes, one line
// each. It keeps labels and taints of others. It waits for a node that has just joined.
func (c Nodes) Patch(ctx context.Context, name string, want NodeWant) ([]string, error) {
	var changes []string
	err := c.waitUntil(ctx, func(ctx context.Context) (string, error) {
		n, err := c.Get(ctx, name)
		if err != nil {
			return "", err
		}
		if n == nil {
			return "the cluster has no such node yet", nil // its kubelet registers it soon
		}
		var patch []byte
		patch, changes = NodeDiff(n, want)
		if patch == nil {
			return "", nil
		}
		_, err = c.dynamic.Resource(nodes).Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: FieldManager})
		return "", err
	})
	if err != nil {
		return nil, fmt.Errorf("changing labels and taints of node %s: %w", name, err)
	}
	return changes, nil
}

// NodeDiff compares a node with its wanted state. It returns a JSON merge patch, nil if
// there is nothing to change, and the changes, one line each, sorted.
func NodeDiff(n *corev1.Node, want NodeWant) (patch []byte, changes []string) {
	labels, said := diffLabels(n, want)
	changes = append(changes, said...)
	taints, taintsChanged, said := diffTaints(n, want)
	changes = append(changes, said...)

	notes := map[string]any{}
	record := func(annotation string, keys []string) {
		slices.Sort(keys)
		now := strings.Join(keys, ",")
		if was, had := n.Annotations[annotation]; was == now && (had || now == "") {
			return
		}
		if now == "" {
			notes[annotation] = nil
			changes = append(changes, "remove annotation "+annotation)
			return
		}
		notes[annotation] = now
		changes = append(changes, "annotation "+annotation+"="+now)
	}
	record(LabelsAnnotation, slices.Collect(maps.Keys(want.Labels)))
	var ids []string
	for _, t := range want.Taints {
		ids = append(ids, taintID(t.Key, t.Effect))
	}
	record(TaintsAnnotation, ids)

	spec := map[string]any{}
	if IsCordoned(n) {
		// The node was to be removed but remains.
		notes[LeavingAnnotation], spec["unschedulable"] = nil, nil
		changes = append(changes, "uncordon")
	}
	if len(changes) == 0 {
		return nil, nil
	}
	metadata := map[string]any{}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if len(notes) > 0 {
		metadata["annotations"] = notes
	}
	body := map[string]any{"metadata": metadata}
	if taintsChanged {
		// The patch replaces the whole list, and controllers change it too: so the
		// patch is valid only for the node version that was read.
		metadata["resourceVersion"] = n.ResourceVersion
		spec["taints"] = taints
	}
	if len(spec) > 0 {
		body["spec"] = spec
	}
	patch, err := json.Marshal(body)
	if err != nil { // strings, maps and taints always encode
		return nil, nil
	}
	return patch, changes
}

func diffLabels(n *corev1.Node, want NodeWant) (map[string]any, []string) {
	set := map[string]any{}
	var said []string
	for _, key := range slices.Sorted(maps.Keys(want.Labels)) {
		value := want.Labels[key]
		was, had := n.Labels[key]
		switch {
		case had && was == value:
			continue
		case had:
			said = append(said, fmt.Sprintf("label %s=%s (was %s)", key, value, was))
		default:
			said = append(said, fmt.Sprintf("label %s=%s", key, value))
		}
		set[key] = value
	}
	for _, key := range want.Marks {
		if _, had := n.Labels[key]; !had {
			set[key] = ""
			said = append(said, "label "+key)
		}
	}
	for _, key := range mergeAnnotation(n, LabelsAnnotation, want.OwnedLabels) {
		_, wanted := want.Labels[key]
		if was, had := n.Labels[key]; had && !wanted {
			set[key] = nil
			said = append(said, fmt.Sprintf("remove label %s=%s", key, was))
		}
	}
	return set, said
}

// diffTaints returns the complete wanted list of taints, and whether it differs.
func diffTaints(n *corev1.Node, want NodeWant) ([]corev1.Taint, bool, []string) {
	wanted := map[string]v1alpha1.Taint{}
	for _, t := range want.Taints {
		wanted[taintID(t.Key, t.Effect)] = t
	}
	owned := mergeAnnotation(n, TaintsAnnotation, want.OwnedTaints)
	var out []corev1.Taint
	var said []string
	seen := map[string]bool{}
	for _, t := range n.Spec.Taints {
		id := taintID(t.Key, string(t.Effect))
		w, is := wanted[id]
		switch {
		case is && w.Value != t.Value:
			said = append(said, "taint "+taintText(w)+" (was "+t.ToString()+")")
			t.Value, t.TimeAdded = w.Value, nil
		case !is && slices.Contains(owned, id):
			said = append(said, "remove taint "+t.ToString())
			continue
		}
		seen[id] = true
		out = append(out, t)
	}
	for _, t := range want.Taints {
		if id := taintID(t.Key, t.Effect); !seen[id] {
			seen[id] = true
			out = append(out, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
			said = append(said, "taint "+taintText(t))
		}
	}
	return out, len(said) > 0, said
}

// mergeAnnotation returns the items of an annotation and more, sorted, each once.
func mergeAnnotation(n *corev1.Node, annotation string, more []string) []string {
	out := slices.Clone(more)
	if s := n.Annotations[annotation]; s != "" {
		out = append(out, strings.Split(s, ",")...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func taintID(key, effect string) string { return key + ":" + effect }

func taintText(t v1alpha1.Taint) string {
	ct := corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)}
	return ct.ToString()
}

// SameMachine reports whether a node is the machine with this id. It returns true if one of
// the two ids is unknown.
func SameMachine(n *corev1.Node, machineID string) bool {
	id := n.Status.NodeInfo.MachineID
	return id == "" || machineID == "" || id == machineID
}

// WaitReady waits until the node exists and its kubelet has reported Ready since it was
// started. progress, which may be nil, is called with what is still missing, once for each
// change. Only ctx limits the time; the error then has what the node lacks.
func (c Nodes) WaitReady(ctx context.Context, name string, started time.Time, progress func(string)) error {
	err := c.waitUntil(ctx, withProgress(progress, func(ctx context.Context) (string, error) {
		n, err := c.Get(ctx, name)
		switch {
		case err != nil:
			return "", err
		case n == nil:
			return "the node has not registered", nil
		}
		switch st := NodeStateOf(n); {
		case !st.Ready:
			return "the node is not Ready: " + st.Message, nil
		case !st.ReadySince(started):
			return "the kubelet has not reported since it was started", nil
		case st.HasStaleTaint():
			return "the node still has the not-ready taint", nil
		}
		return "", nil
	}))
	if err != nil {
		return fmt.Errorf("waiting for node %s to be Ready: %w", name, err)
	}
	return nil
}

// Delete deletes a node. A missing node is not an error.
func (c Nodes) Delete(ctx context.Context, name string) error {
	err := c.dynamic.Resource(nodes).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, c.describeError(err))
	}
	return nil
}
