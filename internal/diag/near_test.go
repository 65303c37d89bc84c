package diag_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
)

func TestNearestWords_FindsMisspellings(t *testing.T) {
	for _, tc := range []struct {
		name, reason, word string
		known, want        []string
	}{
		{"swapped", "the commonest slip of the hand", "adderss", []string{"address", "arch", "roles"}, []string{"address"}},
		{"case", "camel case is easily forgotten", "internaladdress", []string{"internalAddress", "address"}, []string{"internalAddress"}},
		{"snake", "other tools write it so", "control_plane", []string{"control-plane", "worker"}, []string{"control-plane"}},
		{"far", "no hint is better than a wrong one", "xyz", []string{"address", "arch"}, []string{}},
		{"nearest first", "the likeliest is read first", "node2", []string{"node1", "node12", "nodes"}, []string{"node1", "node12", "nodes"}},
		{"nothing close to empty", "an empty word is not a misspelling", "", []string{"a"}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, diag.NearestWords(tc.word, tc.known)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestListSort_OrdersByPosition(t *testing.T) {
	l := diag.List{{ID: "c", Line: 3, Column: 1}, {ID: "none"}, {ID: "b", Line: 2, Column: 9}, {ID: "a", Line: 2, Column: 1}}
	l.Sort()
	var got []string
	for _, d := range l {
		got = append(got, d.ID)
	}
	if d := cmp.Diff([]string{"a", "b", "c", "none"}, got); d != "" {
		t.Errorf("order of the file, the unplaced last (-want +got):\n%s", d)
	}
}
