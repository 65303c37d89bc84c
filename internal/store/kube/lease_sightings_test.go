package kube

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestLeaseSightings_CountsTimeWithoutChange(t *testing.T) {
	lease := func(uid, version, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "slipway.prod", UID: types.UID(uid), ResourceVersion: version},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To(int32(30))},
		}
	}
	const before = time.Hour
	for _, tc := range []struct {
		name   string
		is     *coordinationv1.Lease
		unseen time.Duration // since the latest look
		want   bool
	}{
		{"unchanged", lease("u", "1", "a"), time.Minute - time.Second, true},
		{"unchanged, after a long time", lease("u", "1", "a"), time.Minute + time.Second, false},
		{"renewed", lease("u", "2", "a"), 0, false},
		{"created again", lease("v", "1", "a"), 0, false},
		{"free", lease("u", "1", ""), 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s leaseSightings
			if d := s.note(lease("u", "1", "a")); d != 0 {
				t.Fatalf("a Lease that was never seen has not changed for %s", d)
			}
			seen := s.seen["slipway.prod"]
			seen.since, seen.latest = seen.since.Add(-before), seen.latest.Add(-tc.unseen)
			s.seen["slipway.prod"] = seen
			if d := s.note(tc.is); d >= before != tc.want {
				t.Errorf("the Lease has not changed for %s, want the time of the first sighting: %t", d, tc.want)
			}
		})
	}
}
