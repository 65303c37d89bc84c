package operationlog

import (
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// benchmarkJournal returns the segments of an operation with 50 tasks on 20 hosts, in flushes of 10
// events.
func benchmarkJournal(b *testing.B) (parts []v1alpha1.OperationLog, events int) {
	b.Helper()
	j := newJournalist(1)
	all := j.attempt(50, 20)
	last := int64(0)
	for i := 0; i < len(all); i += 10 {
		some := all[i:min(i+10, len(all))]
		parts = append(parts, encode(b, last, some...)...)
		last = some[len(some)-1].Seq
	}
	return parts, len(all)
}

func reportSize(b *testing.B, parts []v1alpha1.OperationLog, events int) {
	b.Helper()
	size := 0
	for _, p := range parts {
		size += len(p.Spec.Data)
	}
	b.ReportMetric(float64(size)/float64(events), "B/event")
	b.ReportMetric(float64(len(parts)), "objects")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
}

func BenchmarkSegments(b *testing.B) {
	var parts []v1alpha1.OperationLog
	var events int
	for b.Loop() {
		parts, events = benchmarkJournal(b)
	}
	reportSize(b, parts, events)
}

func BenchmarkMerge(b *testing.B) {
	parts, events := benchmarkJournal(b)
	var chunks []v1alpha1.OperationLog
	for b.Loop() {
		var err error
		if chunks, err = Merge(operation, parts, true); err != nil {
			b.Fatal(err)
		}
	}
	reportSize(b, chunks, events)
}

func BenchmarkSummarize(b *testing.B) {
	parts, events := benchmarkJournal(b)
	var summary v1alpha1.OperationLog
	for b.Loop() {
		var err error
		if summary, err = Summarize(operation, parts); err != nil {
			b.Fatal(err)
		}
	}
	reportSize(b, []v1alpha1.OperationLog{summary}, events)
}

func BenchmarkRead(b *testing.B) {
	parts, events := benchmarkJournal(b)
	chunks, err := Merge(operation, parts, true)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := ReadEvents(operation, chunks, func(event.Event) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	reportSize(b, chunks, events)
}
