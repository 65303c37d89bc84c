package operationlog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

func TestFlush_ReturnsObjectOfOperation(t *testing.T) {
	got := encode(t, 0, note(1, 1), note(3, 1))
	lines := ""
	for _, e := range []event.Event{note(1, 1), note(3, 1)} {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines += string(text) + "\n"
	}
	want := []v1alpha1.OperationLog{{
		TypeMeta: metav1.TypeMeta{APIVersion: "slipway.dev/v1alpha1", Kind: "OperationLog"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "prod-7-x2k4-0000000001", Namespace: "team",
			Labels: map[string]string{
				"slipway.dev/operation": "prod-7-x2k4", "slipway.dev/operation-uid": "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "slipway.dev/v1alpha1", Kind: "Operation", Name: "prod-7-x2k4", UID: "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
			}},
		},
		Spec: v1alpha1.OperationLogSpec{
			OperationRef: v1alpha1.OperationReference{Name: "prod-7-x2k4", UID: "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"},
			Type:         "Segment", FirstEvent: 1, LastEvent: 3, Events: 2, Encoding: "JSONLines", Data: []byte(lines),
			Digest: digestOf([]byte(lines)),
		},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("segments (-want +got):\n%s", d)
	}
}

func TestEncoder_LimitsSegments(t *testing.T) {
	const half = SegmentSize/2 - 200
	for _, tc := range []struct {
		name, reason string
		sizes        []int
		want         []int64 // events of each segment
	}{
		{"no event", "an empty object has no use", nil, nil},
		{"small events", "a flush is one object", []int{1, 1, 1}, []int64{3}},
		{"two halves", "they fit", []int{half, half}, []int64{2}},
		{"three halves", "the third does not fit", []int{half, half, half}, []int64{2, 1}},
		{"long event", "it has a separate segment", []int{1, SegmentSize, 1}, []int64{1, 1, 1}},
		{"long event at the end", "it has a separate segment", []int{1, 2 * SegmentSize}, []int64{1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := NewEncoder(operation, 10)
			for _, size := range tc.sizes {
				if err := e.Add(note(0, size)); err != nil {
					t.Fatal(err)
				}
			}
			size := e.Size()
			parts := e.Flush()
			var got []int64
			next := int64(11)
			for _, p := range parts {
				got = append(got, p.Spec.Events)
				if p.Spec.FirstEvent != next || p.Spec.Events > 1 && len(p.Spec.Data) > SegmentSize {
					t.Errorf("%s begins with event %d, want %d, and has %d bytes", p.Name, p.Spec.FirstEvent, next, len(p.Spec.Data))
				}
				next = p.Spec.LastEvent + 1
				size -= len(p.Spec.Data)
			}
			if size != 0 {
				t.Errorf("Size returned %d bytes too many", size)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s: events of segments (-want +got):\n%s", tc.reason, d)
			}
			if e.Size() != 0 || len(e.Flush()) != 0 || e.Last() != next-1 {
				t.Errorf("after Flush: %d bytes, last event %d", e.Size(), e.Last())
			}
		})
	}
}

