package bundlesource

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle"
	from "slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/event"
)

// Progress of one component is reported at intervals only, so that the journal does not
// have an event for each compiled package.
func TestReportProgress_LimitsProgressEvents(t *testing.T) {
	const kube, etcd = "kubernetes v1.37.1 linux/amd64", "etcd v3.7.0 linux/amd64"
	compile := func(c string, done int64) bundle.Progress {
		return bundle.Progress{Component: c, Phase: from.Compiling, Done: done, Total: 3000, Unit: "packages"}
	}
	at := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	var got []event.Event
	b := building{now: func() time.Time { return at }, tell: func(e event.Event) { got = append(got, e) }}
	for _, step := range []struct {
		after time.Duration
		p     bundle.Progress
	}{
		{0, bundle.Progress{Phase: from.Note, Message: "compiling from modules"}},
		{0, bundle.Progress{Component: etcd, Phase: from.Cached}},
		{0, bundle.Progress{Component: kube, Phase: from.Fetching, Message: "k8s.io/api"}},
		{0, compile(kube, 0)},
		{100 * time.Millisecond, compile(kube, 10)}, // the journal is not for each package
		{progressEvery, compile(kube, 100)},
		{0, bundle.Progress{Component: kube, Phase: from.Done, Elapsed: 192*time.Second + 400*time.Millisecond}},
	} {
		at = at.Add(step.after)
		b.reportProgress(step.p)
	}
	note := func(m string) event.Event { return event.Event{Type: event.Note, Message: m} }
	progress := func(m string, done, total int64, unit string) event.Event {
		return event.Event{Type: event.StepProgress, Message: m, Done: done, Total: total, Unit: unit}
	}
	want := []event.Event{
		note("compiling from modules"),
		note(etcd + " is in the cache"),
		progress("fetching "+kube+": k8s.io/api", 0, 0, ""),
		progress("compiling "+kube, 0, 3000, "packages"),
		progress("compiling "+kube, 100, 3000, "packages"),
		note(kube + " is ready, after 3m12s"),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
