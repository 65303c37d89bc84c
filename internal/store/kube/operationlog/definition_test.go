package operationlog

import (
	"encoding/json"
	"strings"
	"testing"

	"slipway.dev/slipway/api/crds"
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/testutil/definition"
)

// TestParts_FollowDefinition requires that an API server accepts parts of each type, and the largest
// segment.
func TestParts_FollowDefinition(t *testing.T) {
	d := definition.LoadDefinition(t, crds.OperationLogs)
	largest := event.Event{Type: event.StepOutput, Time: began, Message: strings.Repeat("x", maxEvent-100)}
	parts := encode(t, 0, newJournalist(1).attempt(20, 5)...)
	parts = append(parts, merge(t, parts, true)...)
	parts = append(parts, summarize(t, parts), encode(t, 0, largest)[0])
	types := map[v1alpha1.OperationLogType]bool{}
	for _, p := range parts {
		types[p.Spec.Type] = true
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		object, older := definition.DecodeObject(t, string(text)), definition.DecodeObject(t, string(text))
		if problems := d.CheckObject(t, object, older); len(problems) > 0 {
			t.Errorf("%s: %q", p.Name, problems)
		}
	}
	if size := len(parts[len(parts)-1].Spec.Data); size < maxEvent-100 || len(types) != 3 {
		t.Errorf("the largest segment has %d bytes; types %v", size, types)
	}
}