func TestAdd_RefusesEventsThatCannotFollow(t *testing.T) {
	for _, tc := range []struct {
		name string
		next event.Event
		good bool
	}{
		{"next", note(6, 1), true},
		{"later", note(9, 1), true},
		{"without number", note(0, 1), true},
		{"largest number", note(maxNumber, 1), true},
		{"same number", note(5, 1), false},
		{"earlier", note(4, 1), false},
		{"too large a number", note(maxNumber+1, 1), false},
		{"time without JSON", event.Event{Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, false},
	} {
		e := NewEncoder(operation, 4)
		if err := e.Add(note(5, 1)); err != nil {
			t.Fatal(err)
		}
		if err := e.Add(tc.next); (err == nil) != tc.good {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := e.Flush(); len(got) != 1 || tc.good != (got[0].Spec.Events == 2) {
			t.Errorf("%s: the journal has %d segments", tc.name, len(got))
		}
	}
}

// TestAdd_ShortensLongEvents adds events that are too large for an object.
func TestAdd_ShortensLongEvents(t *testing.T) {
	long := strings.Repeat("ä", maxEvent)
	var changes []event.Change
	for i := range 100_000 {
		changes = append(changes, event.Change{Kind: "file", Target: fmt.Sprintf("/etc/%d", i), Summary: "create"})
	}
	for _, tc := range []struct {
		name string
		long event.Event
		text func(event.Event) string // the text that was shortened
	}{
		{"message", event.Event{Message: "first " + long + " last"}, func(e event.Event) string { return e.Message }},
		{"control characters", event.Event{Message: strings.Repeat("\x01", maxEvent)}, func(e event.Event) string { return e.Message }},
		{"bytes that are not UTF-8", event.Event{Message: strings.Repeat("\xff", maxEvent)}, func(e event.Event) string { return e.Message }},
		{"detail", event.Event{Failure: &event.Failure{Reason: "a", Detail: long}}, func(e event.Event) string { return e.Failure.Detail }},
		{"changes", event.Event{Changes: changes}, func(e event.Event) string { return e.Changes[len(e.Changes)-1].Summary }},
		{
			"all texts", event.Event{
				Operation: long, Cluster: long, Kind: long, Digest: long, Module: long, Task: long, Title: long, Host: long, After: long,
				Message: long, Unit: long, Changes: []event.Change{{Target: long, Summary: long}},
				Failure: &event.Failure{Reason: long, Message: long, Remedy: long, Detail: long, CausedBy: long},
			}, func(e event.Event) string { return e.Host },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, err := json.Marshal(tc.long)
			if err != nil {
				t.Fatal(err)
			}
			parts := encode(t, 0, note(1, 1), tc.long, note(3, 1))
			for _, p := range parts {
				object, err := json.Marshal(p)
				if err != nil || len(object) > 1<<20 || len(p.Spec.Data) > maxEvent {
					t.Errorf("%s has %d bytes: %v", p.Name, len(object), err)
				}
			}
			got := mustRead(t, parts)
			if len(got) != 3 || !strings.Contains(tc.text(got[1]), "omitted ...]") {
				t.Fatalf("%d events, want 3, the second one with a mark", len(got))
			}
			if after, err := json.Marshal(tc.long); err != nil || string(after) != string(before) {
				t.Errorf("the event of the caller was changed: %v", err)
			}
		})
	}
}

func TestShortenTexts_KeepsBothEnds(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"short", "0123456789", "0123456789"},
		{"long", "0123456789a", "01234[... 1 bytes omitted ...]6789a"},
		{"characters of two bytes", "aääääää", "aää[... 4 bytes omitted ...]ää"},
		{"not UTF-8", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", "[... 11 bytes omitted ...]"},
	} {
		got := tc.text
		if shortenTexts(10, &got); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestPartName_SortsAndIsUnique compares the names of all types of parts of similar operations.
func TestPartName_SortsAndIsUnique(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{
		"a", "a-0000000001", "a-0000000001-chunk", "a-chunk", "a-summary", strings.Repeat("a", 253), strings.Repeat("a", 252) + "b",
		strings.Repeat("a", 199) + "." + strings.Repeat("b", 53),
	} {
		op := operation.DeepCopy()
		op.Name = name
		var sorted []string
		for _, n := range []int64{1, 2, 10, maxNumber} {
			for _, typ := range []v1alpha1.OperationLogType{"Segment", "Chunk", "Summary"} {
				p := newPart(op, v1alpha1.OperationLogSpec{Type: typ, FirstEvent: n, LastEvent: n}, nil)
				if problems := validation.IsDNS1123Subdomain(p.Name); len(problems) > 0 {
					t.Errorf("%s: %q", p.Name, problems)
				}
				for label, value := range p.Labels {
					if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
						t.Errorf("%s: label %s: %q", p.Name, label, problems)
					}
				}
				if seen[p.Name] != "" {
					t.Errorf("%s is a part of %s and of %s", p.Name, name, seen[p.Name])
				}
				seen[p.Name] = name
				sorted = append(sorted, p.Name)
			}
		}
		if !slices.IsSorted(sorted) {
			t.Errorf("names do not sort: %q", sorted)
		}
	}
}
