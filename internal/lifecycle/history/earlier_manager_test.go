package history

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records/recordstest"
)

// TestListBegun_LeavesOutEarlierClusters has operations of Cluster objects that had the same name one after the other.
func TestListBegun_LeavesOutEarlierClusters(t *testing.T) {
	b := recordstest.NewMemory(t).Open()
	at := metav1.NewTime(time.Now())
	for i, uid := range []types.UID{"earlier", "", "now"} {
		o, err := b.Operations().Create(t.Context(), at.Add(time.Duration(i)*time.Hour), v1alpha1.OperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod", UID: uid}, Kind: string(operation.Apply),
		}, &plan.Plan{Cluster: "prod", Digest: "sha256:00"})
		if err != nil {
			t.Fatal(err)
		}
		o.Status.State, o.Status.StartTime = v1alpha1.OperationSucceeded, &at
		if err := b.Operations().Save(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name    string
		cluster operation.ClusterID
		want    []types.UID
	}{
		{"cluster of a file", operation.ClusterID{}, []types.UID{"now", "", "earlier"}},
		{"request of a user", operation.ClusterID{UID: "now", Created: at}, []types.UID{"now", ""}},
		{"request for the earlier one", operation.ClusterID{UID: "now", Created: metav1.NewTime(at.Add(90 * time.Minute))}, []types.UID{"now"}},
		{"other cluster", operation.ClusterID{UID: "later", Created: metav1.NewTime(at.Add(24 * time.Hour))}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := History{View: &savedstate.View{Records: b, Object: tc.cluster}}.ListBegun(t.Context(), "prod")
			if err != nil {
				t.Fatal(err)
			}
			var got []types.UID
			for _, o := range list {
				got = append(got, o.Spec.ClusterRef.UID)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("operations (-want +got):\n%s", d)
			}
		})
	}
}

// TestBase_StandsForEarlierOperations gives a cluster to a manager without its operations. A later creation does not
// use what was known before.
func TestBase_StandsForEarlierOperations(t *testing.T) {
	b := recordstest.NewMemory(t).Open()
	h := History{View: &savedstate.View{Records: b}}
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
	c.Spec.Kubernetes.Version = "v1.36.4"
	c.Spec.Hosts = []v1alpha1.Host{{Name: "cp1", Address: "192.0.2.1", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}}}
	if err := SaveBase(t.Context(), b.ClusterFiles(), Base{Cluster: c, EtcdReplacements: 2}); err != nil {
		t.Fatal(err)
	}
	before, err := h.DescriptionBefore(t.Context(), "prod")
	if d := cmp.Diff(c, before); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	since, err := h.DescriptionsSince(t.Context(), c)
	if d := cmp.Diff([]*v1alpha1.Cluster{c}, since); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if was, err := h.ClusterBeforeUpgrade(t.Context(), "prod", "v1.37.1"); err != nil || was.Spec.Kubernetes.Version != "v1.36.4" {
		t.Errorf("before the upgrade: %v, %v", was, err)
	}
	if n, err := h.CountEtcdReplacements(t.Context(), "prod", nil); n != 2 || err != nil {
		t.Errorf("%d replacements, %v, want 2", n, err)
	}
	now := metav1.NewTime(time.Now())
	for _, kind := range []operation.Kind{operation.RestoreEtcd, operation.Create} {
		o, err := b.Operations().Create(t.Context(), now.Time, v1alpha1.OperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: string(kind),
		}, &plan.Plan{Cluster: "prod", Digest: "sha256:00"})
		if err != nil {
			t.Fatal(err)
		}
		o.Status.State, o.Status.StartTime = v1alpha1.OperationSucceeded, &now
		if err := b.Operations().Save(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		want := 3
		if kind == operation.Create {
			want = 0
		}
		if n, err := h.CountEtcdReplacements(t.Context(), "prod", nil); n != want || err != nil {
			t.Errorf("%d replacements after %s, %v, want %d", n, kind, err, want)
		}
	}
}
