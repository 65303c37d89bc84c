package lifecycle

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/recordstest"
)

// eventsIn is the part of the writes of events that fail, because there are many: one in this
// number. All other writes fail.
const eventsIn = 16

// A faultTest makes each write of an operation fail in turn, as a request to an API server can.
type faultTest struct {
	kind string // of the operation
	// before prepares a world.
	before  func(*world)
	request func(*world) Request
	// between, if it is not nil, checks a world after the fault.
	between func(w *world)
	// after checks a world in which the operation has finished after a fault.
	after func(w, undisturbed *world)
	// share returns a function that opens new records, in memory if it is nil, as a new process
	// does. kill ends the process.
	share func(t *testing.T) (open func() (b records.Backend, kill func()))
	// oneIn is the part of the writes that fail, unless it is 0.
	oneIn int
}

// inMemory shares records in memory.
func inMemory(t *testing.T) func() (records.Backend, func()) {
	m := recordstest.NewMemory(t)
	return func() (records.Backend, func()) {
		p := m.Open()
		return p, p.Kill
	}
}

// run ends the process after each fault. The user then resumes the operation, or repeats it.
func (ft faultTest) run(t *testing.T) {
	start := func(t *testing.T, f *recordstest.Faults) (w *world, kill func()) {
		w = newWorld(t, "cp1", "w1")
		share := ft.share
		if share == nil {
			share = inMemory
		}
		open := share(t)
		afresh := func() records.Backend {
			b, kill := open()
			t.Cleanup(kill)
			return b
		}
		w.open = afresh
		ft.before(w)
		process, killProcess := open()
		w.open = func() records.Backend { return f.Wrap(process) }
		return w, func() {
			killProcess()
			w.open = afresh
		}
	}
	counted := recordstest.NewFaults(0, recordstest.Before)
	undisturbed, _ := start(t, counted)
	undisturbed.do(ft.request(undisturbed), event.Succeeded)
	seen := map[int]int{} // writes by the part of them that fails
	for i, write := range counted.Writes() {
		every := max(oneIn, ft.oneIn)
		if write == "Journal.Append" || write == "Journal.Sync" {
			every *= eventsIn
		}
		for _, kind := range []recordstest.Kind{recordstest.Before, recordstest.After, recordstest.Since} {
			if seen[every]++; seen[every]%every > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%03d %s %s", i+1, kind, write), func(t *testing.T) {
				t.Parallel()
				f := recordstest.NewFaults(i+1, kind)
				w, kill := start(t, f)
				w.doWithFault(ft.request(w), write)
				kill()
				if ft.between != nil {
					ft.between(w)
				}
				ft.finish(w)
				w.wantNoRepeatedSteps()
				w.wantNoLocks()
				ft.after(w, undisturbed)
			})
		}
	}
}

// doWithFault applies a request and checks that the fault of a write is reported. One fault is only
// logged: a saved process that no longer has the lock on hosts harms nothing.
func (w *world) doWithFault(r Request, write string) {
	w.t.Helper()
	p, err := w.service().Prepare(w.t.Context(), r, nil)
	if err != nil {
		return
	}
	res, err := p.Apply(w.t.Context())
	err = errors.Join(err, p.Close())
	if err == nil && res.Outcome == event.Succeeded && write != "Locks.EndHold" {
		w.t.Errorf("the fault of %s is not reported", write)
	}
}

// finish does what a user does after an error: it resumes the operation, or repeats the request
// if there is nothing to resume and the cluster is not as wanted.
func (ft faultTest) finish(w *world) {
	w.t.Helper()
	p, err := w.service().PrepareResume(w.t.Context(), resuming(), nil)
	var refused diag.List
	if errors.Is(err, savedstate.ErrNotFound) || errors.As(err, &refused) && refused[0].ID == idNothingUnfinished {
		phase, ops := w.status()
		if len(ops) > 0 && ops[0] == ft.kind+" Succeeded" && (phase == v1alpha1.PhaseRunning || phase == "") {
			return
		}
		p, err = w.service().Prepare(w.t.Context(), ft.request(w), nil)
	}
	w.apply(w.prepared(p, err), event.Succeeded)
	if _, ops := w.status(); ops[0] != ft.kind+" Succeeded" {
		w.t.Errorf("operations %v", ops)
	}
	if unreleased, err := w.records().Locks().ListUnreleased(w.t.Context(), "prod"); len(unreleased) > 0 || err != nil {
		w.t.Errorf("processes %v have not released the lock on hosts, %v", unreleased, err)
	}
}

// repeatable are the steps that a resume can apply again, with the reason.
var repeatable = map[string]string{
	"kubernetes.kubelet": "the check of the unit finds that kubeadm has stopped it",
	"join.token":         "the token of the first attempt was deleted at its end",
	"join.preflight":     "it changes nothing, and must hold when the host joins",
	"reset.kubernetes":   "it removes what the first attempt has left",
}

