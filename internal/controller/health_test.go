package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/controller/health"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
)

// soon are the times of probes in tests.
var soon = health.Times{
	Period: 200 * time.Millisecond, HostsPeriod: 500 * time.Millisecond, Unanswered: 2 * time.Second,
	Slow: 500 * time.Millisecond, Slowest: 500 * time.Millisecond,
}

// newProbedWorld returns a world whose clusters are probed often.
func newProbedWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := prepareWorld(t, names...)
	w.health = soon
	w.start()
	return w
}

// TestHealth_ShowsWhatIsWrong breaks parts of a cluster, and repairs them.
func TestHealth_ShowsWhatIsWrong(t *testing.T) {
	w := newProbedWorld(t, "cp1", "w1")
	w.APIAddresses = []string{w.Hosts["cp1"].Address}
	w.createKey()
	w.create(w.object("cp1", "w1"))
	w.waitForCondition("Reconciled", metav1.ConditionTrue, "IntentApplied")
	for _, kind := range []string{"Ready", "NodesReady", "EndpointAvailable", "HostsReachable"} {
		w.waitForCondition(kind, metav1.ConditionTrue, "")
	}
	w.eventually(func() string {
		s := w.cluster().Status.Summary
		if s == nil || s.API == nil || !s.API.Reachable || s.API.ObservedTime == nil || s.Etcd == nil || s.Etcd.Members == 0 {
			return "the summary lacks the API or etcd"
		}
		return ""
	})
	if through := w.cluster().Status.Summary.API.Through; through != "" {
		t.Errorf("the API was queried through %s, want directly", through)
	}

	w.API.MarkNodeLost("w1")
	w.waitForCondition("Ready", metav1.ConditionFalse, "NodesNotReady")
	w.waitForCondition("NeedsAttention", metav1.ConditionTrue, "")
	w.API.ReportReady("w1", time.Now())
	w.waitForCondition("Ready", metav1.ConditionTrue, "NodesReady")

	w.locked(func() { w.Hosts["cp1"].APIRefused = true })
	w.block(true)
	w.waitForCondition("Ready", metav1.ConditionUnknown, "NoAnswer")
	if s := w.cluster().Status.Summary; s.API.Reachable {
		t.Errorf("the summary shows a reachable API: %+v", s.API)
	}
	w.locked(func() { w.Hosts["cp1"].APIRefused = false })
	w.waitForCondition("Ready", metav1.ConditionTrue, "NodesReady")
	if through := w.cluster().Status.Summary.API.Through; through != "cp1" {
		t.Errorf("the API was queried through %q, want cp1: the management plane does not reach it directly", through)
	}
	w.block(false)

	w.locked(func() { w.Hosts["w1"].Down = lifecycletest.ErrDown })
	w.waitForCondition("HostsReachable", metav1.ConditionFalse, "HostsUnreachable")
	w.locked(func() { w.Hosts["w1"].Down = nil })
	w.waitForCondition("HostsReachable", metav1.ConditionTrue, "")
}

// TestHealth_ShowsCertificatesAndBackups uses certificates that expire soon, and a configured backup that was not taken.
func TestHealth_ShowsCertificatesAndBackups(t *testing.T) {
	w := newProbedWorld(t, "cp1")
	w.APIAddresses = []string{w.Hosts["cp1"].Address}
	w.createKey()
	c := w.object("cp1")
	c.Spec.Etcd.Backup = &v1alpha1.EtcdBackup{Every: &metav1.Duration{Duration: time.Hour}, Keep: 3}
	w.create(c)
	w.waitForCondition("Reconciled", metav1.ConditionTrue, "IntentApplied")
	w.waitForCondition("BackupRecent", metav1.ConditionFalse, "BackupsNotRecent")
	unlock := w.LockHosts()
	w.IssueCertificates(time.Since(lifecycletest.CertTime) + 10*lifecycletest.Day)
	unlock()
	w.waitForCondition("CertificatesValid", metav1.ConditionTrue, "CertificatesExpiring")
	w.eventually(func() string {
		if s := w.cluster().Status.Summary; s == nil || s.NextCertificate == nil || s.NextCertificate.Host != "cp1" {
			return "the summary lacks the next certificate"
		}
		return ""
	})
}
