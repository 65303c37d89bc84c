package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
)

// requestFor returns the request for an operation of a kind on a cluster.
func requestFor(cluster, kind string) v1alpha1.OperationSpec {
	return v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: cluster}, Kind: kind}
}

func beginOperation(t *testing.T, s Subject, cluster string, at time.Time) *v1alpha1.Operation {
	t.Helper()
	o, err := s.Operations().Create(t.Context(), at, requestFor(cluster, "create"), &plan.Plan{Cluster: cluster, Digest: "sha256:1"})
	requireNoError(t, err)
	return o
}

// testOrder: a resume uses the latest operation, independent of the clock.
func testOrder(t *testing.T, s Subject) {
	var made []string
	for _, o := range []struct {
		kind string
		at   time.Time
	}{
		{"create", began},
		{"apply", began}, // sorts before "create"
		{"apply", began.Add(900 * time.Millisecond)},
		{"delete", began.Add(-time.Hour)}, // the clock was set back
		{"create", began.Add(time.Minute)},
	} {
		op, err := s.Operations().Create(t.Context(), o.at, requestFor("prod", o.kind), new(plan.Plan))
		requireNoError(t, err)
		made = append([]string{op.Name}, made...)
		if !op.CreationTimestamp.Time.Equal(o.at) {
			t.Errorf("operation %s says that it was made at %s, not at %s", op.Name, op.CreationTimestamp, o.at)
		}
	}
	got, err := s.Again().Operations().List(t.Context(), "prod")
	requireNoError(t, err)
	if d := cmp.Diff(made, listIDs(got)); d != "" {
		t.Errorf("operations, newest first (-made +got):\n%s", d)
	}
}

// testUpdate changes an operation from its current state.
func testUpdate(t *testing.T, s Subject, id string) {
	t.Helper()
	refused := errors.New("refused")
	err := s.Operations().Update(t.Context(), id, func(now *v1alpha1.Operation) error {
		now.Status.State = v1alpha1.OperationFailed
		return refused
	})
	wantErr(t, "a refused change", err, refused)
	requireNoError(t, s.Operations().Update(t.Context(), id, func(now *v1alpha1.Operation) error {
		if now.Status.State != v1alpha1.OperationPending {
			t.Errorf("state %q after a refused change", now.Status.State)
		}
		now.Status.State, now.Status.Message = v1alpha1.OperationRunning, "it runs"
		return nil
	}))
	o, err := s.Again().Operations().Load(t.Context(), id)
	requireNoError(t, err)
	if o.Status.State != v1alpha1.OperationRunning || o.Status.Message != "it runs" {
		t.Errorf("status %+v after a change", o.Status)
	}
	err = s.Operations().Update(t.Context(), "20261120-181502-create-zzzz", func(*v1alpha1.Operation) error { return nil })
	wantErr(t, "an unknown id", err, records.ErrNotFound)
}

