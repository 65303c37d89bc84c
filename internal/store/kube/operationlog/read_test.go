package operationlog

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// fakePart returns a part with a range, whose lines are not read.
func fakePart(typ v1alpha1.OperationLogType, first, last int64) v1alpha1.OperationLog {
	return newPart(operation, v1alpha1.OperationLogSpec{Type: typ, FirstEvent: first, LastEvent: last, Events: 1}, nil)
}

// TestArrange_OrdersParts arranges parts by their ranges alone. A part is written as its first
// and last event number.
func TestArrange_OrdersParts(t *testing.T) {
	segment := func(first, last int64) v1alpha1.OperationLog { return fakePart("Segment", first, last) }
	chunk := func(first, last int64) v1alpha1.OperationLog { return fakePart("Chunk", first, last) }
	summary := func(last int64) v1alpha1.OperationLog { return fakePart("Summary", 1, last) }
	type parts = []v1alpha1.OperationLog
	for _, tc := range []struct {
		name, reason string
		parts        parts
		after        int64
		want         string // "" if id is set
		gap          string
		id           string
	}{
		{"nothing", "a new operation has no part", nil, 0, "", "", ""},
		{"segments", "the order of a list is by name", parts{segment(4, 9), segment(1, 3)}, 0, "Segment 1-3, Segment 4-9", "", ""},
		{
			"chunk before deletion", "its segments have the same events",
			parts{segment(1, 3), segment(4, 9), chunk(1, 9), segment(10, 11)},
			0, "Chunk 1-9, Segment 10-11", "", "",
		},
		{
			"chunk during deletion", "the remaining segments have nothing new",
			parts{segment(4, 9), chunk(1, 9), segment(10, 11)},
			0, "Chunk 1-9, Segment 10-11", "", "",
		},
		{"chunk of one segment", "both have the same range", parts{segment(1, 3), chunk(1, 3)}, 0, "Chunk 1-3", "", ""},
		{"twice", "equal parts are the same part", parts{segment(1, 3), segment(1, 3)}, 0, "Segment 1-3", "", ""},
		{"missing beginning", "no summary has it", parts{segment(4, 9)}, 0, "", "1-3", ""},
		{"missing middle", "the parts before it can be read", parts{segment(1, 3), segment(9, 9)}, 0, "Segment 1-3", "4-8", ""},
		{"overlap", "only chunks cover segments", parts{segment(1, 3), segment(3, 5)}, 0, "", "", idConflict},
		{"segment in segment", "two writers continued the journal", parts{segment(1, 3), segment(1, 5)}, 0, "", "", idConflict},
		{"chunk in chunk", "two merges with other boundaries", parts{chunk(1, 3), chunk(1, 5)}, 0, "", "", idConflict},
		{
			"segment over two chunks", "its process had lost the operation",
			parts{chunk(1, 3), chunk(4, 9), segment(3, 4)},
			0, "Chunk 1-3, Chunk 4-9", "", "",
		},
		{
			"segment beyond a chunk", "its process had lost the operation",
			parts{chunk(1, 3), segment(4, 5), segment(2, 7)},
			0, "Chunk 1-3, Segment 4-5", "", "",
		},

		{"follow", "older parts are not needed", parts{segment(1, 3), segment(4, 9)}, 3, "Segment 4-9", "", ""},
		{"follow without older parts", "they are not needed", parts{segment(4, 9)}, 3, "Segment 4-9", "", ""},
		{"follow within a part", "it has newer events", parts{segment(1, 3), segment(4, 9)}, 5, "Segment 4-9", "", ""},
		{"follow to the end", "nothing is new", parts{segment(1, 3)}, 3, "", "", ""},
		{"follow from the future", "nothing is new", parts{segment(1, 3)}, 7, "", "", ""},
		{"follow before a gap", "the next part is not in the list", parts{segment(1, 3), segment(9, 9)}, 3, "", "4-8", ""},
		{"follow into a chunk", "segments were merged", parts{chunk(1, 9), segment(4, 9)}, 5, "Chunk 1-9", "", ""},

		{"summary alone", "it replaces the parts", parts{summary(9)}, 0, "Summary 1-9", "", ""},
		{
			"summary before deletion", "the parts have more",
			parts{segment(1, 3), summary(9), segment(4, 9)},
			0, "Segment 1-3, Segment 4-9", "", "",
		},
		{"summary during deletion", "only it is complete", parts{segment(4, 9), summary(9)}, 0, "Summary 1-9", "", ""},
		{"summary instead of the end", "only it is complete", parts{segment(1, 3), summary(9)}, 0, "Summary 1-9", "", ""},
		{
			"summary and resume", "the resume continues after it",
			parts{summary(9), segment(4, 9), segment(10, 12)},
			0,
			"Summary 1-9, Segment 10-12", "", "",
		},
		{"summary and chunk of a resume", "the chunk has newer events", parts{summary(9), chunk(4, 12)}, 0, "Summary 1-9, Chunk 4-12", "", ""},
		{"second summary", "it replaces the first", parts{summary(9), summary(12)}, 0, "Summary 1-12", "", ""},
		{"gap after summary", "a part is missing", parts{summary(9), segment(12, 12)}, 0, "Summary 1-9", "10-11", ""},
		{"follow into summary", "parts were deleted", parts{summary(9)}, 4, "Summary 1-9", "", ""},
		{"follow despite a summary", "the parts have more", parts{summary(9), segment(4, 9)}, 4, "Segment 4-9", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			order, err := arrange(operation, tc.parts, tc.after)
			var got []string
			for _, p := range order {
				got = append(got, fmt.Sprintf("%s %d-%d", p.Spec.Type, p.Spec.FirstEvent, p.Spec.LastEvent))
			}
			var gap *GapError
			missing := ""
			if errors.As(err, &gap) {
				missing = fmt.Sprintf("%d-%d", gap.From, gap.To)
			} else if (err != nil) != (tc.id != "") {
				t.Error(err)
			}
			if strings.Join(got, ", ") != tc.want || missing != tc.gap || idOf(err) != tc.id {
				t.Errorf("%q, gap %q, %v: %s", got, missing, err, tc.reason)
			}
		})
	}
}

