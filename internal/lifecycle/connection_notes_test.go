package lifecycle

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// TestApply_RecordsLostConnections: a connection that is lost before, during and after the
// steps of an operation is in the progress of the plan, in the journal, and nowhere.
func TestApply_RecordsLostConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	svc := w.service()
	connect := svc.Connect
	notify := map[string]func(host, message string){}
	svc.Connect = func(ctx context.Context, h v1alpha1.Host, opts remote.Options) (remote.Host, error) {
		if h.Name == "w1" {
			notify[h.Name] = opts.Notify
			opts.Notify(h.Name, "lost before the operation")
		}
		return connect(ctx, h, opts)
	}
	notes := func(into *[]string) event.Sink {
		return event.SinkFunc(func(e event.Event) {
			if e.Type == event.Note && e.Host == "w1" {
				*into = append(*into, e.Message)
			}
		})
	}
	var planned, applied, saved []string
	p := w.prepared(svc.Prepare(t.Context(), creating(w.Manifest()), notes(&planned)))
	w.Hosts["w1"].Refuse = func(step string, _ op.Op) *op.Error {
		if step == "join.kubelet-start" {
			notify["w1"]("w1", "lost during the operation")
		}
		return nil
	}
	res, err := p.Apply(t.Context(), notes(&applied))
	if err != nil || res.Outcome != event.Succeeded {
		t.Fatalf("create: %v, %v", res, err)
	}
	notify["w1"]("w1", "lost after the operation")
	err = svc.Events(t.Context(), res.Operation, false, func(e event.Event) error {
		notes(&saved).Emit(e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	during := []string{"lost during the operation"}
	if d := cmp.Diff([]string{"connecting", "lost before the operation", "connected"}, planned); d != "" {
		t.Errorf("progress of the plan (-want +got):\n%s", d)
	}
	if d := cmp.Diff([][]string{during, during}, [][]string{applied, saved}); d != "" {
		t.Errorf("notes of the operation, and in its journal (-want +got):\n%s", d)
	}
}
