package operation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestUnfinishedRotations_SkipsFinishedAndUnstartedOnes checks which saved rotations count as unfinished.
func TestUnfinishedRotations_SkipsFinishedAndUnstartedOnes(t *testing.T) {
	op := func(name string, kind Kind, state v1alpha1.OperationState, rotates ...string) (o v1alpha1.Operation) {
		o.Name, o.Spec.Kind, o.Status.State, o.Status.StartTime = name, string(kind), state, &metav1.Time{}
		o.Spec.Parameters.Rotates = map[string]string{}
		for _, r := range rotates {
			o.Spec.Parameters.Rotates[r] = "from"
		}
		return o
	}
	const failed, succeeded = v1alpha1.OperationFailed, v1alpha1.OperationSucceeded
	unbegun := op("a", RotateCA, failed, "etcd")
	unbegun.Status.StartTime = nil
	for _, tc := range []struct {
		name, reason string
		ops          []v1alpha1.Operation // newest first
		want         string
	}{
		{"one that failed", "it can be resumed", []v1alpha1.Operation{op("a", RotateCA, failed, "etcd")}, "a"},
		{"one that never began", "it changed nothing", []v1alpha1.Operation{unbegun}, ""},
		{
			"another operation since", "it finished no rotation",
			[]v1alpha1.Operation{op("b", Apply, succeeded), op("a", RotateCA, failed, "etcd")},
			"a",
		},
		{
			"the same since", "it finished the rotation",
			[]v1alpha1.Operation{op("b", RotateCA, succeeded, "etcd", "cluster"), op("a", RotateCA, failed, "etcd")},
			"",
		},
		{
			"a part of it since", "the rest is unfinished",
			[]v1alpha1.Operation{op("b", RotateCA, succeeded, "etcd"), op("a", RotateCA, failed, "etcd", "cluster")},
			"a",
		},
		{
			"all parts of it since", "nothing is left",
			[]v1alpha1.Operation{
				op("c", RotateCA, succeeded, "etcd"), op("b", RotateCA, succeeded, "cluster"),
				op("a", RotateCA, failed, "etcd", "cluster"),
			},
			"",
		},
		{
			"two", "each can be resumed",
			[]v1alpha1.Operation{op("b", RotateCA, failed, "cluster"), op("a", RotateCA, failed, "etcd")},
			"b a",
		},
		{
			"one before another that succeeded", "it is finished",
			[]v1alpha1.Operation{
				op("c", RotateCA, failed, "etcd"),
				op("b", RotateCA, succeeded, "etcd"), op("a", RotateCA, failed, "etcd"),
			},
			"c",
		},
	} {
		var got []string
		for _, o := range UnfinishedRotations(tc.ops) {
			got = append(got, o.Name)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, want %q: %s", tc.name, got, tc.want, tc.reason)
		}
	}
}

// TestCreationTime_AcceptsLaterTimes compares the times of a creator with the time of the API server.
func TestCreationTime_AcceptsLaterTimes(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct{ created, want time.Time }{
		"within the same second":                        {noon.Add(300 * time.Millisecond), noon.Add(300 * time.Millisecond)},
		"a little earlier, by the clock of the creator": {noon.Add(-4 * time.Second), noon.Add(-4 * time.Second)},
		"too early":               {noon.Add(-time.Minute), noon.Add(999 * time.Millisecond)},
		"of a user, without time": {time.Time{}, noon.Add(999 * time.Millisecond)},
		"after another one, before a clock was set back": {noon.Add(10 * time.Minute), noon.Add(10 * time.Minute)},
	} {
		o := new(v1alpha1.Operation)
		o.CreationTimestamp = metav1.NewTime(noon)
		if !tc.created.IsZero() {
			o.Annotations = map[string]string{AnnotationCreated: tc.created.Format(time.RFC3339Nano)}
		}
		if got := CreationTime(o); !got.Equal(tc.want) {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
