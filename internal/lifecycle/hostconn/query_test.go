package hostconn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// A silentHost never answers.
type silentHost struct{ remote.Host }

func (silentHost) Name() string { return "cp1" }

func (silentHost) Check(ctx context.Context, _ op.List) ([]op.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestQuery_NamesSilentHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := Query(t.Context(), silentHost{}, op.ReadFile{Path: "/etc/kubernetes/admin.conf"})
		var e *remote.Error
		if !errors.As(err, &e) || e.Host != "cp1" || e.Reason != remote.Unreachable {
			t.Errorf("the error is %v, want that cp1 did not respond", err)
		}
	})
}
