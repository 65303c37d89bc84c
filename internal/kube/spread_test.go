package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpread(t *testing.T) {
	pod := func(name, node, more string) string {
		return strings.Replace(aPod(name, "ReplicaSet", more), `"nodeName":"w1"`, `"nodeName":"`+node+`"`, 1)
	}
	const ending = `,"deletionTimestamp":"2026-11-21T00:00:00Z"`
	for _, tc := range []struct {
		name, reason string
		pods         []string
		want         []string
	}{
		{"none", "there is nothing to spread", nil, nil},
		{"alone", "one pod is somewhere", []string{pod("a", "cp1", "")}, nil},
		{"together", "all but one find another node", []string{pod("a", "cp1", ""), pod("b", "cp1", ""), pod("c", "cp1", "")}, []string{"b", "c"}},
		{"apart", "one node may be lost", []string{pod("a", "cp1", ""), pod("b", "cp1", ""), pod("c", "w1", "")}, nil},
		{"in motion", "what ends or has no node yet says nothing", []string{pod("a", "cp1", ""), pod("b", "w1", ending), pod("c", "", ""), pod("d", "cp1", "")}, []string{"d"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list := call{request: "GET /api/v1/namespaces/ns/pods?labelSelector=app%3Ddns", answer: items(tc.pods...)}
			calls := []call{list, list}
			for _, name := range tc.want {
				calls = append(calls, call{request: "DELETE /api/v1/namespaces/ns/pods/" + name, answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`})
			}
			for _, name := range tc.want {
				calls = append(calls, call{request: "GET /api/v1/namespaces/ns/pods/" + name, status: 404})
			}
			c := newFakeAPI(t, calls...).client()
			got, err := c.Crowded(t.Context(), "ns", "app=dns")
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
}