func testOperations(t *testing.T, s Subject) {
	first := beginOperation(t, s, "prod", began)
	second := beginOperation(t, s, "prod", began.Add(time.Minute))
	other := beginOperation(t, s, "lab", began.Add(2*time.Minute))
	if want := regexp.MustCompile(`^20261120-181502-create-[a-z0-9]{4}$`); !want.MatchString(first.Name) {
		t.Errorf("id %q, want %s", first.Name, want)
	}
	if first.Status.State != v1alpha1.OperationPending {
		t.Errorf("state %q at the start", first.Status.State)
	}
	if d := cmp.Diff(&v1alpha1.PlanStatus{Digest: "sha256:1", Summary: "0 tasks"}, first.Status.Plan); d != "" {
		t.Errorf("its plan (-want +got):\n%s", d)
	}
	got, err := s.Again().Operations().List(t.Context(), "prod")
	requireNoError(t, err)
	if d := cmp.Diff([]string{second.Name, first.Name}, listIDs(got)); d != "" {
		t.Errorf("operations of prod, newest first (-want +got):\n%s", d)
	}
	got, err = s.Operations().List(t.Context(), "")
	requireNoError(t, err)
	if d := cmp.Diff([]string{other.Name, second.Name, first.Name}, listIDs(got)); d != "" {
		t.Errorf("operations of all (-want +got):\n%s", d)
	}

	first.Status.State = v1alpha1.OperationSucceeded
	requireNoError(t, s.Operations().Save(t.Context(), first))
	back, err := s.Again().Operations().Find(t.Context(), "20261120-181502")
	requireNoError(t, err)
	if back.Name != first.Name || back.Status.State != v1alpha1.OperationSucceeded {
		t.Errorf("found %s in state %s", back.Name, back.Status.State)
	}
	testUpdate(t, s, second.Name)
	p, err := s.Operations().LoadPlan(t.Context(), first.Name)
	requireNoError(t, err)
	if p.Digest != "sha256:1" || p.Cluster != "prod" {
		t.Errorf("plan %+v", p)
	}
	_, err = s.Operations().Find(t.Context(), "2025")
	wantErr(t, "an unknown prefix", err, records.ErrNotFound)
	var many *records.AmbiguousError
	if _, err = s.Operations().Find(t.Context(), "2026"); !errors.As(err, &many) || len(many.IDs) != 3 {
		t.Errorf("an ambiguous prefix: %v", err)
	}
	if _, err := s.Operations().Find(t.Context(), first.Name); err != nil {
		t.Errorf("a whole id: %v", err)
	}
	_, err = s.Operations().Load(t.Context(), "20261120-181502-create-zzzz")
	wantErr(t, "an unknown id", err, records.ErrNotFound)

	requireNoError(t, s.Clusters().Remove(t.Context(), "prod"))
	got, err = s.Operations().List(t.Context(), "prod")
	requireNoError(t, err)
	if len(got) != 2 {
		t.Errorf("%d operations after the cluster's removal: want the history to stay", len(got))
	}
	_, err = s.Again().Operations().LoadPlan(t.Context(), first.Name)
	requireNoError(t, err)
}

// testSavedPlans replaces the plan of an operation that waits for an approval.
func testSavedPlans(t *testing.T, s Subject) {
	o := beginOperation(t, s, "prod", began)
	o.Status.State = v1alpha1.OperationAwaitingApproval
	o.Spec.Parameters.Boots = map[string]string{"w1": "boot"} // planning has determined it
	requireNoError(t, s.Operations().SavePlan(t.Context(), o, &plan.Plan{Cluster: "prod", Digest: "sha256:2"}))
	back, err := s.Again().Operations().Load(t.Context(), o.Name)
	requireNoError(t, err)
	if d := cmp.Diff(o.Spec.Parameters, back.Spec.Parameters); d != "" {
		t.Errorf("parameters (-saved +got):\n%s", d)
	}
	if back.Status.State != v1alpha1.OperationAwaitingApproval || back.Status.Plan == nil || back.Status.Plan.Digest != "sha256:2" {
		t.Errorf("status %+v: want the state and the digest of the later plan", back.Status)
	}
	p, err := s.Operations().LoadPlan(t.Context(), o.Name)
	requireNoError(t, err)
	if p.Digest != "sha256:2" {
		t.Errorf("plan %s after a later one was saved", p.Digest)
	}
	o.Name = "20261120-181502-create-zzzz"
	wantErr(t, "a plan of an unknown operation", s.Operations().SavePlan(t.Context(), o, p), records.ErrNotFound)
}

