package lifecycle

import (
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
)

// oldest is a version from which the way to the newest leads over another.
const oldest = "v1.35.6"

// onWay is a world in which a cluster has come one minor far on such a way.
func onWay(t *testing.T, r Request, names ...string) (*world, *Result) {
	t.Helper()
	build(t, oldest)
	built.older.Do(func() { build(t, older) })
	w := newWorld(t, names...)
	w.version = oldest
	w.create(event.Succeeded)
	w.backable(t)
	res := w.do(r, event.Succeeded)
	w.wantVersions(all(names, older))
	return w, res
}

// Cut off between two minors there is nothing to resume, and it is said how far the
// cluster has come, and what goes on, wherever that was.
func TestUpgradeCutOffBetweenMinors(t *testing.T) {
	w, _ := onWay(t, toNewest, "cp1")
	s := w.service()
	said := func(when string) {
		t.Helper()
		_, err := s.PrepareResume(t.Context(), "prod", Request{}, nil)
		refusal(t, err, idNothingUnfinished)
		if d := first(err); d.Message != "the upgrade of cluster prod to v1.37.1 has come as far as v1.36.4" || d.Hint != "go on with: slipway upgrade prod --to v1.37.1" {
			t.Errorf("%s: %v", when, d)
		}
	}
	said("when the one has ended")
	p := w.prepared(s.Prepare(t.Context(), toNewest, nil)).(*prepared)
	if _, err := p.operation(); err != nil {
		t.Fatal(err)
	}
	said("when the next one is written down")
	if err := s.Store.SaveCluster(p.env.Cluster, nil); err != nil {
		t.Fatal(err)
	}
	said("when its version is on record")
	w.do(toNewest, event.Succeeded)
	w.wantVersions(all([]string{"cp1"}, "v1.37.1"))
	_, err := s.PrepareResume(t.Context(), "prod", Request{}, nil)
	refusal(t, err, idNothingUnfinished)
	if d := first(err); strings.Contains(d.Message, "as far as") {
		t.Errorf("when it has come there: %v", d)
	}
}

// first is the first thing that is wrong.
func first(err error) (d diag.Diagnostic) {
	var list diag.List
	if errors.As(err, &list) && len(list) > 0 {
		d = list[0]
	}
	return d
}
