package history_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/history"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/records"
)

// errReduced is the error of a record that retention may have shortened.
var errReduced = errors.New("the record is not complete")

// A past has the records of the operations of one cluster. Its other records panic.
type past struct {
	records.Backend
	saved *v1alpha1.Cluster // nil if the cluster is not saved
	ops   []pastOperation   // newest first
}

// ClusterFiles has no files.
func (p past) ClusterFiles() records.ClusterFiles { return noFiles{} }

type noFiles struct{ records.ClusterFiles }

func (noFiles) Load(context.Context, string, string) ([]byte, error) { return nil, nil }

type pastOperation struct {
	v1alpha1.Operation
	planned *v1alpha1.Cluster
	events  []event.Event
	need    operation.Need
}

// reduce returns the records that retention must leave.
func (p past) reduce() past {
	ops, _ := pastOperations{Operations: nil, past: p}.List(context.Background(), "")
	needs := operation.NeedsOf(ops)
	out := past{saved: p.saved}
	for i, o := range p.ops {
		if o.need = needs[i]; o.need > operation.NeedsNothing {
			out.ops = append(out.ops, o)
		}
	}
	return out
}

func (p past) find(id string) *pastOperation {
	i := slices.IndexFunc(p.ops, func(o pastOperation) bool { return o.Name == id })
	return &p.ops[i]
}

func (p past) Operations() records.Operations { return pastOperations{past: p} }
func (p past) Journals() records.Journals     { return pastJournals{past: p} }
func (p past) Clusters() records.Clusters     { return pastClusters{past: p} }

type pastOperations struct {
	records.Operations
	past past
}

func (p pastOperations) List(context.Context, string) (out []v1alpha1.Operation, err error) {
	for _, o := range p.past.ops {
		out = append(out, o.Operation)
	}
	return out, nil
}

func (p pastOperations) LoadPlannedCluster(_ context.Context, id string) (*v1alpha1.Cluster, error) {
	return p.past.find(id).planned.DeepCopy(), nil
}

type pastJournals struct {
	records.Journals
	past past
}

