package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// spreadPod is a pod of the Deployment "dns" on a node, scheduled at second 5.
func spreadPod(name, node, more, ready string) string {
	raw := strings.Replace(aPod(name, "ReplicaSet", more), `"nodeName":"w1"`, `"nodeName":"`+node+`"`, 1)
	return strings.TrimSuffix(raw, "}") + `,"status":{"conditions":[{"type":"Ready","status":"` + ready + `"},` +
		`{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-11-21T00:00:05Z"}]}}`
}

func spreadNode(name, at, spec, ready string) string {
	return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `","creationTimestamp":"2026-11-21T00:00:` + at +
		`Z"},"spec":{` + spec + `},` +
		`"status":{"conditions":[{"type":"Ready","status":"` + ready + `"}]}}`
}

// spreadCalls are the requests that read a placement: of so many replicas, and of nodes
// if they are read.
func spreadCalls(replicas int, pods, nodes []string) []call {
	out := []call{{
		request: "GET /apis/apps/v1/namespaces/ns/deployments/dns",
		answer:  fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"dns"},"spec":{"replicas":%d}}`, replicas),
	}, {request: "GET /api/v1/namespaces/ns/pods?labelSelector=app%3Ddns", answer: listJSON(pods...)}}
	if nodes != nil {
		out = append(out, call{request: "GET /api/v1/nodes", answer: listJSON(nodes...)})
	}
	return out
}

var (
	spreading   = SpreadTarget{Namespace: "ns", Deployment: "dns", Selector: "app=dns"}
	spreadFirst = spreadNode("cp1", "01", "", "True")
)

const (
	spreadEnding   = `,"deletionTimestamp":"2026-11-21T00:00:00Z"`
	spreadNotReady = `"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]`
	spreadControl  = `"taints":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]`
	spreadTheirs   = `"taints":[{"key":"theirs","effect":"NoExecute"}]`
)

func TestPodsSpread_MovesPodsOnlyIfAnotherNodeAcceptsThem(t *testing.T) {
	pod := func(name, node, more string) string { return spreadPod(name, node, more, "True") }
	node := func(name, at, spec string) string { return spreadNode(name, at, spec, "True") }
	together := []string{pod("a", "cp1", ""), pod("b", "cp1", "")}
	for _, tc := range []struct {
		name, reason string
		replicas     int
		pods         []string
		nodes        []string // nil: not read
		joined       string
		moves        bool
	}{
		{"none", "no pod has a node yet", 2, []string{pod("a", "", "")}, nil, "w1", false},
		{"alone", "one pod is on one node", 1, []string{pod("a", "cp1", "")}, nil, "w1", false},
		{"together", "another node has joined since", 2, together, []string{spreadFirst, node("w1", "05", "")}, "", true},
		{"apart", "the pods survive the loss of one node", 2, []string{pod("a", "cp1", ""), pod("b", "w1", "")}, nil, "w1", false},
		{
			"in motion", "an ending pod does not count", 2, append([]string{pod("c", "w1", spreadEnding)}, together...),
			[]string{spreadFirst, node("w1", "09", "")},
			"", true,
		},
		{"one node", "no other node exists", 2, together, []string{spreadFirst}, "", false},
		{
			"scheduled later", "the other node existed before, and was only down", 2, together,
			[]string{spreadFirst, node("w1", "04", "")},
			"", false,
		},
		{
			"new", "the other is new, but was registered before the first was ready", 2, together,
			[]string{spreadFirst, node("w1", "04", "")},
			"w1", true,
		},
		{"new, with all of them", "its pods cannot move to itself", 2, together, []string{spreadFirst}, "cp1", false},
		{"cordoned", "the other node accepts no pods", 2, together, []string{spreadFirst, node("w1", "09", `"unschedulable":true`)}, "w1", false},
		{"not ready", "the other node accepts no pods", 2, together, []string{spreadFirst, spreadNode("w1", "09", "", "False")}, "w1", false},
		{"stale taint", "the other node accepts no pods yet", 2, together, []string{spreadFirst, node("w1", "09", spreadNotReady)}, "w1", false},
		{
			"taint that evicts", "pods tolerate the taint for a while", 2, together,
			[]string{spreadFirst, node("w1", "09", strings.Replace(spreadNotReady, "NoSchedule", "NoExecute", 1))},
			"w1", true,
		},
		{"tainted", "the other node accepts no pods", 2, together, []string{spreadFirst, node("w1", "09", spreadTheirs)}, "w1", false},
		{"control plane", "its taint is tolerated", 2, together, []string{spreadFirst, node("cp2", "09", spreadControl)}, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			is := spreadCalls(tc.replicas, tc.pods, tc.nodes)
			calls := slices.Concat(is, is)
			if tc.moves { // the deleted pod does not count, although it is still ready, nor does one that is not ready
				calls = append(calls, call{
					request: "DELETE /api/v1/namespaces/ns/pods/b", body: `"preconditions":{"uid":"uid-b"}`,
					answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
				})
				after := []string{pod("a", "cp1", ""), pod("b", "cp1", spreadEnding)}
				calls = append(calls, slices.Concat(
					spreadCalls(2, after, nil), spreadCalls(2, append(after[:2:2], spreadPod("c", "w1", "", "False")), nil),
					spreadCalls(2, append(after[:2:2], pod("c", "w1", "")), nil))...)
			}
			c := newFakeAPI(t, calls...).newClient()
			if got, err := c.Pods().AreColocated(t.Context(), spreading, tc.joined); err != nil || got != tc.moves {
				t.Errorf("%s: crowded: %v, %v; want %v", tc.reason, got, err, tc.moves)
			}
			if err := c.Pods().Spread(t.Context(), spreading, tc.joined, nil); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
	c := newFakeAPI(t, call{request: "GET /apis/apps/v1/namespaces/ns/deployments/dns", status: 404}).newClient()
	if got, err := c.Pods().AreColocated(t.Context(), spreading, "w1"); err != nil || got {
		t.Errorf("without a Deployment: %v, %v", got, err)
	}
}
