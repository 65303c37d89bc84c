package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Labels of an OperationLog.
const (
	// LabelOperation has the name of the operation, if a label can have a text of this length.
	LabelOperation = Group + "/operation"
	// LabelOperationUID has the UID of the operation.
	LabelOperationUID = Group + "/operation-uid"
)

// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=slopl
// +kubebuilder:printcolumn:name=Operation,type=string,JSONPath=.spec.operationRef.name
// +kubebuilder:printcolumn:name=Type,type=string,JSONPath=.spec.type
// +kubebuilder:printcolumn:name=First,type=integer,JSONPath=.spec.firstEvent
// +kubebuilder:printcolumn:name=Last,type=integer,JSONPath=.spec.lastEvent
// +kubebuilder:printcolumn:name=Events,type=integer,JSONPath=.spec.events
// +kubebuilder:printcolumn:name=Omitted,type=integer,JSONPath=.spec.omittedEvents,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp

// OperationLog is one part of the journal of an operation. It never changes.
type OperationLog struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The content of the part.
	Spec OperationLogSpec `json:"spec"`
}

// +kubebuilder:object:root=true

// OperationLogList is a list of parts of journals.
type OperationLogList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OperationLog `json:"items"`
}

// OperationLogSpec is the content of one part of a journal. The events of a journal have
// increasing numbers, and a part covers a range of them. The next part begins with the number
// after `lastEvent`.
//
// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="a part of a journal cannot change"
// +kubebuilder:validation:XValidation:rule=`self.firstEvent <= self.lastEvent`,message="the last event cannot be before the first event",fieldPath=".lastEvent"
type OperationLogSpec struct {
	// The operation, in the same namespace.
	OperationRef OperationReference `json:"operationRef"`
	// `Segment`: events as they happened. `Chunk`: the events of several segments, which it
	// replaces. `Summary`: the most important events from the beginning of the journal. It
	// replaces all parts up to `lastEvent`.
	Type OperationLogType `json:"type"`
	// The first event number of the range. An event with this number need not exist.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9999999999
	FirstEvent int64 `json:"firstEvent"`
	// The last event number of the range. In a segment and a chunk, it is the number of the
	// last event.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9999999999
	LastEvent int64 `json:"lastEvent"`
	// The number of events in `data`.
	// +kubebuilder:validation:Minimum=1
	Events int64 `json:"events"`
	// The number of events that a summary omits.
	// +kubebuilder:validation:Minimum=1
	OmittedEvents int64 `json:"omittedEvents,omitempty"`
	// The encoding of `data`. `JSONLines`: each event is a line of JSON. `JSONLinesZstd`: the
	// same, compressed with Zstandard.
	Encoding OperationLogEncoding `json:"encoding"`

	// The schema does not have the format "byte": for that format, rules of Kubernetes 1.37 decode
	// base64 for URLs, and refuse each update of other data.

	// The events.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=""
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=720000
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`
	Data []byte `json:"data"`
	// The digest of the lines of JSON, `sha256:` and 64 hexadecimal digits.
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest"`
}

// OperationReference names an operation.
type OperationReference struct {
	// The name of the operation.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// The UID of the operation. A later operation with the same name is another one.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
}

// OperationLogType is the type of a part of a journal.
// +kubebuilder:validation:Enum=Segment;Chunk;Summary
type OperationLogType string

// The types of parts.
const (
	OperationLogSegment OperationLogType = "Segment"
	OperationLogChunk   OperationLogType = "Chunk"
	OperationLogSummary OperationLogType = "Summary"
)

// OperationLogEncoding is the encoding of the events of a part.
// +kubebuilder:validation:Enum=JSONLines;JSONLinesZstd
type OperationLogEncoding string

// The encodings.
const (
	EncodingJSONLines     OperationLogEncoding = "JSONLines"
	EncodingJSONLinesZstd OperationLogEncoding = "JSONLinesZstd"
)
