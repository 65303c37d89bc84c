package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	listPods    = "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dw1"
	listBudgets = "GET /apis/policy/v1/poddisruptionbudgets"
	nothing     = `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`
)

func listJSON(list ...string) string {
	return `{"kind":"List","apiVersion":"v1","metadata":{},"items":[` + strings.Join(list, ",") + `]}`
}

// aPod is one whose controller is of a kind, or none; more are further fields
// of its metadata.
func aPod(name, owner, more string) string {
	meta := fmt.Sprintf(`"name":%q,"namespace":"ns","uid":"uid-%s","labels":{"app":%q}%s`, name, name, name, more)
	if owner != "" {
		meta += fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"apps/v1","kind":%q,"name":"o","uid":"u","controller":true}]`, owner)
	}
	return `{"apiVersion":"v1","kind":"Pod","metadata":{` + meta + `},"spec":{"nodeName":"w1"}}`
}

func aBudget(name, app, spec, status string) string {
	return fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":%q,"namespace":"ns"},`+
		`"spec":{"selector":{"matchLabels":{"app":%q}},%s},"status":{%s}}`, name, app, spec, status)
}

func TestNodesPodsToDrain_ListsEvictableAndBlockedPods(t *testing.T) {
	for _, tc := range []struct {
		name, reason  string
		node          string
		pods, budgets []string
		cordon        bool
		evicted       []string
		blocked       []string
	}{
		{"empty", "a cordoned node without pods is drained", `{"unschedulable":true}`, nil, nil, false, nil, nil},
		{
			"what stays", "pods of DaemonSets and of the kubelet go with the node", `{}`,
			[]string{aPod("proxy", "DaemonSet", ""), aPod("etcd", "Node", `,"annotations":{"kubernetes.io/config.mirror":"x"}`)},
			nil, true, nil, nil,
		},
		{"evictable", "a controller recreates it", `{}`, []string{aPod("web", "ReplicaSet", "")}, nil, true, []string{"web"}, nil},
		{
			"alone", "nobody makes it again", `{}`,
			[]string{aPod("mine", "", "")},
			nil, true,
			[]string{"mine"},
			[]string{"ns/mine has no controller that would recreate it on another node"},
		},
		{
			"a budget that may allow it", "one waits for it", `{}`,
			[]string{aPod("web", "ReplicaSet", "")},
			[]string{aBudget("b", "web", `"minAvailable":1`, `"expectedPods":2,"desiredHealthy":1,"disruptionsAllowed":0`)},
			true,
			[]string{"web"},
			nil,
		},
		{
			"a budget that never does", "waiting is of no use", `{}`,
			[]string{aPod("web", "ReplicaSet", ""), aPod("db", "StatefulSet", "")},
			[]string{
				aBudget("b", "web", `"maxUnavailable":0`, `"expectedPods":2,"desiredHealthy":2`),
				aBudget("c", "db", `"minAvailable":1`, `"expectedPods":1,"desiredHealthy":1`),
			},
			true,
			[]string{"db", "web"},
			[]string{
				"ns/db cannot be evicted: PodDisruptionBudget c never allows it: 1 of 1 pods must be healthy",
				"ns/web cannot be evicted: PodDisruptionBudget b never allows it: maxUnavailable is 0",
			},
		},
		{
			"two budgets", "the API evicts no such pod", `{}`,
			[]string{aPod("web", "ReplicaSet", "")},
			[]string{aBudget("b", "web", `"minAvailable":1`, `"expectedPods":2`), aBudget("c", "web", `"minAvailable":1`, `"expectedPods":2`)},
			true,
			[]string{"web"},
			[]string{"ns/web has several PodDisruptionBudgets (b, c), so that it cannot be evicted"},
		},
		{
			"terminating", "it needs no eviction", `{}`,
			[]string{aPod("mine", "", `,"deletionTimestamp":"2026-11-21T00:00:00Z"`)},
			nil, true,
			[]string{"mine"},
			nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := []call{
				{request: "GET /api/v1/nodes/w1", answer: `{"apiVersion":"v1","kind":"Node","metadata":{"name":"w1"},"spec":` + tc.node + `}`},
				{request: listPods, answer: listJSON(tc.pods...)},
			}
			if len(tc.evicted) > 0 {
				calls = append(calls, call{request: listBudgets, answer: listJSON(tc.budgets...)})
			}
			d, err := newFakeAPI(t, calls...).newClient().Nodes().PodsToDrain(t.Context(), "w1")
			if err != nil {
				t.Fatal(err)
			}
			var evicted []string
			for _, p := range d.Pods {
				evicted = append(evicted, p.Name)
			}
			if d.Cordon != tc.cordon {
				t.Errorf("the node must be cordoned: %t, want %t", d.Cordon, tc.cordon)
			}
			if d := cmp.Diff(tc.evicted, evicted); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if d := cmp.Diff(tc.blocked, d.Blocked); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

const evictWeb = "POST /api/v1/namespaces/ns/pods/web/eviction"

func TestNodesDrain_EvictsPodsAndWaitsUntilGone(t *testing.T) {
	web := listJSON(aPod("web", "ReplicaSet", ""))
	going := listJSON(aPod("web", "ReplicaSet", `,"deletionTimestamp":"2026-11-21T00:00:00Z"`))
	f := newFakeAPI(t,
		call{request: listPods, answer: web}, call{request: listBudgets, answer: nothing},
		call{request: evictWeb, body: `"policy/v1"`, status: 201, answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`},
		call{request: listPods, answer: going}, call{request: listBudgets, answer: nothing},
		call{request: listPods, answer: nothing},
	)
	var told []string
	if err := f.newClient().Nodes().Drain(t.Context(), "w1", false, func(m string) { told = append(told, m) }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ns/web is terminating"}, told); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A drain respects a budget that refuses an eviction, and retries. When the time is over,
// the error names the pod and the budget.
func TestNodesDrain_NamesBudgetThatRefusesEviction(t *testing.T) {
	held := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"Cannot evict pod.",` +
		`"details":{"causes":[{"reason":"DisruptionBudget","message":"The disruption budget b needs 2 healthy pods and has 2 currently"}]}}`
	f := newFakeAPI(t,
		call{request: listPods, answer: listJSON(aPod("web", "ReplicaSet", ""))}, call{request: listBudgets, answer: nothing},
		call{request: evictWeb, status: 429, answer: held},
	)
	c := f.newClient()
	c.first = time.Hour // only one check
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := c.Nodes().Drain(ctx, "w1", false, nil)
	want := "draining node w1: stopped waiting: ns/web cannot be evicted now: The disruption budget b needs 2 healthy pods and has 2 currently"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A pod without a controller stops a drain before the first eviction, and again at each
// later check: the API server would evict such a pod.
func TestNodesDrain_EvictsNothingIfPodIsBlocked(t *testing.T) {
	web, mine := aPod("web", "ReplicaSet", ""), aPod("mine", "", "")
	stays := []string{
		aPod("proxy", "DaemonSet", ""), aPod("etcd", "Node", `,"annotations":{"kubernetes.io/config.mirror":"x"}`),
		strings.Replace(aPod("done", "", ""), `"spec":`, `"status":{"phase":"Succeeded"},"spec":`, 1),
		aPod("going", "", `,"deletionTimestamp":"2026-11-21T00:00:00Z"`),
	}
	granted := call{request: evictWeb, body: `"uid":"uid-web"`, status: 201, answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`}
	db, other, evictDB := aPod("db", "StatefulSet", ""), aPod("other", "", ""), strings.Replace(evictWeb, "/web/", "/db/", 1)
	held := aBudget("b", "db", `"minAvailable":1`, `"expectedPods":1,"desiredHealthy":1`)
	for _, tc := range []struct {
		name    string
		calls   []call
		blocked []string
	}{
		{"pods that belong to the node, have ended or are terminating", []call{
			{request: listPods, answer: listJSON(stays...)}, {request: listBudgets, answer: nothing}, {request: listPods, answer: nothing},
		}, nil},
		{"a bare pod", []call{
			{request: listPods, answer: listJSON(append(stays, web, mine)...)}, {request: listBudgets, answer: nothing},
		}, []string{"ns/mine has no controller that would recreate it on another node"}},
		{"a bare pod that was created later", []call{
			{request: listPods, answer: listJSON(web)},
			{request: listBudgets, answer: nothing},
			granted,
			{request: listPods, answer: listJSON(mine)},
			{request: listBudgets, answer: nothing},
		}, []string{"ns/mine has no controller that would recreate it on another node"}},
		{"a budget that allows no eviction while a pod is recreated", []call{
			{request: listPods, answer: listJSON(db)},
			{request: listBudgets, answer: listJSON(held)},
			{request: evictDB, status: 201, answer: granted.answer},
			{request: listPods, answer: nothing},
		}, nil},
		{"two of them", []call{
			{request: listPods, answer: listJSON(mine, db, other)}, {request: listBudgets, answer: listJSON(held)},
		}, []string{
			"ns/mine has no controller that would recreate it on another node",
			"ns/other has no controller that would recreate it on another node",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := newFakeAPI(t, tc.calls...).newClient().Nodes().Drain(t.Context(), "w1", false, nil)
			var stopped *BlockedError
			if errors.As(err, &stopped) != (tc.blocked != nil) || err != nil && stopped == nil {
				t.Fatal(err)
			}
			if tc.blocked == nil {
				return
			}
			if d := cmp.Diff(&BlockedError{Node: "w1", Pods: tc.blocked}, stopped); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// With force, a drain deletes pods that cannot be evicted, and no others.
func TestNodesDrain_DeletesBlockedPodsWithForce(t *testing.T) {
	f := newFakeAPI(t,
		call{request: listPods, answer: listJSON(aPod("mine", "", ""), aPod("web", "ReplicaSet", ""))},
		call{request: listBudgets, answer: nothing},
		call{
			request: "DELETE /api/v1/namespaces/ns/pods/mine", body: `"uid":"uid-mine"`,
			answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
		},
		call{request: evictWeb, status: 404},
		call{request: listPods, answer: nothing},
	)
	if err := f.newClient().Nodes().Drain(t.Context(), "w1", true, nil); err != nil {
		t.Fatal(err)
	}
}

// A node that Slipway cordoned for removal is uncordoned if it remains in the cluster. A
// node that a user cordoned is not.
func TestNodeDiff_UncordonsNodeThatSlipwayCordoned(t *testing.T) {
	patched := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"w1"},"spec":{"unschedulable":true}}`
	f := newFakeAPI(t,
		call{request: "GET /api/v1/nodes/w1", answer: `{"apiVersion":"v1","kind":"Node","metadata":{"name":"w1"},"spec":{}}`},
		call{
			request: "PATCH /api/v1/nodes/w1?fieldManager=slipway", answer: patched,
			body: `{"metadata":{"annotations":{"slipway.dev/leaving":""}},"spec":{"unschedulable":true}}`,
		},
		call{request: "GET /api/v1/nodes/w1", answer: patched}, // a user's
	)
	c := f.newClient()
	for range 2 {
		if err := c.Nodes().Cordon(t.Context(), "w1"); err != nil {
			t.Fatal(err)
		}
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1", Annotations: map[string]string{LeavingAnnotation: ""}}}
	n.Spec.Unschedulable = true
	patch, changes := NodeDiff(n, NodeWant{})
	if want := `{"metadata":{"annotations":{"slipway.dev/leaving":null}},"spec":{"unschedulable":null}}`; string(patch) != want ||
		len(changes) != 1 {
		t.Errorf("the patch of a remaining node is %s (%v), want %s", patch, changes, want)
	}
	n.Annotations = nil
	if patch, _ := NodeDiff(n, NodeWant{}); patch != nil {
		t.Errorf("the cordon of a user was removed: %s", patch)
	}
}