// TestReadEvents_ReportsDamage reads a journal in which one object was changed.
func TestReadEvents_ReportsDamage(t *testing.T) {
	type part = *v1alpha1.OperationLog
	lines := func(p part, lines string) { p.Spec.Data, p.Spec.Digest = []byte(lines), digestOf([]byte(lines)) }
	packed := func(p part, text string) {
		c, err := newCompressor()
		if err != nil {
			t.Fatal(err)
		}
		p.Spec.Encoding, p.Spec.Data = v1alpha1.EncodingJSONLinesZstd, c.EncodeAll([]byte(text), nil)
		p.Spec.Digest = digestOf([]byte(text))
	}
	for _, tc := range []struct {
		name, reason string
		change       func(part)
		id           string
	}{
		{"other operation", "a part of it was restored", func(p part) { p.Spec.OperationRef.UID = "1" }, idForeign},
		{"digest", "a disk failed", func(p part) { p.Spec.Data[20] ^= 1 }, idDamaged},
		{"encoding", "a later version wrote it", func(p part) { p.Spec.Encoding = "JSONLinesBrotli" }, idDamaged},
		{"type", "a later version wrote it", func(p part) { p.Spec.Type = "Page" }, idDamaged},
		{"no Zstandard", "the encoding is wrong", func(p part) { p.Spec.Encoding = v1alpha1.EncodingJSONLinesZstd }, idDamaged},
		{"Zstandard with a cut", "an object is complete", func(p part) {
			packed(p, string(p.Spec.Data))
			p.Spec.Data = p.Spec.Data[:len(p.Spec.Data)-3]
		}, idDamaged},
		{"too large", "it is a bomb", func(p part) { packed(p, strings.Repeat("\n", maxLines+1)) }, idDamaged},
		{"JSON", "a line is not an event", func(p part) { lines(p, "{\"seq\":3}\n{\"seq\":\n") }, idDamaged},
		{"no last line break", "an object is complete", func(p part) { lines(p, "{\"seq\":3}\n{\"seq\":4}") }, idDamaged},
		{"long line", "no writer makes it", func(p part) {
			lines(p, "{\"seq\":3}\n{\"seq\":4,\"message\":\""+strings.Repeat("x", maxEvent)+"\"}\n")
		}, idDamaged},
		{"order", "events have increasing numbers", func(p part) { lines(p, "{\"seq\":4}\n{\"seq\":3}\n") }, idDamaged},
		{"same number", "events have increasing numbers", func(p part) { lines(p, "{\"seq\":4}\n{\"seq\":4}\n") }, idDamaged},
		{"before the range", "another part has it", func(p part) { lines(p, "{\"seq\":2}\n{\"seq\":4}\n") }, idDamaged},
		{"after the range", "another part has it", func(p part) { lines(p, "{\"seq\":3}\n{\"seq\":5}\n") }, idDamaged},
		{"end of the range", "an event is missing", func(p part) { lines(p, "{\"seq\":3}\n"); p.Spec.Events = 1 }, idDamaged},
		{"count", "an event is missing", func(p part) { lines(p, "{\"seq\":4}\n") }, idDamaged},
		{"range", "it has no events", func(p part) { p.Spec.FirstEvent, p.Spec.LastEvent = 4, 3 }, idDamaged},
		{"range below 1", "numbers begin with 1", func(p part) { p.Spec.FirstEvent = 0 }, idDamaged},
		{"no events", "it has no use", func(p part) { p.Spec.Events = 0 }, idDamaged},
		{"omitted events", "only a summary omits events", func(p part) { p.Spec.OmittedEvents = 1 }, idDamaged},
		{"summary of the middle", "it replaces the beginning", func(p part) { p.Spec.Type = v1alpha1.OperationLogSummary }, idDamaged},
		{"missing", "the events cannot be read", func(p part) { p.Spec.FirstEvent, p.Spec.LastEvent = 103, 104 }, idIncomplete},
	} {
		t.Run(tc.name, func(t *testing.T) {
			parts := segments(t, 3)
			tc.change(&parts[1])
			got, err := read(parts)
			if idOf(err) != tc.id || !strings.Contains(fmt.Sprint(err), operation.Name+"-0000000") {
				t.Errorf("got %v, want %s with the name of the object: %s", err, tc.id, tc.reason)
			}
			if slices.ContainsFunc(got, func(e event.Event) bool { return e.Seq > 4 }) {
				t.Errorf("events after the damage were read: %v", numbers(got))
			}
		})
	}
}

