// Package operationlog converts the events of an operation to the objects of its journal, and
// back. Each object is one part of the journal, and never changes:
//
//   - A segment has the events since the previous part.
//   - A chunk has the events of several segments, compressed. It is created before the segments
//     are deleted.
//   - A summary has the most important events from the beginning of the journal. It is created
//     before the other parts are deleted.
//
// Readers accept every state between a creation and the deletions after it. The package sends no
// request to an API.
package operationlog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/klauspost/compress/zstd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
)

// Limits of the parts, in bytes. The limits of data are without base64.
const (
	// SegmentSize limits the events of a segment, unless it has only one event.
	SegmentSize = 64 << 10
	// maxEvent limits one event. An object with one such event has less than 1 MiB.
	maxEvent = 512 << 10
	// maxChunk limits the data of a chunk.
	maxChunk = 256 << 10
	// maxSummary limits the data of a summary.
	maxSummary = 64 << 10
	// maxLines limits the events of any part, uncompressed.
	maxLines = 8 << 20
)

// maxNumber limits the number of an event: names of parts have ten digits.
const maxNumber = 9_999_999_999

// maxNamePrefix limits how much of the name of an operation the names of its parts have.
const maxNamePrefix = 200

// newPart returns an object with the content of spec. lines are its events, uncompressed.
func newPart(op *v1alpha1.Operation, spec v1alpha1.OperationLogSpec, lines []byte) v1alpha1.OperationLog {
	spec.OperationRef = v1alpha1.OperationReference{Name: op.Name, UID: op.UID}
	spec.Digest = digestOf(lines)
	labels := map[string]string{v1alpha1.LabelOperationUID: string(op.UID)}
	if len(validation.IsValidLabelValue(op.Name)) == 0 {
		labels[v1alpha1.LabelOperation] = op.Name
	}
	return v1alpha1.OperationLog{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "OperationLog"},
		ObjectMeta: metav1.ObjectMeta{
			Name: partName(op, spec), Namespace: op.Namespace, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.APIVersion, Kind: "Operation", Name: op.Name, UID: op.UID}},
		},
		Spec: spec,
	}
}

// partName returns the name of a part. Its end has a fixed length for each type, so that parts of
// two operations never have the same name. Two writers that continue a journal after the same
// event make the same name, so that only one of them succeeds.
func partName(op *v1alpha1.Operation, spec v1alpha1.OperationLogSpec) string {
	name := op.Name
	if len(name) > maxNamePrefix {
		sum := sha256.Sum256([]byte(name))
		name = strings.TrimRight(name[:maxNamePrefix], "-.") + "-" + hex.EncodeToString(sum[:4])
	}
	switch spec.Type {
	case v1alpha1.OperationLogSummary:
		return fmt.Sprintf("%s-%010d-summary", name, spec.LastEvent)
	case v1alpha1.OperationLogChunk:
		return fmt.Sprintf("%s-%010d-chunk", name, spec.FirstEvent)
	}
	return fmt.Sprintf("%s-%010d", name, spec.FirstEvent)
}

func digestOf(lines []byte) string {
	sum := sha256.Sum256(lines)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// newCompressor returns an encoder for EncodeAll, which returns the same data for the same lines.
func newCompressor() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithAllLitEntropyCompression(true))
}

// decompress returns the lines of compressed data. It does not use more memory for data that
// would have more than maxLines.
func decompress(data []byte) ([]byte, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxLines))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	lines, err := decoder.DecodeAll(data, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("uncompressed, %w", &bounded.LimitError{Limit: maxLines})
	}
	return lines, err
}
