package lifecycle

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/records"
)

// retaining are records that note for which clusters their number was limited.
type retaining struct {
	records.Backend
	clusters []string
	fail     error
}

func (r *retaining) Retain(ctx context.Context, cluster string) error {
	holder, err := r.Locks().Holder(ctx, cluster)
	if holder != nil || err != nil {
		return errors.Join(errors.New("the cluster is locked"), err)
	}
	r.clusters = append(r.clusters, cluster)
	return r.fail
}

// TestApply_LimitsRecordsAfterSuccess requires a call without the lock, and an operation that succeeds
// although the archive is full.
func TestApply_LimitsRecordsAfterSuccess(t *testing.T) {
	t.Parallel()
	w, _ := etcdWorld(t)
	full := diag.List{{ID: "archive-unavailable", Message: "full", Hint: "give it space"}}
	for _, tc := range []struct {
		name, reason string
		fails        bool
		outcome      event.Outcome
		fail         error
		want         []string
		warnings     int
	}{
		{"failure", "it finishes nothing", true, event.Failed, nil, nil, 0},
		{"success", "it can finish earlier operations", false, event.Succeeded, nil, []string{"prod"}, 0},
		{"full archive", "it is reported once", false, event.Succeeded, full, []string{"prod"}, 1},
		{"lost connection", "the next operation tries again", false, event.Succeeded, errors.New("lost"), []string{"prod"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.Hosts["cp2"].EtcdWaste = 60 << 20
			if w.Hosts["cp2"].Refuse = nil; tc.fails {
				w.Hosts["cp2"].Refuse = breaking("defrag.follower")
			}
			s := w.service()
			limited := &retaining{Backend: s.Records, fail: tc.fail}
			s.Records = limited
			var warnings diag.List
			s.View.Warn = func(l diag.List) { warnings = append(warnings, l...) }
			w.apply(w.prepared(s.Prepare(t.Context(), DefragEtcdRequest{Name: "prod"}, nil)), tc.outcome)
			if d := cmp.Diff(tc.want, limited.clusters); d != "" {
				t.Errorf("limited records (-want +got):\n%s%s", d, tc.reason)
			}
			if len(warnings) != tc.warnings || tc.warnings > 0 && warnings[0].Severity != diag.Warning {
				t.Errorf("warnings %v, want %d: %s", warnings, tc.warnings, tc.reason)
			}
		})
	}
}