// wantNoRepeatedSteps checks that no attempt has changed what an earlier attempt of the operation
// had changed.
func (w *world) wantNoRepeatedSteps() {
	w.t.Helper()
	ops, err := w.records().Operations().List(w.t.Context(), "prod")
	if err != nil || len(ops) == 0 {
		w.t.Fatalf("operations %v, %v", ops, err)
	}
	changed := map[string]bool{}
	err = w.records().Journals().ReadEvents(w.t.Context(), ops[0].Name, func(e event.Event) error {
		step := e.Task + "@" + e.Host
		if e.Type != event.StepFinished || e.Outcome != event.Changed {
			return nil
		}
		if changed[step] && repeatable[e.Task] == "" {
			w.t.Errorf("step %s has changed something twice: %v", step, e.Changes)
		}
		changed[step] = true
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
}

// wantNoEarlySuccess checks that neither the records nor the journal report the success of a delete
// while the cluster is still saved.
func (w *world) wantNoEarlySuccess() {
	w.t.Helper()
	saved, err := w.records().Clusters().List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	ops, err := w.records().Operations().List(w.t.Context(), "prod")
	if err != nil {
		w.t.Fatal(err)
	}
	if len(ops) == 0 || ops[0].Spec.Kind != "delete" {
		return
	}
	if len(saved) == 0 {
		if ops[0].Status.Reason == reasonRemoving { // then the machines may no longer exist
			for _, m := range w.Hosts {
				m.Down = errDown
			}
		}
		return
	}
	if ops[0].Status.State == v1alpha1.OperationSucceeded {
		w.t.Error("the delete is recorded as succeeded, but the cluster is still saved")
	}
	err = w.records().Journals().ReadEvents(w.t.Context(), ops[0].Name, func(e event.Event) error {
		if e.Type == event.OperationFinished && e.Outcome == event.Succeeded {
			w.t.Error("the journal reports the success of the delete, but the cluster is still saved")
		}
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
}

func (w *world) wantNoLocks() {
	w.t.Helper()
	if holder, err := w.records().Locks().Holder(w.t.Context(), "prod"); holder != nil || err != nil {
		w.t.Errorf("the lock of the cluster is held by %v, %v", holder, err)
	}
	for name, m := range w.Hosts {
		if m.Lock.Held {
			w.t.Errorf("%s still holds the lock", name)
		}
	}
}

// sameRecords checks that the saved cluster is as after the undisturbed run, except for times
// and ids.
func (w *world) sameRecords(undisturbed *world) {
	w.t.Helper()
	type saved struct {
		Cluster *v1alpha1.Cluster
		Source  *records.Source
		Kept    []byte
	}
	load := func(b records.Backend) (s saved) {
		var errs [3]error
		s.Cluster, errs[0] = b.Clusters().Load(w.t.Context(), "prod")
		s.Source, errs[1] = b.Clusters().LoadSource(w.t.Context(), "prod")
		s.Kept, errs[2] = b.Clusters().LoadKeptSource(w.t.Context(), "prod")
		if err := errors.Join(errs[:]...); err != nil {
			w.t.Fatal(err)
		}
		return s
	}
	ignored := cmp.Options{
		cmpopts.IgnoreFields(v1alpha1.ClusterStatus{}, "Operation"),
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".LastTransitionTime" }, cmp.Ignore()),
	}
	if d := cmp.Diff(load(undisturbed.records()), load(w.records()), ignored); d != "" {
		w.t.Errorf("the saved cluster differs from the undisturbed run (-want +got):\n%s", d)
	}
}

// fromFile adds a cluster file to a subject.
func fromFile(c *v1alpha1.Cluster, text string) Subject {
	return Subject{Cluster: c, Source: []byte(text), File: "/prod.yaml"}
}

// firstFile is the text of the first cluster file.
const firstFile = "# first"

func (w *world) createFromFile() {
	w.do(CreateRequest{Subject: fromFile(w.Manifest(), firstFile)}, event.Succeeded)
}

// faultsOfCreate makes the writes of a create fail.
func faultsOfCreate() faultTest {
	return faultTest{
		kind:    "create",
		before:  func(*world) {},
		request: func(w *world) Request { return CreateRequest{Subject: fromFile(w.Manifest(), firstFile)} },
		after: func(w, undisturbed *world) {
			w.whole()
			w.same(undisturbed)
			w.sameRecords(undisturbed)
		},
	}
}

func TestCreate_FinishesAfterFaultOfAnyWrite(t *testing.T) { faultsOfCreate().run(t) }

func TestApply_FinishesAfterFaultOfAnyWrite(t *testing.T) {
	faultTest{
		kind:    "apply",
		before:  (*world).createFromFile,
		request: func(w *world) Request { return ApplyRequest{Subject: fromFile(w.changed(), "# second")} },
		after: func(w, undisturbed *world) {
			w.same(undisturbed)
			w.sameRecords(undisturbed)
		},
	}.run(t)
}

// faultsOfDelete makes the writes of a delete fail.
func faultsOfDelete() faultTest {
	return faultTest{
		kind:    "delete",
		before:  (*world).createFromFile,
		request: func(*world) Request { return DeleteRequest{Subject: Subject{Name: "prod"}} },
		between: (*world).wantNoEarlySuccess,
		after: func(w, _ *world) {
			w.bare()
			w.wantPhase("")
			if names, err := w.records().Clusters().List(w.t.Context()); len(names) > 0 || err != nil {
				w.t.Errorf("clusters %v are still saved, %v", names, err)
			}
		},
	}
}

func TestDelete_FinishesAfterFaultOfAnyWrite(t *testing.T) { faultsOfDelete().run(t) }
