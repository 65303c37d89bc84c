package cli

import (
	"bytes"
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/event"
)

// operationCanceller is an operationReader that can only cancel an operation.
type operationCanceller struct {
	operationReader
	cancelled []string
}

func (o *operationCanceller) Cancel(_ context.Context, name string, _ event.Sink) error {
	o.cancelled = append(o.cancelled, name)
	return nil
}

func TestCancel_StopsTheOperationOfTheNamedCluster(t *testing.T) {
	var out bytes.Buffer
	operations := &operationCanceller{}
	cmd := newCancelCommand(cancelCommand{
		console: newTestConsole(t, &out), clusters: &clusterChooser{}, open: newOpener[operationReader](operations),
	})
	if err := runCommand(t, cmd, "prod"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"prod"}, operations.cancelled); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if want := "Stopped.\nNext: slipway resume prod\nRollback: slipway rollback prod\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
