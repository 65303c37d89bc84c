package store

import (
	"bytes"
	"encoding/json"
	"testing"

	"slipway.dev/slipway/internal/event"
)

// FuzzJournal reads a journal as a crash, a bad disk or a person may leave it. It reads
// the same events again after the torn end was removed and another event was added, as a
// resume does. The corpus is in
// testdata/fuzz/FuzzJournal.
func FuzzJournal(f *testing.F) {
	f.Add([]byte("{\"seq\":1}\n{\"se"))
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(data []byte) (end int64, seqs []int64, err error) {
			end, err = scanEvents(bytes.NewReader(data), "journal", func(e event.Event) error { seqs = append(seqs, e.Seq); return nil })
			return end, seqs, err
		}
		end, first, err := read(data)
		if end < 0 || end > int64(len(data)) || end > 0 && data[end-1] != '\n' {
			t.Fatalf("the last event ends at %d of %d bytes, and not with a line", end, len(data))
		}
		if err != nil {
			return // damage before a complete event is an error, and nothing is removed
		}
		added, err := json.Marshal(event.Event{Seq: 7, Type: event.Note, Message: "added"})
		if err != nil {
			t.Fatal(err)
		}
		again := append(bytes.Clone(data[:end]), append(added, '\n')...)
		to, second, err := read(again)
		if err != nil || to != int64(len(again)) || len(second) != len(first)+1 || second[len(first)] != 7 {
			t.Fatalf("%d events to %d of %d bytes (%v), want the %d from before and one more", len(second), to, len(again), err, len(first))
		}
		for i, seq := range first {
			if second[i] != seq {
				t.Fatalf("event %d has number %d, and had %d", i, second[i], seq)
			}
		}
	})
}