func TestReadEvents_ReportsDoubledPartWithOtherEvents(t *testing.T) {
	parts := segments(t, 2)
	double := encode(t, 2, notes(3)[0], note(4, 11))[0]
	double.Name = "restored"
	_, err := read(append(parts, double))
	if idOf(err) != idConflict || !strings.Contains(err.Error(), "restored") || !strings.Contains(err.Error(), parts[1].Name) {
		t.Errorf("%v", err)
	}
}

func TestReadEvents_StopsAtErrorOfCaller(t *testing.T) {
	stop := errors.New("stop")
	n := 0
	err := ReadEvents(operation, segments(t, 3), func(event.Event) error {
		if n++; n == 4 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 4 {
		t.Errorf("%d events, %v", n, err)
	}
}

// TestReadNewer_FollowsJournal reads lists of parts as a follower sees them.
func TestReadNewer_FollowsJournal(t *testing.T) {
	parts := segments(t, 4)
	follow := func(after int64, list ...int) (got []int64, position int64, err error) {
		var seen []v1alpha1.OperationLog
		for _, i := range list {
			seen = append(seen, parts[i])
		}
		position, err = ReadNewer(operation, seen, after, func(e event.Event) error { got = append(got, e.Seq); return nil })
		return got, position, err
	}
	for _, tc := range []struct {
		name, reason string
		after        int64
		list         []int
		want         []int64
		position     int64
		gap          bool
	}{
		{"first part", "the reader is new", 0, []int{0}, []int64{1, 2}, 2, false},
		{"nothing new", "it waits", 2, []int{0}, nil, 2, false},
		{"half of a part", "it stopped there", 3, []int{0, 1, 2}, []int64{4, 5, 6}, 6, false},
		{"gap", "part 1 is not in the list yet", 2, []int{0, 2, 3}, nil, 2, true},
		{"gap after new events", "part 2 is not in the list yet", 2, []int{0, 1, 3}, []int64{3, 4}, 4, true},
		{"without older parts", "they were deleted", 4, []int{2, 3}, []int64{5, 6, 7, 8}, 8, false},
	} {
		got, position, err := follow(tc.after, tc.list...)
		var gap *GapError
		if d := cmp.Diff(tc.want, got); d != "" || position != tc.position || errors.As(err, &gap) != tc.gap || !tc.gap && err != nil {
			t.Errorf("%s: %v, position %d, %v: %s", tc.name, got, position, err, tc.reason)
		}
	}
	parts[2].Spec.Data[3] ^= 1
	got, position, err := follow(2, 0, 1, 2, 3)
	if d := cmp.Diff([]int64{3, 4}, got); d != "" || position != 4 || idOf(err) != idDamaged {
		t.Errorf("with damage: %v, position %d, %v", got, position, err)
	}
}

func TestReadNewer_ReturnsPositionBeforeFailedEvent(t *testing.T) {
	stop := errors.New("stop")
	position, err := ReadNewer(operation, segments(t, 2), 0, func(e event.Event) error {
		if e.Seq == 4 {
			return stop
		}
		return nil
	})
	if position != 3 || !errors.Is(err, stop) {
		t.Errorf("position %d, %v", position, err)
	}
}

// TestDecompress_LimitsMemory decompresses data that would fill the memory: a long frame, with and
// without its size, and many frames.
func TestDecompress_LimitsMemory(t *testing.T) {
	compress := func(size int, options ...zstd.EOption) []byte {
		var out strings.Builder
		w, err := zstd.NewWriter(&out, append(options, zstd.WithEncoderConcurrency(1))...)
		if err == nil {
			_, err = w.Write(make([]byte, size))
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return []byte(out.String())
	}
	c, err := newCompressor()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"frame with size":    c.EncodeAll(make([]byte, 256<<20), nil),
		"frame without size": compress(256 << 20),
		"many frames":        []byte(strings.Repeat(string(compress(1<<20)), 256)),
		"large window":       compress(64<<20, zstd.WithWindowSize(64<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			lines, err := decompress(data)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("%d bytes were decompressed to %d", len(data), len(lines))
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 8*maxLines {
				t.Errorf("%d bytes were allocated", used)
			}
		})
	}
}
