//go:build linux

package pods

import (
	"testing"
)

// TestFindMetric_MatchesNameAndQueue checks that metrics of other queues and with other names do not count.
func TestFindMetric_MatchesNameAndQueue(t *testing.T) {
	const text = "a{name=\"q\"} 1\nb{name=\"q\"} 2e+06\nb{name=\"r\"} 3\nc{name=\"q\"} x\n"
	for _, tc := range []struct {
		name, queue string
		want        int
		told        bool
	}{{"a", "q", 1, true}, {"b", "q", 2000000, true}, {"b", "r", 3, true}, {"c", "q", 0, false}, {"a", "r", 0, false}} {
		if n, told := findMetric(text, tc.name, tc.queue); n != tc.want || told != tc.told {
			t.Errorf("%s of %s: %d, %t", tc.name, tc.queue, n, told)
		}
	}
}
