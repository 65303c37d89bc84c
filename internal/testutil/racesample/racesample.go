// Package racesample gives the race detector a sample of slow tests. Without the detector, all of them run: the Makefile
// finds the packages whose tests import this one.
package racesample

import (
	"hash/fnv"
	"os"
	"strings"
	"testing"
)

// allVariable makes the race detector run all tests if it is not empty.
const allVariable = "SLIPWAY_RACE_ALL"

// OneIn returns n under the race detector, and 1 otherwise: loops over many cases try one of so many.
func OneIn(n int) int {
	if isSampled() {
		return n
	}
	return 1
}

func isSampled() bool { return isRace && os.Getenv(allVariable) == "" }

// SkipUnlessIn skips a test under the race detector, unless it is in the sample: about one of n top-level tests, by name.
func SkipUnlessIn(t testing.TB, n uint32) {
	t.Helper()
	if isSampled() && !isIn(t.Name(), n) {
		//nolint:forbidigo // without the detector, all run
		t.Skipf("the race detector gets a sample of these tests; with %s=1, it gets all", allVariable)
	}
}

// isIn reports whether a test is in the sample. All parts of a test are in it, or none.
func isIn(name string, n uint32) bool {
	top, _, _ := strings.Cut(name, "/")
	h := fnv.New32a()
	_, _ = h.Write([]byte(top)) // it does not fail
	return h.Sum32()%n == 0
}
