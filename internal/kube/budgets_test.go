package kube

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBudgetsListBlocking_ReturnsBudgetsOfPodsOnNodes(t *testing.T) {
	f := newFakeAPI(t, call{request: listBudgets, answer: listJSON(
		aBudget("free", "a", `"minAvailable":1`, `"expectedPods":2,"desiredHealthy":1,"currentHealthy":2,"disruptionsAllowed":1`),
		aBudget("empty", "b", `"minAvailable":1`, `"expectedPods":0`),
		aBudget("ill", "c", `"minAvailable":1`, `"expectedPods":2,"desiredHealthy":1,"currentHealthy":1`),
		aBudget("never", "d", `"maxUnavailable":0`, `"expectedPods":2,"desiredHealthy":2,"currentHealthy":2`),
		aBudget("elsewhere", "on-other-nodes", `"maxUnavailable":0`, `"expectedPods":2,"desiredHealthy":2,"currentHealthy":2`),
		aBudget("every", "proxy", `"maxUnavailable":0`, `"expectedPods":2,"desiredHealthy":2,"currentHealthy":2`),
	)}, call{
		request: listPods,
		answer: listJSON(aPod("a", "ReplicaSet", ""), aPod("b", "ReplicaSet", ""), aPod("c", "ReplicaSet", ""),
			aPod("d", "ReplicaSet", ""), aPod("proxy", "DaemonSet", "")),
	})
	got, err := f.newClient().Budgets().ListBlocking(t.Context(), []string{"w1"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ns/ill: 1 of its 2 pods are healthy, but 1 must be", "ns/never: maxUnavailable is 0"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Wait waits for budgets that refuse evictions because pods are not healthy yet.
// It does not wait for budgets that never allow an eviction.
func TestBudgetsWait_IgnoresBudgetsThatNeverAllowEviction(t *testing.T) {
	const never = `"expectedPods":2,"desiredHealthy":2,"currentHealthy":2`
	pods := call{request: listPods, answer: listJSON(aPod("c", "ReplicaSet", ""), aPod("d", "ReplicaSet", ""))}
	is := func(status string) call {
		return call{
			request: listBudgets,
			answer:  listJSON(aBudget("ill", "c", `"minAvailable":1`, status), aBudget("never", "d", `"maxUnavailable":0`, never)),
		}
	}
	ill, well := is(`"expectedPods":2,"desiredHealthy":1,"currentHealthy":1`), is(`"expectedPods":2,"desiredHealthy":1,`+
		`"currentHealthy":2,"disruptionsAllowed":1`)
	f := newFakeAPI(t, ill, pods, call{request: listBudgets, status: 503}, ill, pods, well, pods, ill, pods)
	c := f.newClient()
	var said []string
	if err := c.Budgets().Wait(t.Context(), []string{"w1"}, func(s string) { said = append(said, s) }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ns/ill: 1 of its 2 pods are healthy, but 1 must be"}, said); d != "" {
		t.Errorf("reported changes (-want +got):\n%s", d)
	}
	c.first, c.interval = time.Hour, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wantReason(t, c.Budgets().Wait(ctx, []string{"w1"}, func(string) { cancel() }), ReasonTimeout)
}
