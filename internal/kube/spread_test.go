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
	return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `","creationTimestamp":"2026-11-21T00:00:` + at + `Z"},"spec":{` + spec + `},` +
		`"status":{"conditions":[{"type":"Ready","status":"` + ready + `"}]}}`
}

// spreadCalls are the requests that read a placement: of so many replicas, and of nodes
// if they are read.
func spreadCalls(replicas int, pods, nodes []string) []call {
	out := []call{{
		request: "GET /apis/apps/v1/namespaces/ns/deployments/dns",
		answer:  fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"dns"},"spec":{"replicas":%d}}`, replicas),
	}, {request: "GET /api/v1/namespaces/ns/pods?labelSelector=app%3Ddns", answer: items(pods...)}}
	if nodes != nil {
		out = append(out, call{request: "GET /api/v1/nodes", answer: items(nodes...)})
	}
	return out
}

var (
	spreading   = Spreading{Namespace: "ns", Deployment: "dns", Selector: "app=dns"}
	spreadFirst = spreadNode("cp1", "01", "", "True")
)

const (
	spreadEnding   = `,"deletionTimestamp":"2026-11-21T00:00:00Z"`
	spreadNotReady = `"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]`
	spreadControl  = `"taints":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]`
	spreadTheirs   = `"taints":[{"key":"theirs","effect":"NoExecute"}]`
)

func TestCrowded(t *testing.T) {
	pod := func(name, node, more string) string { return spreadPod(name, node, more, "True") }
	node := func(name, at, spec string) string { return spreadNode(name, at, spec, "True") }
	together := []string{pod("a", "cp1", ""), pod("b", "cp1", "")}
	for _, tc := range []struct {
		name, reason string
		replicas     int
		pods         []string
		nodes        []string // nil: not read
		grows, want  bool
	}{
		{"none", "nothing has a node yet", 2, nil, nil, false, false},
		{"none yet", "another node will come", 2, nil, nil, true, true},
		{"alone", "one pod is on one node", 1, []string{pod("a", "cp1", "")}, nil, false, false},
		{"alone, grows", "one pod cannot be spread", 1, []string{pod("a", "cp1", "")}, nil, true, false},
		{"together", "another node has joined since", 2, together, []string{spreadFirst, node("w1", "05", "")}, false, true},
		{"together, grows", "another node will come", 2, together, nil, true, true},
		{"apart", "one node may be lost", 2, []string{pod("a", "cp1", ""), pod("b", "w1", "")}, nil, false, false},
		{"apart, grows", "they are spread already", 2, []string{pod("a", "cp1", ""), pod("b", "w1", "")}, nil, true, false},
		{"in motion", "an ending pod does not count", 2, append([]string{pod("c", "w1", spreadEnding)}, together...), []string{spreadFirst, node("w1", "09", "")}, false, true},
		{"one node", "there is no other", 2, together, []string{spreadFirst}, false, false},
		{"put there", "the other was there before, and was only away", 2, together, []string{spreadFirst, node("w1", "04", "")}, false, false},
		{"cordoned", "the other takes none", 2, together, []string{spreadFirst, node("w1", "09", `"unschedulable":true`)}, false, false},
		{"not ready", "the other takes none", 2, together, []string{spreadFirst, spreadNode("w1", "09", "", "False")}, false, false},
		{"tainted", "the other takes none", 2, together, []string{spreadFirst, node("w1", "09", spreadTheirs)}, false, false},
		{"control plane", "its taint is tolerated", 2, together, []string{spreadFirst, node("cp2", "09", spreadControl)}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeAPI(t, spreadCalls(tc.replicas, tc.pods, tc.nodes)...).client()
			if got, err := c.Crowded(t.Context(), spreading, tc.grows); err != nil || got != tc.want {
				t.Errorf("%s: %v, %v; want %v", tc.reason, got, err, tc.want)
			}
		})
	}
	c := newFakeAPI(t, call{request: "GET /apis/apps/v1/namespaces/ns/deployments/dns", status: 404}).client()
	if got, err := c.Crowded(t.Context(), spreading, true); err != nil || got {
		t.Errorf("without a Deployment: %v, %v", got, err)
	}
}

func TestSpread(t *testing.T) {
	pod := func(name, node, more string) string { return spreadPod(name, node, more, "True") }
	together := []string{pod("a", "cp1", ""), pod("b", "cp1", "")}
	apart := []string{pod("a", "cp1", ""), pod("b", "cp1", spreadEnding), pod("c", "w1", "")}
	w1 := func(spec, ready string) []string { return []string{spreadFirst, spreadNode("w1", "09", spec, ready)} }
	deletes := []call{{
		request: "DELETE /api/v1/namespaces/ns/pods/b", body: `"preconditions":{"uid":"uid-b"}`,
		answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
	}}
	for _, tc := range []struct {
		name, reason string
		calls        [][]call
	}{
		{"apart", "nothing has to move", [][]call{spreadCalls(2, apart, nil)}},
		{"moves", "the other node takes pods", [][]call{spreadCalls(2, together, w1("", "True")), deletes, spreadCalls(2, apart, nil)}},
		{
			"waits for a node", "a node takes pods when the cluster has noticed that it is Ready", [][]call{
				spreadCalls(2, together, []string{spreadFirst}), spreadCalls(2, together, w1(spreadNotReady, "False")),
				spreadCalls(2, together, w1(spreadNotReady, "True")), spreadCalls(2, together, w1("", "True")), deletes, spreadCalls(2, apart, nil),
			},
		},
		{
			"waits for pods", "pods are scheduled when the first node is Ready", [][]call{
				spreadCalls(2, nil, nil), spreadCalls(2, []string{pod("a", "cp1", ""), pod("b", "", "")}, nil),
				spreadCalls(2, together, w1("", "True")), deletes, spreadCalls(2, apart, nil),
			},
		},
		{"scheduled apart meanwhile", "nothing has to move", [][]call{spreadCalls(2, nil, nil), spreadCalls(2, apart, nil)}},
		{
			"waits for the new pod", "the deleted pod does not count, although it is still ready", [][]call{
				spreadCalls(2, together, w1("", "True")), deletes,
				spreadCalls(2, apart[:2], nil), spreadCalls(2, append(apart[:2:2], spreadPod("c", "w1", "", "False")), nil), spreadCalls(2, apart, nil),
			},
		},
		{"no other node takes them", "all nodes are Ready, and there is nothing to wait for", [][]call{spreadCalls(2, together, w1(spreadTheirs, "True"))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeAPI(t, slices.Concat(tc.calls...)...).client()
			if err := c.Spread(t.Context(), spreading, []string{"cp1", "w1"}, nil); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}
