package kube

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpread(t *testing.T) {
	pod := func(name, node, more string) string {
		raw := strings.Replace(aPod(name, "ReplicaSet", more), `"nodeName":"w1"`, `"nodeName":"`+node+`"`, 1)
		return strings.TrimSuffix(raw, "}") + `,"status":{"conditions":[{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-11-21T00:00:05Z"}]}}`
	}
	node := func(name, at, spec string) string {
		return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `","creationTimestamp":"2026-11-21T00:00:` + at + `Z"},"spec":{` + spec + `},` +
			`"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-11-21T00:00:30Z"}]}}`
	}
	had, came := node("cp1", "01", ""), node("w1", "05", "")
	const ending = `,"deletionTimestamp":"2026-11-21T00:00:00Z"`
	together := []string{pod("a", "cp1", ""), pod("b", "cp1", ""), pod("c", "cp1", "")}
	for _, tc := range []struct {
		name, reason string
		pods         []string
		nodes        []string // nil: they need not be asked for
		want         []string
	}{
		{"none", "there is nothing to spread", nil, nil, nil},
		{"alone", "one pod is somewhere", []string{pod("a", "cp1", "")}, nil, nil},
		{"together", "all but one find another node", together, []string{had, came}, []string{"b", "c"}},
		{"apart", "one node may be lost", []string{pod("a", "cp1", ""), pod("b", "cp1", ""), pod("c", "w1", "")}, nil, nil},
		{
			"in motion", "what ends or has no node yet says nothing",
			[]string{pod("a", "cp1", ""), pod("b", "w1", ending), pod("c", "", ""), pod("d", "cp1", "")},
			[]string{had, came},
			[]string{"d"},
		},
		{"one node", "there is no other", together, []string{had}, nil},
		{"put there", "the other was there, and has but been away since", together, []string{had, node("w1", "04", "")}, nil},
		{"cordoned", "the other takes none", together, []string{had, node("w1", "09", `"unschedulable":true`)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			looks := []call{{request: "GET /api/v1/namespaces/ns/pods?labelSelector=app%3Ddns", answer: items(tc.pods...)}}
			if tc.nodes != nil {
				looks = append(looks, call{request: "GET /api/v1/nodes", answer: items(tc.nodes...)})
			}
			calls := slices.Concat(looks, looks)
			for _, name := range tc.want {
				calls = append(calls, call{request: "DELETE /api/v1/namespaces/ns/pods/" + name, answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`})
			}
			for _, name := range tc.want {
				calls = append(calls, call{request: "GET /api/v1/namespaces/ns/pods/" + name, status: 404})
			}
			c := newFakeAPI(t, calls...).client()
			got, err := c.Crowded(t.Context(), "ns", "app=dns", false)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Spread(t.Context(), "ns", "app=dns"); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
	c := newFakeAPI(t, call{request: "GET /api/v1/namespaces/ns/pods?labelSelector=app%3Ddns", answer: items(together...)}).client()
	switch got, err := c.Crowded(t.Context(), "ns", "app=dns", true); {
	case err != nil:
		t.Fatal(err)
	case len(got) != 2:
		t.Errorf("another node will come, and %v move", got)
	}
}
