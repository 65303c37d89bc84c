package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestWorkloadsRollsOnRestart_IsFalseIfPausedOrManual: a workload that is paused, or updates its
// pods only on deletion, creates no new pods.
func TestWorkloadsRollsOnRestart_IsFalseIfPausedOrManual(t *testing.T) {
	for name, tc := range map[string]struct {
		workload Workload
		spec     string
		want     bool
	}{
		"a deployment":        {Workload{"Deployment", "n", "x"}, `{}`, true},
		"a paused one":        {Workload{"Deployment", "n", "x"}, `{"paused":true}`, false},
		"a daemon set":        {Workload{"DaemonSet", "n", "x"}, `{"updateStrategy":{"type":"RollingUpdate"}}`, true},
		"one that waits":      {Workload{"StatefulSet", "n", "x"}, `{"updateStrategy":{"type":"OnDelete"}}`, false},
		"one that is deleted": {Workload{"Deployment", "n", "x"}, "gone", false},
		"one that is ending":  {Workload{"Deployment", "n", "x"}, "ending", false},
		"a job makes none":    {Workload{"Job", "n", "x"}, "", false},
		"a bare pod is alone": {Workload{"Pod", "n", "x"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []call
			if tc.spec != "" {
				calls = []call{getCall("/apis/apps/v1/namespaces/n/"+strings.ToLower(tc.workload.Kind)+"s/x", tc.workload.Kind, tc.spec)}
			}
			if got, err := newFakeAPI(t, calls...).newClient().Workloads().RollsOnRestart(t.Context(), tc.workload); err != nil || got != tc.want {
				t.Errorf("%t: %v", got, err)
			}
		})
	}
}

// TestWorkloadsRestart_RestartsForTimeAndWaitsForOlderPods: the restart has the given
// time, and the wait ends when the older pods are gone.
func TestWorkloadsRestart_RestartsForTimeAndWaitsForOlderPods(t *testing.T) {
	w := Workload{"DaemonSet", "n", "agent"}
	f := newFakeAPI(t,
		call{
			request: "PATCH /apis/apps/v1/namespaces/n/daemonsets/agent?fieldManager=slipway",
			body:    `"kubectl.kubernetes.io/restartedAt":"2026-11-20T18:00:00Z"`,
			answer:  `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent"}}`,
		},
		call{request: "GET /api/v1/pods", answer: podListJSON(tokenPod("agent-a", "DaemonSet", "agent", "Running", -time.Minute, true))},
		call{request: "GET /api/v1/pods", answer: podListJSON(tokenPod("agent-b", "DaemonSet", "agent", "Running", time.Minute, true))},
	)
	c := f.newClient()
	if err := c.Workloads().Restart(t.Context(), w, switched); err != nil {
		t.Fatal(err)
	}
	var said []string
	if err := c.Workloads().WaitOldPodsGone(t.Context(), w, c.Trust().FindTokenHolders, switched,
		func(s string) { said = append(said, s) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"older pods have not terminated"}, said); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
