package racesample

import (
	"fmt"
	"testing"
)

func TestIsIn_SelectsWholeTests(t *testing.T) {
	in := 0
	for i := range 900 {
		name := fmt.Sprintf("TestCreate_%d", i)
		if isIn(name, 3) {
			in++
		}
		if isIn(name, 3) != isIn(name+"/a part", 3) {
			t.Errorf("a part of %s is not treated as the whole", name)
		}
	}
	if in < 250 || in > 350 {
		t.Errorf("%d of 900 tests are in a sample of one in 3", in)
	}
}
