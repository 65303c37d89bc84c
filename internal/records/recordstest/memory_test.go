package recordstest_test

import (
	"errors"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/conformance"
	"slipway.dev/slipway/internal/records/recordstest"
)

func newSubject(m *recordstest.Memory, open func() records.Backend) conformance.Subject {
	return conformance.Subject{
		Backend: open(), Tear: m.Tear, Damage: m.Damage,
		Again: func() conformance.Subject { return newSubject(m, open) },
	}
}

func TestMemory_Conforms(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		m := recordstest.NewMemory(t)
		return newSubject(m, func() records.Backend { return m.Open() })
	})
}

func TestFaults_ConformWithoutFault(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		m, f := recordstest.NewMemory(t), recordstest.NewFaults(0, recordstest.Before)
		return newSubject(m, func() records.Backend { return f.Wrap(m.Open()) })
	})
}

func TestKill_ReleasesLocksAndLosesEvents(t *testing.T) {
	m := recordstest.NewMemory(t)
	killed, other := m.Open(), m.Open()
	id := newOperation(t, killed)
	lock, err := killed.Locks().Acquire(t.Context(), "prod", records.Holder{Operation: id})
	noError(t, err)
	otherLock, err := other.Locks().Acquire(t.Context(), "lab", records.Holder{})
	noError(t, err)
	j, err := killed.Journals().Open(t.Context(), id)
	noError(t, err)
	noError(t, j.Append(event.Event{Message: "1"}))
	noError(t, j.Sync())
	noError(t, j.Append(event.Event{Message: "2"}))
	followed := make(chan error, 1)
	go func() {
		followed <- other.Journals().FollowEvents(t.Context(), id, func(event.Event) error { return nil })
	}()

	killed.Kill()
	if err := <-followed; !errors.Is(err, records.ErrNoEnd) {
		t.Errorf("following the events ends with %v", err)
	}
	_, err = killed.Clusters().List(t.Context())
	for name, err := range map[string]error{
		"List": err, "Append": j.Append(event.Event{}), "Sync": j.Sync(), "Close": j.Close(), "Release": lock.Release(),
	} {
		if !errors.Is(err, recordstest.ErrKilled) {
			t.Errorf("%s of a killed process: %v", name, err)
		}
	}
	if got := messages(t, other, id); got != "1" {
		t.Errorf("events %q remain, want those that were durable", got)
	}
	again, err := other.Locks().Acquire(t.Context(), "prod", records.Holder{})
	noError(t, err)
	noError(t, again.Release())
	noError(t, otherLock.Release())
}

// TestMemory_KeepsCopies: a caller that changes its values changes nothing saved.
func TestMemory_KeepsCopies(t *testing.T) {
	p := recordstest.NewMemory(t).Open()
	c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Hosts: []v1alpha1.Host{{Name: "cp1"}}}}
	c.Name = "prod"
	text := []byte("first")
	noError(t, p.Clusters().Save(t.Context(), c, &records.Source{Text: text}))
	c.Spec.Hosts[0].Name, text[0] = "changed", 'F'
	for range 2 {
		got, err := p.Clusters().Load(t.Context(), "prod")
		noError(t, err)
		source, err := p.Clusters().LoadSource(t.Context(), "prod")
		noError(t, err)
		if got.Spec.Hosts[0].Name != "cp1" || string(source.Text) != "first" {
			t.Errorf("saved host %q, source %q", got.Spec.Hosts[0].Name, source.Text)
		}
		got.Spec.Hosts[0].Name, source.Text[0] = "changed", 'F'
	}
}

func newOperation(t *testing.T, b records.Backend) (id string) {
	t.Helper()
	o, err := b.Operations().Create(t.Context(), time.Now(), v1alpha1.OperationSpec{
		ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "create",
	}, new(plan.Plan))
	noError(t, err)
	return o.Name
}

// messages returns the messages of all events of an operation.
func messages(t *testing.T, b records.Backend, id string) (all string) {
	t.Helper()
	noError(t, b.Journals().ReadEvents(t.Context(), id, func(e event.Event) error { all += e.Message; return nil }))
	return all
}

func adminKubeconfig(t *testing.T) []byte {
	t.Helper()
	text, err := kubeconfig.Admin{
		Cluster: "prod", Server: "https://198.18.0.2:6443", CA: []byte("a"), Certificate: []byte("b"), Key: []byte("c"),
	}.Bytes()
	noError(t, err)
	return text
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
