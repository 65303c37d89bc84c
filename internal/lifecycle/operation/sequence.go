package operation

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
)

// IsUpgrade reports whether an operation is an upgrade, and not the rollback of one.
func IsUpgrade(o *v1alpha1.Operation) bool { return Kind(o.Spec.Kind) == Upgrade }

// IsRequest reports whether an operation is only a request: it waits for its plan or for an approval, or
// it ended without one, or there was nothing to do. It has no part in the history of the cluster.
func IsRequest(o *v1alpha1.Operation) bool {
	if hasBegun(o) {
		return false
	}
	switch o.Status.State {
	case v1alpha1.OperationPlanning, v1alpha1.OperationAwaitingApproval, v1alpha1.OperationSuperseded, v1alpha1.OperationSucceeded:
		return true
	}
	return o.Status.Plan == nil
}

// IsBeginning reports whether a process was about to begin an operation: it has saved the plan to run it, but not the start.
// The process can have ended after it had saved its cluster.
func IsBeginning(o *v1alpha1.Operation) bool {
	return !hasBegun(o) && o.Status.State == v1alpha1.OperationPending && o.Status.Plan != nil
}

// HasForgottenNodes reports whether an operation removed lost hosts while another operation was
// unfinished. The rest of the cluster's description belongs to that other operation.
func HasForgottenNodes(o *v1alpha1.Operation) bool {
	return Kind(o.Spec.Kind) == ForgetNodes && o.Status.State == v1alpha1.OperationSucceeded
}

// UnfinishedRotations returns the unfinished rotations of a cluster's CAs and keys, latest first.
// Only another rotation of the same CAs and keys finishes an interrupted one.
func UnfinishedRotations(ops []v1alpha1.Operation) (out []*v1alpha1.Operation) {
	var done []string
	for i, o := range ops {
		names := slices.Sorted(maps.Keys(o.Spec.Parameters.Rotates))
		left := slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(done, name) })
		switch {
		case Kind(o.Spec.Kind) != RotateCA || o.Status.StartTime == nil || !left:
		case o.Status.State == v1alpha1.OperationSucceeded:
			done = append(done, names...)
		default:
			out = append(out, &ops[i])
		}
	}
	return out
}

// A ClusterID tells a Cluster object from others that had its name. The zero value is for a cluster of a file.
type ClusterID struct {
	UID     types.UID
	Created metav1.Time
}

// ClusterIDOf returns the identity of a Cluster object.
func ClusterIDOf(c *v1alpha1.Cluster) ClusterID { return ClusterID{c.UID, c.CreationTimestamp} }

// Has reports whether an operation for the name of the cluster belongs to it. A user can request an operation without
// the UID. It belongs to the Cluster then, unless it is older.
func (id ClusterID) Has(o *v1alpha1.Operation) bool {
	switch uid := o.Spec.ClusterRef.UID; {
	case id.UID == "":
		return true
	case uid != "":
		return uid == id.UID
	}
	return !CreationTime(o).Before(id.Created.Time)
}

// AnnotationRequest identifies the creation of an operation by the process that runs it. The creation can be repeated.
const AnnotationRequest = v1alpha1.Group + "/request"

// IsInternal reports whether the process that runs an operation has created it: no user and no controller has requested
// it. It runs as a part of another operation, such as the rollback of settings that do not work.
func IsInternal(o *v1alpha1.Operation) bool { return o.Annotations[AnnotationRequest] != "" }

// AnnotationCreated has the time of the creation of an operation on the clock of its creator.
const AnnotationCreated = v1alpha1.Group + "/created"

// AnnotationScheduled has the time at which an operation was due that the management plane has requested on its own.
const AnnotationScheduled = v1alpha1.Group + "/scheduled"

// maxSkew limits the difference between the clocks of the creator and of the API server.
const maxSkew = 5 * time.Second

// CreationTime returns when an operation was created. The time of an API has whole seconds, which do not tell the order
// of operations that follow each other closely. So the time of the creator counts, unless the API server shows that it is
// too early. It can be late: the operation follows another one that was created before a clock was set back. The
// operation of a user has only the time of the API. It counts as created at the end of that second, after operations
// that the user has seen.
func CreationTime(o *v1alpha1.Operation) time.Time {
	at, err := time.Parse(time.RFC3339Nano, o.Annotations[AnnotationCreated])
	switch {
	case err == nil && o.CreationTimestamp.Sub(at) <= maxSkew:
		return at
	case o.CreationTimestamp.IsZero(), o.CreationTimestamp.Nanosecond() != 0:
		return o.CreationTimestamp.Time
	}
	return o.CreationTimestamp.Add(time.Second - time.Millisecond)
}
