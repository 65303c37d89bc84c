package operationlog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// FuzzReadEvents reads a part with any content. If it is accepted, its events make the same journal
// again.
func FuzzReadEvents(f *testing.F) {
	types := []v1alpha1.OperationLogType{"Segment", "Chunk", "Summary", "Page"}
	j := newJournalist(1)
	parts := encode(f, 0, j.attempt(3, 2)...)
	chunks := merge(f, parts, true)
	summary, err := Summarize(operation, parts)
	if err != nil {
		f.Fatal(err)
	}
	for i, p := range []v1alpha1.OperationLog{parts[0], chunks[0], summary} {
		packed := p.Spec.Encoding == v1alpha1.EncodingJSONLinesZstd
		f.Add(uint8(i), packed, p.Spec.Data, p.Spec.FirstEvent, p.Spec.LastEvent, p.Spec.Events, p.Spec.OmittedEvents)
	}
	odd := `{"seq":1,"time":"0000-01-01T00:00:00+23:59","changes":[{},{}],"failure":{}}` + "\n"
	f.Add(uint8(0), false, []byte(odd), int64(1), int64(1), int64(1), int64(0))
	f.Add(uint8(0), false, []byte("{\"seq\":1}\n\n"), int64(1), int64(2), int64(2), int64(0))
	f.Fuzz(func(t *testing.T, typ uint8, packed bool, data []byte, first, last, count, omitted int64) {
		lines, encoding := data, v1alpha1.EncodingJSONLines
		if packed {
			encoding = v1alpha1.EncodingJSONLinesZstd
			lines, _ = decompress(data)
			if len(lines) > 2*maxLines {
				t.Fatalf("%d bytes are decompressed to %d", len(data), len(lines))
			}
		}
		part := newPart(operation, v1alpha1.OperationLogSpec{
			Type: types[typ%uint8(len(types))], FirstEvent: first, LastEvent: last, Events: count, OmittedEvents: omitted,
			Encoding: encoding, Data: data,
		}, lines)
		var events []event.Event
		position, err := ReadNewer(operation, []v1alpha1.OperationLog{part}, max(0, first-1), func(e event.Event) error {
			events = append(events, e)
			return nil
		})
		if err != nil || position < first {
			return
		}
		if position != last || part.Spec.Type != v1alpha1.OperationLogSummary && int64(len(events)) != count {
			t.Fatalf("%d events up to %d, want %d up to %d", len(events), position, count, last)
		}
		again := encode(t, max(0, first-1), events...)
		var copied []event.Event
		if _, err := ReadNewer(operation, again, max(0, first-1), func(e event.Event) error {
			copied = append(copied, e)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(events, copied, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("events after another write (-before +after):\n%s", d)
		}
	})
}