func plannedCluster(t *testing.T, s Subject) {
	want := newCluster("prod")
	text, err := json.Marshal(want)
	requireNoError(t, err)
	for _, tc := range []struct {
		name, reason, cluster string
		spec                  []byte
		ok                    bool
	}{
		{"of the plan", "it is what the operation wants", "prod", text, true},
		{"of another cluster", "a resume would change another cluster", "lab", text, false},
		{"missing", "there is nothing to return", "prod", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := s.Operations().Create(t.Context(), began, requestFor("prod", "create"), &plan.Plan{Cluster: tc.cluster, Spec: tc.spec})
			requireNoError(t, err)
			got, err := s.Again().Operations().LoadPlannedCluster(t.Context(), o.Name)
			if (err == nil) != tc.ok {
				t.Fatalf("error %v: %s", err, tc.reason)
			}
			if d := cmp.Diff(want, got); tc.ok && d != "" {
				t.Errorf("cluster (-want +got):\n%s", d)
			}
		})
	}
	_, err = s.Operations().LoadPlannedCluster(t.Context(), "20261120-181502-create-zzzz")
	wantErr(t, "the plan of an unknown id", err, records.ErrNotFound)
	_, err = s.Operations().LoadPlan(t.Context(), "../x")
	wantErr(t, "the plan of an invalid id", err, records.ErrInvalidName)
}

func readableOperations(t *testing.T, s Subject) {
	first := beginOperation(t, s, "prod", began)
	second := beginOperation(t, s, "prod", began.Add(time.Minute))
	other := beginOperation(t, s, "lab", began.Add(2*time.Minute))
	wantReadable := func(cluster string, damaged int, want ...string) {
		t.Helper()
		got, problems, err := s.Again().Operations().ListReadable(t.Context(), cluster)
		requireNoError(t, err)
		if d := cmp.Diff(want, listIDs(got)); d != "" || len(problems) != damaged {
			t.Errorf("operations of %q, with the problems %v (-want +got):\n%s", cluster, problems, d)
		}
	}
	wantReadable("prod", 0, second.Name, first.Name)
	wantReadable("", 0, other.Name, second.Name, first.Name)
	if s.Damage == nil {
		return
	}
	s.Damage(second.Name)
	wantReadable("prod", 1, first.Name)
	wantReadable("", 1, other.Name, first.Name)
	for _, cluster := range []string{"prod", ""} {
		if _, err := s.Operations().List(t.Context(), cluster); err == nil {
			t.Errorf("the operations of %q were listed without a damaged one", cluster)
		}
	}
	if _, err := s.Operations().Load(t.Context(), second.Name); err == nil || errors.Is(err, records.ErrNotFound) {
		t.Errorf("loading a damaged operation: %v", err)
	}
}

// testCancel: the holder that a request names sees it, and another holder does not.
func testCancel(t *testing.T, s Subject) {
	o := beginOperation(t, s, "prod", began)
	_, err := s.Operations().LoadCancelRequest(t.Context(), o.Name)
	wantErr(t, "a request that was never made", err, records.ErrNotFound)
	lock, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{Operation: o.Name})
	requireNoError(t, err)
	holder, err := s.Again().Locks().Holder(t.Context(), "prod")
	requireNoError(t, err)

	earlier := *holder
	earlier.Since = holder.Since.Add(-time.Minute)
	requireNoError(t, s.Operations().RequestCancel(t.Context(), o.Name, records.CancelRequest{By: *holder, Time: began, Holder: earlier}))
	gone := errors.New("gone")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
	defer cancel()
	_, err = s.Operations().WaitForCancel(ctx, o.Name, *holder, nil)
	wantErr(t, "a request to an earlier holder", err, gone)

	seen := make(chan records.CancelRequest)
	go func() {
		r, err := s.Operations().WaitForCancel(t.Context(), o.Name, *holder, nil)
		if err != nil {
			t.Error(err)
		}
		seen <- r
	}()
	want := records.CancelRequest{By: records.Holder{PID: 7, Host: "other"}, Time: began, Holder: *holder}
	requireNoError(t, s.Again().Operations().RequestCancel(t.Context(), o.Name, want))
	if d := cmp.Diff(want, <-seen); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
	saved, err := s.Again().Operations().LoadCancelRequest(t.Context(), o.Name)
	requireNoError(t, err)
	if d := cmp.Diff(want, saved); d != "" {
		t.Errorf("saved request (-want +got):\n%s", d)
	}
	requireNoError(t, lock.Release())
	wantErr(t, "a request with an invalid id", s.Operations().RequestCancel(t.Context(), "../x", want), records.ErrInvalidName)
}

