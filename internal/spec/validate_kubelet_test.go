package spec

import (
	"slices"
	"strings"
	"testing"
)

// TestKubeletFields_AreReadable reads the data that validation stands on.
func TestKubeletFields_AreReadable(t *testing.T) {
	known := readKubeletFields()
	if known.newest < 37 {
		t.Errorf("the newest kubelet is of v1.%d", known.newest)
	}
	kinds := []string{"string", "bool", "int32", "int64", "uint32", "float64", "duration", "quantity", "object", "any"}
	for path, f := range known.fields {
		kind := f.kind
		for len(kind) > 2 && (strings.HasPrefix(kind, "[]") || strings.HasPrefix(kind, "{}")) {
			kind = kind[2:]
		}
		if !slices.Contains(kinds, kind) {
			t.Errorf("%s is of kind %q, which nothing checks", path, f.kind)
		}
		if i := strings.LastIndex(path, "."); i >= 0 {
			parent := strings.TrimRight(path[:i], "[]{}")
			if !strings.HasSuffix(known.fields[parent].kind, "object") {
				t.Errorf("%s is in %s, which is no object", path, parent)
			}
		}
	}
	for path, since := range map[string]int{"maxPods": 0, "memoryReservationPolicy": 36, "defaultPodSysctls": 37} {
		if f, ok := known.fields[path]; !ok || f.since != since {
			t.Errorf("%s: %+v, known %v; it came with v1.%d", path, f, ok, since)
		}
	}
}
