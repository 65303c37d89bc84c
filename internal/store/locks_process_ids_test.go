package store

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestListUnreleased_ReturnsHolders: processes that have not released a cluster are known to the next one, and to
// no copy of the store that was made before.
func TestListUnreleased_ReturnsHolders(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	begin := func(want ...string) string {
		t.Helper()
		before, err1 := s.Locks().ListUnreleased(t.Context(), "prod")
		process, err := s.Locks().BeginHold(t.Context(), "prod")
		if err = errors.Join(err1, err); err != nil || len(process) != 2*idBytes {
			t.Fatalf("%q, %v", process, err)
		}
		if diff := cmp.Diff(want, before); diff != "" {
			t.Errorf("processes before (-want +got):\n%s", diff)
		}
		return process
	}
	first := begin()
	second := begin(first)
	if first == second {
		t.Error("two processes have one id")
	}
	if err := s.Locks().EndHold(t.Context(), "prod", second); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Locks().ListUnreleased(t.Context(), "prod"); err != nil || !slices.Equal(all, []string{first}) {
		t.Errorf("after one has ended: %q, %v", all, err)
	}
	if err := s.Locks().EndHold(t.Context(), "prod"); err != nil {
		t.Fatal(err)
	}
	begin()
	for range 2 * mostHolds {
		if _, err := s.Locks().BeginHold(t.Context(), "prod"); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := s.Locks().ListUnreleased(t.Context(), "prod"); err != nil || len(all) != mostHolds {
		t.Errorf("%d are remembered, %v", len(all), err)
	}
	if err := s.Clusters().Remove(t.Context(), "prod"); err != nil {
		t.Fatal(err)
	}
	if err := s.Locks().EndHold(t.Context(), "prod"); err != nil {
		t.Errorf("of a cluster that is gone: %v", err)
	}
}