func listIDs(list []v1alpha1.Operation) []string {
	var out []string
	for _, o := range list {
		out = append(out, o.Name)
	}
	return out
}

func stepEvent(task string) event.Event {
	return event.Event{Type: event.StepFinished, Task: task, Host: "w1", Outcome: event.Changed, Time: began}
}

func readEvents(t *testing.T, s Subject, id string) []event.Event {
	t.Helper()
	var out []event.Event
	requireNoError(t, s.Journals().ReadEvents(t.Context(), id, func(e event.Event) error { out = append(out, e); return nil }))
	return out
}

func testJournal(t *testing.T, s Subject) {
	o := beginOperation(t, s, "prod", began)
	if got := readEvents(t, s, o.Name); len(got) != 0 {
		t.Errorf("%d events before any", len(got))
	}
	j, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	requireNoError(t, j.Append(stepEvent("a")))
	output := event.Event{Seq: 7, Type: event.StepOutput, Message: "line\nline\u2028\x00", Time: began}
	requireNoError(t, j.Append(output))
	requireNoError(t, j.Sync())
	// Another process sees durable events, without a Close.
	want := stepEvent("a")
	want.Seq = 1
	if d := cmp.Diff([]event.Event{want, output}, readEvents(t, s.Again(), o.Name)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	requireNoError(t, j.Close())

	j, err = s.Again().Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	if j.LastSeq() != 7 {
		t.Errorf("last number %d after opening again, want 7", j.LastSeq())
	}
	requireNoError(t, j.Append(stepEvent("b")))
	requireNoError(t, j.Close())
	if got := readEvents(t, s, o.Name); len(got) != 3 || got[2].Seq != 8 {
		t.Errorf("after a resume: %+v", got)
	}
	if err := j.Append(stepEvent("c")); err == nil {
		t.Error("Append after Close: want an error")
	}

	stop := errors.New("stop")
	n := 0
	err = s.Journals().ReadEvents(t.Context(), o.Name, func(event.Event) error { n++; return stop })
	wantErr(t, "Read with a failing fn", err, stop)
	if n != 1 {
		t.Errorf("fn was called %d times after its error", n)
	}
	err = s.Journals().ReadEvents(t.Context(), "nothing", func(event.Event) error { return nil })
	wantErr(t, "reading an unknown operation", err, records.ErrNotFound)
}

// failedJournal appends an event that cannot be encoded.
func failedJournal(t *testing.T, s Subject) {
	o := beginOperation(t, s, "prod", began)
	j, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	requireNoError(t, j.Append(stepEvent("a")))
	bad := stepEvent("b")
	bad.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := j.Append(bad); err == nil {
		t.Fatal("an event of the year 10000 was appended")
	}
	if err := j.Append(stepEvent("c")); err == nil {
		t.Error("an event was appended after an error: the journal has a gap")
	}
	if j.LastSeq() != 1 {
		t.Errorf("last number %d, want 1", j.LastSeq())
	}
	if err := j.Close(); err != nil {
		t.Errorf("Close repeats the error: %v", err)
	}
	if got := readEvents(t, s.Again(), o.Name); len(got) != 1 || got[0].Task != "a" {
		t.Errorf("after the error the journal has %+v", got)
	}
}

func tornJournal(t *testing.T, s Subject) {
	for _, tc := range []struct{ name, tail, reason string }{
		{"cut", `{"seq":2,"type":"step.fin`, "the write was cut short"},
		{"whole but for the newline", `{"seq":2,"type":"note"}`, "nobody was told that it was written"},
		{"zeros", "\x00\x00\x00\x00", "the size reached the disk, the data did not"},
		{"garbage lines", "\x00\x00\n{\"seq\":\n", "blocks reached the disk out of order"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := beginOperation(t, s, "prod", began)
			j, err := s.Journals().Open(t.Context(), o.Name)
			requireNoError(t, err)
			requireNoError(t, j.Append(stepEvent("a")))
			requireNoError(t, j.Close())
			s.Tear(o.Name, tc.tail)
			if got := readEvents(t, s, o.Name); len(got) != 1 {
				t.Errorf("%d events, want 1: %s", len(got), tc.reason)
			}
			j, err = s.Journals().Open(t.Context(), o.Name)
			requireNoError(t, err)
			requireNoError(t, j.Append(stepEvent("b")))
			requireNoError(t, j.Close())
			if got := readEvents(t, s, o.Name); len(got) != 2 || got[1].Task != "b" || got[1].Seq != 2 {
				t.Errorf("after a resume: %+v", got)
			}
		})
	}
}

