package lifecycle

import (
	"reflect"
	"testing"

	"slipway.dev/slipway/internal/lifecycle/operation"
)

// TestBehaviours_AreCompleteForEveryKind fails if a kind has no behaviour, or one with an undecided
// function.
func TestBehaviours_AreCompleteForEveryKind(t *testing.T) {
	t.Parallel()
	if has, want := len(behaviours()), len(operation.Kinds()); has != want {
		t.Errorf("%d behaviours, want %d", has, want)
	}
	for _, k := range operation.Kinds() {
		b, err := behaviourOf(k)
		if err != nil {
			t.Error(err)
			continue
		}
		v := reflect.ValueOf(b)
		for i := range v.NumField() {
			if v.Field(i).IsNil() {
				t.Errorf("%s: %s is undecided", k, v.Type().Field(i).Name)
			}
		}
	}
}
