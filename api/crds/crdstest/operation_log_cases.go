package crdstest

import (
	"strings"
	"testing"

	"slipway.dev/slipway/internal/testutil/definition"
)

// operationLog is a part of a journal.
const operationLog = `
apiVersion: slipway.dev/v1alpha1
kind: OperationLog
metadata: {name: x}
spec:
  operationRef: {name: create-1, uid: 0f1e2d3c}
  type: Segment
  firstEvent: 3
  lastEvent: 7
  events: 4
  encoding: JSONLines
  data: e30K
  digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
`

// OperationLogCases returns cases of OperationLogs. All objects have the name x.
func OperationLogCases(t *testing.T) []Case {
	t.Helper()
	good := func() map[string]any { return definition.DecodeObject(t, operationLog) }
	labelled := good()
	labelled["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"}
	large := good()
	large["spec"].(map[string]any)["data"] = strings.Repeat("e+/K", 720_000/4)
	out := []Case{
		{Name: "segment", New: good()},
		{Name: "largest data", New: large},
		{Name: "same part", Old: large, New: large},
		{Name: "other labels", Old: good(), New: labelled},
	}
	for _, tc := range []struct{ name, old, new, field string }{
		{"chunk", "type: Segment", "type: Chunk", ""},
		{"compressed data", "encoding: JSONLines", "encoding: JSONLinesZstd", ""},
		{"one event", "firstEvent: 3", "firstEvent: 7", ""},
		{"summary", "events: 4", "events: 2\n  omittedEvents: 5", ""},
		{"no operation", "operationRef: {name: create-1, uid: 0f1e2d3c}", "", "spec.operationRef"},
		{"no uid", ", uid: 0f1e2d3c", "", "spec.operationRef.uid"},
		{"unknown type", "type: Segment", "type: Page", "spec.type"},
		{"first event zero", "firstEvent: 3", "firstEvent: 0", "spec.firstEvent"},
		{"first event after last", "firstEvent: 3", "firstEvent: 8", "spec.lastEvent"},
		{"no event", "events: 4", "events: 0", "spec.events"},
		{"no omitted event", "events: 4", "events: 4\n  omittedEvents: 0", "spec.omittedEvents"},
		{"unknown encoding", "encoding: JSONLines", "encoding: Gzip", "spec.encoding"},
		{"other data", "data: e30K", "data: e+/KCg==", ""},
		{"no data", "data: e30K", `data: ""`, "spec.data"},
		{"too much data", "data: e30K", "data: " + strings.Repeat("e30K", 720_000/4+1), "spec.data"},
		{"data that is not base64", "data: e30K", "data: '{}'", "spec.data"},
		{"data that is cut", "data: e30K", "data: e30", "spec.data"},
		{"digest of another kind", "sha256:", "sha512:", "spec.digest"},
	} {
		object := definition.DecodeObject(t, strings.Replace(operationLog, tc.old, tc.new, 1))
		out = append(out, Case{Name: "part with " + tc.name, New: object, Field: tc.field})
		if tc.field == "" {
			out = append(out, Case{Name: "change to part with " + tc.name, Old: good(), New: object, Field: "spec"})
		}
	}
	return out
}