func damagedJournal(t *testing.T, s Subject) {
	o := beginOperation(t, s, "prod", began)
	j, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	requireNoError(t, j.Append(stepEvent("a")))
	requireNoError(t, j.Close())
	s.Tear(o.Name, "{\"seq\":\n{\"seq\":3,\"type\":\"note\"}\n")
	if err := s.Journals().ReadEvents(t.Context(), o.Name, func(event.Event) error { return nil }); err == nil {
		t.Error("reading: want an error, events are missing in the middle")
	}
	if _, err := s.Journals().Open(t.Context(), o.Name); err == nil {
		t.Error("opening: want an error, not a silent loss of what follows the damage")
	}
}

func testFollow(t *testing.T, s Subject) {
	o := beginOperation(t, s, "prod", began)
	lock, err := s.Locks().Acquire(t.Context(), "prod", records.Holder{Operation: o.Name})
	requireNoError(t, err)
	defer func() { requireNoError(t, lock.Release()) }()

	got := make(chan event.Event)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Again().Journals().FollowEvents(t.Context(), o.Name, func(e event.Event) error { got <- e; return nil })
	}()
	j, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	for _, task := range []string{"a", "b"} {
		requireNoError(t, j.Append(stepEvent(task)))
		if e := <-got; e.Task != task {
			t.Errorf("followed %q, want %q", e.Task, task)
		}
	}
	requireNoError(t, j.Append(event.Event{Type: event.OperationFinished, Outcome: event.Succeeded}))
	if e := <-got; e.Type != event.OperationFinished {
		t.Errorf("followed %q at the end", e.Type)
	}
	if err := <-ended; err != nil {
		t.Errorf("following to the end: %v", err)
	}
	requireNoError(t, j.Close())

	// An operation that is resumed has an end in its middle.
	j, err = s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	requireNoError(t, j.Append(event.Event{Type: event.OperationStarted}))
	requireNoError(t, j.Sync())
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	n := 0
	err = s.Journals().FollowEvents(ctx, o.Name, func(event.Event) error {
		if n++; n == 4 {
			cancel(gone)
		}
		return nil
	})
	wantErr(t, "following with a cancelled context", err, gone)
	requireNoError(t, j.Close())
}

func followOrphan(t *testing.T, s Subject) {
	o := beginOperation(t, s, "prod", began)
	j, err := s.Journals().Open(t.Context(), o.Name)
	requireNoError(t, err)
	requireNoError(t, j.Append(stepEvent("a")))
	requireNoError(t, j.Close())
	n := 0
	err = s.Journals().FollowEvents(t.Context(), o.Name, func(event.Event) error { n++; return nil })
	wantErr(t, "following an interrupted operation", err, records.ErrNoEnd)
	if n != 1 {
		t.Errorf("%d events, want those there are", n)
	}
}