func (p pastJournals) ReadEvents(_ context.Context, id string, fn func(event.Event) error) error {
	o := p.past.find(id)
	if o.need < operation.NeedsJournal && o.Status.StartTime != nil { // otherwise the journal has only an end
		return errReduced
	}
	for _, e := range o.events {
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

type pastClusters struct {
	records.Clusters
	past past
}

func (p pastClusters) Load(context.Context, string) (*v1alpha1.Cluster, error) {
	if p.past.saved == nil {
		return nil, records.ErrNotFound
	}
	return p.past.saved.DeepCopy(), nil
}

// newPast returns a random past. Each operation has another plan, with the version of that time.
func newPast(random *rand.Rand) (p past) {
	minor, exists := 30, false
	allTasks := []string{"reset.runtime", "upgrade.uncordon", etcdbackup.StepSwap, etcdbackup.StepReached, "leave.member", "join.node"}
	states := []v1alpha1.OperationState{
		v1alpha1.OperationSucceeded, v1alpha1.OperationSucceeded, v1alpha1.OperationFailed, v1alpha1.OperationCancelled,
		v1alpha1.OperationRunning,
	}
	waiting := []v1alpha1.OperationState{
		v1alpha1.OperationPending, v1alpha1.OperationPlanning, v1alpha1.OperationAwaitingApproval, v1alpha1.OperationFailed,
		v1alpha1.OperationSuperseded, v1alpha1.OperationSucceeded,
	}
	for i := range 1 + random.IntN(14) {
		var o pastOperation
		kinds := slices.DeleteFunc(operation.Kinds(), func(k operation.Kind) bool { return !exists && k.NeedsCluster() })
		kind := kinds[random.IntN(len(kinds))]
		o.Name, o.Spec.Kind, o.need = fmt.Sprintf("op%02d", i), string(kind), operation.NeedsJournal
		o.Status.State = states[random.IntN(len(states))]
		if begun := random.IntN(8) > 0 || o.Status.State == v1alpha1.OperationSucceeded; begun {
			o.Status.StartTime = &metav1.Time{}
		} else {
			o.Status.State = []v1alpha1.OperationState{v1alpha1.OperationFailed, v1alpha1.OperationPending}[random.IntN(2)]
			if o.Status.Plan = (&v1alpha1.PlanStatus{Digest: "sha256:1"}); random.IntN(3) == 0 { // only requested
				o.Status.Plan = nil
				o.Status.State = waiting[random.IntN(len(waiting))]
			}
		}
		planned := minor
		if operation.IsUpgrade(&o.Operation) {
			planned++
		}
		if o.Status.State == v1alpha1.OperationSucceeded && o.Status.StartTime != nil {
			minor, exists = planned, (exists || kind.CreatesCluster()) && !kind.RemovesCluster()
		}
		host := fmt.Sprintf("h%d", random.IntN(4))
		switch kind {
		case operation.RotateCA:
			o.Spec.Parameters.Rotates = map[string]string{[]string{"etcd", "cluster"}[random.IntN(2)]: "id"}
		case operation.ForgetNodes:
			o.Spec.Parameters.Nodes = []string{host}
		}
		o.planned = &v1alpha1.Cluster{}
		o.planned.Spec.Kubernetes.Version = fmt.Sprintf("v1.%d.0", planned)
		for n := range 4 {
			h := v1alpha1.Host{Name: fmt.Sprintf("h%d", n), Address: fmt.Sprintf("198.18.%d.%d", i, n)}
			o.planned.Spec.Hosts = append(o.planned.Spec.Hosts, h)
		}
		o.events = append(o.events, event.Event{Type: event.OperationStarted})
		tasks := allTasks
		if !kind.Resumable() {
			tasks = allTasks[2:] // it leaves no node out of service
		}
		for range random.IntN(4) {
			task := tasks[random.IntN(len(tasks))]
			o.events = append(o.events, event.Event{Type: event.StepStarted, Task: task, Host: host})
			if random.IntN(2) == 0 {
				o.events = append(o.events, event.Event{Type: event.StepFinished, Task: task, Host: host, Outcome: event.Changed})
			}
		}
		if o.Status.StartTime == nil {
			o.events = nil
		}
		p.ops = slices.Insert(p.ops, 0, o)
	}
	p.saved = &v1alpha1.Cluster{}
	p.saved.Name, p.saved.Status.Phase = "prod", v1alpha1.PhaseRunning
	p.saved.Status.Operation = "before"
	for _, o := range p.ops {
		if o.Status.StartTime != nil || o.Status.Plan != nil && o.Status.State == v1alpha1.OperationPending && random.IntN(2) == 0 {
			p.saved.Status.Operation = o.Name // saved before the start
			break
		}
	}
	p.saved.Status.Version = fmt.Sprintf("v1.%d.0", minor)
	p.saved.Spec.Kubernetes.Version = p.saved.Status.Version
	if !exists {
		p.saved = nil
	}
	return p
}

// readAll returns the results of all readers of the past, as far as an operation uses them.
func readAll(t *testing.T, p past) map[string]any {
	t.Helper()
	ctx, h, out := t.Context(), history.History{View: &savedstate.View{Records: p}}, map[string]any{}
	put := func(name string, v any, err error) {
		var list diag.List
		switch {
		case errors.As(err, &list):
			out[name] = list[0].ID
		case err != nil:
			out[name] = err.Error()
		default:
			out[name] = v
		}
	}
	nameOf := func(o *v1alpha1.Operation) string {
		if o == nil {
			return ""
		}
		done, begun, err := h.Steps(ctx, o.Name)
		put("steps of "+o.Name, []any{done, begun}, err)
		return o.Name
	}
	unfinished, err := h.Unfinished(ctx, "prod")
	if put("unfinished", "", err); err == nil {
		out["unfinished"] = nameOf(unfinished)
		if operation.IsUpgrade(unfinished) {
			c, err := h.ClusterBeforeUpgrade(ctx, "prod", p.find(unfinished.Name).planned.Spec.Kubernetes.Version)
			put("before the upgrade", c, err)
		}
	}
	attempts, err := h.EarlierAttempts(ctx, "prod")
	put("attempts", []any{attempts.Done, attempts.Begun, attempts.Touched}, err)
	upgrade, err := h.LatestUpgrade(ctx, "prod")
	put("latest upgrade", nameOf(upgrade), err)
	swap, err := h.UnfinishedEtcdSwap(ctx, "prod")
	put("etcd swap", nameOf(swap), err)
	ops, _ := p.Operations().List(ctx, "prod")
	var rotations []string
	for _, o := range operation.UnfinishedRotations(ops) {
		rotations = append(rotations, nameOf(o))
	}
	out["rotations"] = strings.Join(rotations, " ")
	n, err := h.CountEtcdReplacements(ctx, "prod", nil)
	put("etcd replacements", n, err)
	if p.saved == nil {
		return out
	}
	before, err := h.DescriptionBefore(ctx, "prod")
	put("description before", before, err)
	since, err := h.DescriptionsSince(ctx, p.saved)
	put("descriptions since", since, err)
	nodes, err := h.NodesBetweenRuntimes(ctx, "prod")
	put("nodes between runtimes", slices.Sorted(slices.Values(nodes)), err)
	put("during an upgrade", "", h.RefuseDuringUpgrade(ctx, p.saved))
	return out
}

// TestNeedsOf_LeavesWhatHistoryReads compares the results of all readers before and after everything
// was removed that is not needed, for random pasts.
func TestNeedsOf_LeavesWhatHistoryReads(t *testing.T) {
	const pasts = 4_000
	removed := 0
	for seed := range uint64(pasts) {
		p := newPast(rand.New(rand.NewPCG(seed, 1)))
		left := p.reduce()
		removed += len(p.ops) - len(left.ops)
		want, got := readAll(t, p), readAll(t, left)
		for name := range maps.Keys(want) {
			if _, both := got[name]; !both && strings.HasPrefix(name, "steps of ") {
				delete(want, name) // of an operation that is not read
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			for i, o := range p.ops {
				ops, _ := p.Operations().List(t.Context(), "")
				t.Logf("%s %s %s begun=%t need=%d", o.Name, o.Spec.Kind, o.Status.State, o.Status.StartTime != nil, operation.NeedsOf(ops)[i])
			}
			t.Fatalf("seed %d: after retention (-want +got):\n%s", seed, d)
		}
	}
	if removed < pasts {
		t.Errorf("%d operations of %d pasts were removed: the test compares too little", removed, pasts)
	}
}
