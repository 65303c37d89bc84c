package operationlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// merge returns new chunks, and requires that another process makes the same ones.
func merge(t testing.TB, parts []v1alpha1.OperationLog, final bool) []v1alpha1.OperationLog {
	t.Helper()
	chunks, err := Merge(operation, parts, final)
	if err != nil {
		t.Fatal(err)
	}
	reversed := slices.Clone(parts)
	slices.Reverse(reversed)
	again, err := Merge(operation, reversed, final)
	if d := cmp.Diff(chunks, again); d != "" || err != nil {
		t.Fatalf("a second merge makes other objects: %v\n%s", err, d)
	}
	for _, c := range chunks {
		if len(c.Spec.Data) > maxChunk || c.Spec.Type != v1alpha1.OperationLogChunk {
			t.Errorf("%s: %s with %d bytes", c.Name, c.Spec.Type, len(c.Spec.Data))
		}
	}
	return chunks
}

// ranges returns the ranges of parts, such as 1-128.
func ranges(parts []v1alpha1.OperationLog) string {
	var out []string
	for _, p := range parts {
		out = append(out, fmt.Sprintf("%d-%d", p.Spec.FirstEvent, p.Spec.LastEvent))
	}
	return strings.Join(out, " ")
}

func TestMerge_MakesChunksOfSegments(t *testing.T) {
	j := newJournalist(7)
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	random := func(size int) event.Event { // compression saves a quarter
		text := make([]byte, size)
		for i := range text {
			text[i] = letters[j.IntN(len(letters))]
		}
		return event.Event{Type: event.StepOutput, Time: began, Message: string(text)}
	}
	all := segments(t, 200)
	large := encode(t, 0, random(100<<10), random(100<<10), random(100<<10), random(100<<10), random(500<<10), random(1))
	for _, tc := range []struct {
		name, reason string
		parts        []v1alpha1.OperationLog
		final        bool
		want         string
	}{
		{"no part", "there is nothing to merge", nil, true, ""},
		{"few", "more segments will follow", all[:63], false, ""},
		{"few at the end", "no segment follows", all[:63], true, "1-126"},
		{"enough", "a group is complete", all[:64], false, "1-128"},
		{"more", "two groups are complete", all[:130], false, "1-128 129-256"},
		{"more at the end", "the rest is merged too", all[:130], true, "1-128 129-256 257-260"},
		{
			"with chunk", "its segments are merged already",
			append(merge(t, all[:64], false), all[:130]...), false, "129-256",
		},
		{
			"with chunk and without its segments", "they were deleted",
			append(merge(t, all[:64], false), all[64:128]...), false, "129-256",
		},
		{"large", "a chunk has a limit, and one segment is too large for it", large, true, "1-3 4-4 6-6"},
		{"large in the middle", "it separates two groups", slices.Concat(all[:2], encode(t, 4, random(500<<10))), true, "1-4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chunks := merge(t, tc.parts, tc.final)
			if got := ranges(chunks); got != tc.want {
				t.Errorf("chunks %s, want %s: %s", got, tc.want, tc.reason)
			}
			want := mustRead(t, tc.parts)
			with := slices.Concat(chunks, tc.parts)
			if d := cmp.Diff(want, mustRead(t, with)); d != "" {
				t.Errorf("events with the chunks (-want +got):\n%s", d)
			}
			if d := cmp.Diff(want, mustRead(t, deleteReplaced(t, with))); d != "" {
				t.Errorf("events without the segments (-want +got):\n%s", d)
			}
		})
	}
}

// deleteReplaced returns the parts that no other part replaces.
func deleteReplaced(t testing.TB, parts []v1alpha1.OperationLog) []v1alpha1.OperationLog {
	t.Helper()
	replaced, err := Replaced(operation, parts)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p v1alpha1.OperationLog) bool {
		return slices.ContainsFunc(replaced, func(r v1alpha1.OperationLog) bool { return r.Name == p.Name })
	})
}

func TestMerge_RefusesDamagedAndMissingSegments(t *testing.T) {
	parts := segments(t, 64)
	parts[40].Spec.Data[5] ^= 1
	if _, err := Merge(operation, parts, false); idOf(err) != idDamaged {
		t.Errorf("with damage: %v", err)
	}
	if chunks, err := Merge(operation, slices.Delete(segments(t, 64), 3, 4), true); err == nil {
		t.Errorf("with a gap: %d chunks", len(chunks))
	}
}

