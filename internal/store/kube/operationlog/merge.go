package operationlog

import (
	"bytes"
	"sort"

	"slipway.dev/slipway/api/v1alpha1"
)

// MergeCount is the number of segments of a chunk, unless it would be too large.
const MergeCount = 64

// Merge returns chunks that replace segments of a journal. Without final, it merges complete groups
// of MergeCount segments only. A segment remains if even compressed it is too large for a chunk.
//
// Two processes that merge the same segments make the same objects. The caller creates the chunks in
// order. If a chunk exists already with another digest, the caller lists the parts and merges again.
// It deletes segments when Replaced returns them for a list that contains the chunks.
func Merge(op *v1alpha1.Operation, parts []v1alpha1.OperationLog, final bool) (chunks []v1alpha1.OperationLog, err error) {
	order, err := arrange(op, parts, 0)
	if err != nil {
		return nil, err
	}
	for len(order) > 0 {
		group := firstSegments(order)
		if len(group) == 0 || len(group) < MergeCount && !final {
			order = order[max(1, len(group)):]
			continue
		}
		chunk, merged, err := mergeGroup(op, group)
		if err != nil {
			return nil, err
		}
		if merged > 0 {
			chunks = append(chunks, chunk)
		}
		order = order[max(1, merged):]
	}
	return chunks, nil
}

// firstSegments returns the segments at the beginning of a list, at most MergeCount.
func firstSegments(order []placed) []placed {
	for i, p := range order {
		if i == MergeCount || p.Spec.Type != v1alpha1.OperationLogSegment {
			return order[:i]
		}
	}
	return order
}

// mergeGroup merges the longest beginning of a list of segments that fits into a chunk. It returns
// the number of these segments.
func mergeGroup(op *v1alpha1.Operation, group []placed) (chunk v1alpha1.OperationLog, merged int, err error) {
	compressor, err := newCompressor()
	if err != nil {
		return chunk, 0, err
	}
	var lines []byte
	ends := make([]int, 0, len(group)) // of each segment in lines
	for _, p := range group {
		more, err := verify(p.OperationLog) // a chunk would hide damage
		if err != nil {
			return chunk, 0, err
		}
		if len(lines)+len(more) > maxLines {
			break
		}
		lines = append(lines, more...)
		ends = append(ends, len(lines))
	}
	var data []byte
	merged = longestFit(len(ends), func(n int) bool {
		d := compressor.EncodeAll(lines[:ends[n-1]], nil)
		if len(d) <= maxChunk {
			data = d
		}
		return len(d) <= maxChunk
	})
	if merged == 0 {
		return chunk, 0, nil
	}
	spec := v1alpha1.OperationLogSpec{
		Type: v1alpha1.OperationLogChunk, FirstEvent: group[0].Spec.FirstEvent, LastEvent: group[merged-1].Spec.LastEvent,
		Encoding: v1alpha1.EncodingJSONLinesZstd, Data: data,
	}
	for _, p := range group[:merged] {
		spec.Events += p.Spec.Events
	}
	return newPart(op, spec, lines[:ends[merged-1]]), merged, nil
}

// longestFit returns the largest n up to limit for which fits is true. A smaller n must fit too.
// The last call of fits that returned true was with the result.
func longestFit(limit int, fits func(n int) bool) int {
	if limit > 0 && fits(limit) {
		return limit
	}
	return sort.Search(max(0, limit-1), func(i int) bool { return !fits(i + 1) })
}

// Replaced returns the parts of a journal that other parts replace, so that they can be deleted. A
// summary replaces all parts up to its end. The parts that remain are verified first.
func Replaced(op *v1alpha1.Operation, parts []v1alpha1.OperationLog) (out []v1alpha1.OperationLog, err error) {
	tiles, summaries, err := sortParts(op, parts)
	if err != nil {
		return nil, err
	}
	var verified, chunk *v1alpha1.OperationLog
	var lines []byte // of the verified part
	replace := func(old, by *v1alpha1.OperationLog) error {
		if verified != by {
			if lines, err = verify(by); err != nil {
				return err
			}
			verified = by
		}
		if events, err := linesOf(old); by == chunk && err == nil && !bytes.Contains(lines, events) {
			return nil // of a process that had lost the operation, see dropOutdated; no reader reads it
		}
		out = append(out, *old)
		return nil
	}
	for i, p := range append(summaries, tiles...) {
		switch {
		case i > 0 && len(summaries) > 0 && p.Spec.LastEvent <= summaries[0].Spec.LastEvent:
			err = replace(p, summaries[0])
		case p.Spec.Type == v1alpha1.OperationLogChunk:
			chunk = p
		case chunk != nil && covers(chunk, p):
			err = replace(p, chunk)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
