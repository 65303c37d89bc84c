package controller

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// runEtcdctl responds as a healthy etcd with one member, cp1.
func runEtcdctl(args []string, out io.Writer) int {
	if slices.Contains(args, "member") {
		_, _ = fmt.Fprint(out, `{"header":{"cluster_id":7},"members":[{"ID":1,"name":"cp1","clientURLs":["https://192.0.2.11:2379"]}]}`)
		return 0
	}
	_, _ = fmt.Fprint(out, `[{"Status":{"header":{"member_id":1},"version":"3.6.8","leader":1,"raftIndex":9,"raftAppliedIndex":9}}]`)
	return 0
}

// repairs returns the repairs that were requested.
func (w *world) repairs() []v1alpha1.Operation {
	return slices.DeleteFunc(w.operations(), func(o v1alpha1.Operation) bool { return !executor.IsRepair(&o) })
}

// waitForCheck waits for another check for manual changes.
func (w *world) waitForCheck() {
	w.t.Helper()
	begun := time.Now().Add(time.Second)
	w.eventually(func() string {
		if s := w.cluster().Status.Summary; s == nil || s.Drift == nil || s.Drift.ObservedTime.Time.Before(begun) {
			return "there was no further check"
		}
		return ""
	})
}

// TestDrift_IsReportedOnceAndRepairedByChoice changes a file of a host by hand.
func TestDrift_IsReportedOnceAndRepairedByChoice(t *testing.T) {
	const file = "/var/lib/kubelet/config.yaml"
	w := prepareWorld(t, "cp1", "w1")
	w.driftInterval = time.Second
	w.APIAddresses = []string{w.Hosts["cp1"].Address}
	w.start()
	w.createKey()
	w.create(w.object("cp1", "w1"))
	w.waitForCondition("Reconciled", metav1.ConditionTrue, "IntentApplied")
	w.waitForCondition("Drifted", metav1.ConditionFalse, "NoDifference")
	was := w.Hosts["w1"].AllState()[file]

	w.Hosts["w1"].EditFile(file, "maxPods: 1")
	w.waitForCondition("Drifted", metav1.ConditionTrue, "HostsDiffer")
	w.waitForCondition("NeedsAttention", metav1.ConditionTrue, "")
	w.waitForCheck()
	w.eventually(func() string {
		var list eventsv1.EventList
		if err := w.api.List(t.Context(), &list, client.InNamespace(w.namespace)); err != nil {
			return err.Error()
		}
		if n := len(list.Items); n != 1 || list.Items[0].Series != nil {
			return fmt.Sprintf("%d events, want one without repetitions", n)
		}
		return ""
	})
	if n := len(w.repairs()); n != 0 {
		t.Errorf("%d repairs with policy Report, want none", n)
	}

	w.change(func(c *v1alpha1.Cluster) { c.Spec.DriftPolicy = v1alpha1.DriftRepair })
	w.waitForCondition("Drifted", metav1.ConditionTrue, "RepairRefused")
	if n := len(w.repairs()); n != 0 {
		t.Errorf("%d repairs while etcd is not healthy, want none", n)
	}

	w.locked(func() { w.Hosts["cp1"].Etcdctl = runEtcdctl })
	w.waitForCondition("Drifted", metav1.ConditionFalse, "NoDifference")
	if got := w.repairs(); len(got) != 1 || got[0].Status.State != v1alpha1.OperationSucceeded {
		t.Errorf("the repairs are %+v, want one that succeeded", got)
	}
	if is := w.Hosts["w1"].AllState()[file]; is != was {
		t.Errorf("%s is %q after the repair, want %q", file, is, was)
	}
	if !meta.IsStatusConditionTrue(w.cluster().Status.Conditions, "Reconciled") {
		t.Error("a repair has changed the condition Reconciled")
	}
}

// TestDrift_IsRepairedInWindow has a maintenance window that opens later. A request of a user does not wait for it.
func TestDrift_IsRepairedInWindow(t *testing.T) {
	const file = "/var/lib/kubelet/config.yaml"
	w := prepareWorld(t, "cp1", "w1")
	w.driftInterval = time.Second
	w.APIAddresses = []string{w.Hosts["cp1"].Address}
	w.Hosts["cp1"].Etcdctl = runEtcdctl
	w.start()
	w.createKey()
	c := w.object("cp1", "w1")
	c.Spec.DriftPolicy, c.Spec.Maintenance.Windows = v1alpha1.DriftRepair, w.windowIn(5)
	w.create(c)
	w.waitForApplied()
	was := w.Hosts["w1"].AllState()[file]
	w.Hosts["w1"].EditFile(file, "maxPods: 1")
	w.waitForCondition("Drifted", metav1.ConditionTrue, "RepairRequested")
	var o v1alpha1.Operation
	w.eventually(func() string {
		if got := w.repairs(); len(got) == 1 && got[0].Status.Reason == "OutsideMaintenanceWindow" {
			o = got[0]
			return ""
		}
		return fmt.Sprintf("the repairs are %+v", w.repairs())
	})
	start := c.Spec.Maintenance.Windows[0].Start
	if o.Status.State != v1alpha1.OperationPending || !strings.Contains(o.Status.Message, "T"+start) {
		t.Errorf("the repair is %s: %s, want the start of the window at %s", o.Status.State, o.Status.Message, start)
	}
	w.request("defrag", operation.DefragEtcd, nil)
	w.waitForOperation("defrag", v1alpha1.OperationSucceeded, "")
	w.waitForCheck()
	if got := w.repairs(); len(got) != 1 || got[0].Status.State != v1alpha1.OperationPending {
		t.Errorf("the repairs are %+v, want one that waits", got)
	}
	w.ahead.Store(int64(5*time.Hour + time.Minute))
	w.poke()
	w.waitForOperation(o.Name, v1alpha1.OperationSucceeded, "")
	if is := w.Hosts["w1"].AllState()[file]; is != was {
		t.Errorf("%s is %q after the repair, want %q", file, is, was)
	}
}
