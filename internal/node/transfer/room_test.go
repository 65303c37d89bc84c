package transfer

import (
	"math"
	"testing"
)

func TestFreeInodes_KnowsUnlimitedFileSystems(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		all, unused uint64
		want        int64
		known       bool
	}{
		"counted":       {"as ext4", 100, 7, 7, true},
		"full":          {"as ext4", 100, 0, 0, true},
		"no bound":      {"as btrfs", 0, 0, 0, false},
		"minus one":     {"as CephFS, which counts only what is there", 100, math.MaxUint64, 0, false},
		"more than all": {"it cannot be", 100, 101, 0, false},
		"negative":      {"it cannot be", math.MaxUint64, math.MaxInt64 + 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, known := countFreeInodes(tc.all, tc.unused); got != tc.want || known != tc.known {
				t.Errorf("%s: %d, %v; want %d, %v", tc.reason, got, known, tc.want, tc.known)
			}
		})
	}
}