// TestReplaced_KeepsPartsThatAreNotReplaced deletes no part whose replacement is damaged or
// different.
func TestReplaced_KeepsPartsThatAreNotReplaced(t *testing.T) {
	all := segments(t, 64)
	chunk := merge(t, all, false)[0]
	damaged := *chunk.DeepCopy()
	damaged.Spec.Data[20] ^= 1
	other := encode(t, 2, note(3, 1), note(4, 1))[0]
	broken := *all[1].DeepCopy()
	broken.Spec.Data[20] ^= 1
	summary, err := Summarize(operation, all[:2])
	if err != nil {
		t.Fatal(err)
	}
	older, err := Summarize(operation, all[:1])
	if err != nil {
		t.Fatal(err)
	}
	last := encode(t, 128, notes(129)...)[0]
	for _, tc := range []struct {
		name, reason string
		parts        []v1alpha1.OperationLog
		want         string
		id           string
	}{
		{"segments", "nothing replaces them", all[:2], "", ""},
		{"chunk", "it has all events", []v1alpha1.OperationLog{all[0], chunk, all[63], last}, "1-2 127-128", ""},
		{"damaged segment", "the chunk is good", []v1alpha1.OperationLog{broken, chunk}, "3-4", ""},
		{"damaged chunk", "the segments are good", append([]v1alpha1.OperationLog{damaged}, all...), "", idDamaged},
		{"damaged chunk alone", "it replaces nothing", []v1alpha1.OperationLog{damaged, last}, "", ""},
		{"other events", "the process of the segment had lost the operation", []v1alpha1.OperationLog{other, chunk}, "", ""},
		{"summary", "it replaces all parts before it", []v1alpha1.OperationLog{summary, older, all[0], all[1], all[2]}, "1-2 1-2 3-4", ""},
		{"summary in a chunk", "the chunk has later events", []v1alpha1.OperationLog{summary, chunk, all[2]}, "5-6", ""},
	} {
		got, err := Replaced(operation, tc.parts)
		if ranges(got) != tc.want || idOf(err) != tc.id || tc.id == "" && err != nil {
			t.Errorf("%s: %s, %v; want %s: %s", tc.name, ranges(got), err, tc.want, tc.reason)
		}
	}
}

// A namespace has the parts of a journal, as an API server keeps them.
type namespace struct {
	t     *testing.T
	parts []v1alpha1.OperationLog
}

// create adds parts. An existing object must have the same events.
func (n *namespace) create(parts ...v1alpha1.OperationLog) {
	n.t.Helper()
	for _, p := range parts {
		at := slices.IndexFunc(n.parts, func(o v1alpha1.OperationLog) bool { return o.Name == p.Name })
		if at < 0 {
			n.parts = append(n.parts, p)
		} else if n.parts[at].Spec.Digest != p.Spec.Digest {
			n.t.Fatalf("%s exists with other events", p.Name)
		}
	}
}

// crash deletes some of the replaced parts, in any order.
func (n *namespace) crash(r *rand.Rand) {
	n.t.Helper()
	replaced, err := Replaced(operation, n.parts)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, p := range replaced {
		if r.IntN(3) > 0 {
			n.parts = slices.DeleteFunc(n.parts, func(o v1alpha1.OperationLog) bool { return o.Name == p.Name })
		}
	}
	r.Shuffle(len(n.parts), func(i, j int) { n.parts[i], n.parts[j] = n.parts[j], n.parts[i] })
}

// follow reads newer events from a list in which some parts can be missing.
func (n *namespace) follow(r *rand.Rand, position int64, all bool) (got []event.Event, end int64) {
	n.t.Helper()
	seen := slices.Clone(n.parts)
	if !all {
		seen = slices.DeleteFunc(seen, func(v1alpha1.OperationLog) bool { return r.IntN(10) == 0 })
	}
	end, err := ReadNewer(operation, seen, position, func(e event.Event) error { got = append(got, e); return nil })
	if err != nil && (all || !strings.Contains(err.Error(), "has no part with events")) {
		n.t.Fatal(err)
	}
	return got, end
}

// TestJournal_IsEqualAfterMergesAndCrashes writes random journals, merges and deletes parts, and
// stops at any time. A reader and a follower see all events.
func TestJournal_IsEqualAfterMergesAndCrashes(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			j := newJournalist(seed)
			n := &namespace{t: t}
			var all, followed []event.Event
			var position int64
			for range 1 + j.IntN(3) {
				events := j.attempt(1+j.IntN(20), 1+j.IntN(6))
				for len(events) > 0 {
					some := events[:1+j.IntN(min(len(events), 1+j.IntN(9)))]
					events, all = events[len(some):], append(all, some...)
					last := int64(0)
					if at := len(all) - len(some); at > 0 {
						last = all[at-1].Seq
					}
					n.create(encode(t, last, some...)...)
					if j.IntN(10) == 0 {
						n.create(merge(t, n.parts, j.IntN(3) == 0)...)
					}
					if j.IntN(5) == 0 {
						n.crash(j.Rand)
						if d := cmp.Diff(all, mustRead(t, n.parts)); d != "" {
							t.Fatalf("events (-want +got):\n%s", d)
						}
					}
					got, end := n.follow(j.Rand, position, false)
					followed, position = append(followed, got...), end
				}
			}
			got, end := n.follow(j.Rand, position, true)
			if d := cmp.Diff(all, append(followed, got...)); d != "" || end != all[len(all)-1].Seq {
				t.Errorf("followed events up to %d (-want +got):\n%s", end, d)
			}
			if d := cmp.Diff(all, mustRead(t, deleteReplaced(t, n.parts))); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
		})
	}
}

// TestMerge_KeepsLinesOfLaterVersions merges lines with fields that this version does not know.
func TestMerge_KeepsLinesOfLaterVersions(t *testing.T) {
	line := []byte(`{"seq":1,"time":"2026-11-20T18:15:02Z","type":"note","operation":"a","later":true}` + "\n")
	part := newPart(operation, v1alpha1.OperationLogSpec{
		Type: v1alpha1.OperationLogSegment, FirstEvent: 1, LastEvent: 1, Events: 1, Encoding: v1alpha1.EncodingJSONLines, Data: line,
	}, line)
	chunk := merge(t, []v1alpha1.OperationLog{part}, true)[0]
	if got, err := decompress(chunk.Spec.Data); err != nil || !bytes.Equal(got, line) {
		t.Errorf("%s, %v", got, err)
	}
}
