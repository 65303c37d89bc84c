package history

import (
	"errors"
	"fmt"
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

// TestUnfinished_FindsOperationWithoutSavedStart has an operation whose process ended before it saved the start. Another
// process plans it again, or waits for another approval.
func TestUnfinished_FindsOperationWithoutSavedStart(t *testing.T) {
	for _, state := range []v1alpha1.OperationState{
		v1alpha1.OperationPending, v1alpha1.OperationPlanning, v1alpha1.OperationAwaitingApproval,
	} {
		for _, named := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, named %t", state, named), func(t *testing.T) {
				b := recordstest.NewMemory(t).Open()
				spec := v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: string(operation.Apply)}
				o, err := b.Operations().Create(t.Context(), time.Now(), spec, &plan.Plan{Cluster: "prod", Digest: "sha256:00"})
				c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
				c.Spec.Hosts = []v1alpha1.Host{{Name: "cp1", Address: "10.0.0.1"}}
				if err == nil {
					o.Status.State = state
					err = errors.Join(b.Operations().Save(t.Context(), o), b.Clusters().Save(t.Context(), c, nil))
				}
				if c.Status.Operation = "another"; named {
					c.Status.Operation = o.Name
				}
				if err = errors.Join(err, b.Clusters().SaveStatus(t.Context(), "prod", c.Status)); err != nil {
					t.Fatal(err)
				}
				found, err := History{View: &savedstate.View{Records: b}}.Unfinished(t.Context(), "prod")
				if named && (err != nil || found.Name != o.Name) {
					t.Errorf("got %v, %v; want operation %s", found, err, o.Name)
				}
				if !named && err == nil {
					t.Errorf("operation %s has begun", found.Name)
				}
			})
		}
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
