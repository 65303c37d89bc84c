package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestObjectsRewrite_WritesEveryObjectUnchanged(t *testing.T) {
	const all = "/api/v1/secrets"
	item := func(name string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"web","name":"` + name +
			`","resourceVersion":"7"},"data":{"x":"Y2FuYXJ5"}}`
	}
	list := func(more string, items ...string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"SecretList","metadata":{"continue":%q},"items":[%s]}`, more, strings.Join(items, ","))
	}
	put := func(name string) string {
		return "PUT /api/v1/namespaces/web/secrets/" + name + "?fieldManager=slipway"
	}
	first, second := "GET "+all+"?limit=200", "GET "+all+"?continue=next&limit=200"
	status := func(reason string, code int) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"it has Y2FuYXJ5 in it"}`,
			reason, code)
	}
	for _, tc := range []struct {
		name, reason string
		calls        []call
		done         []int
		fails        string
	}{
		{"two pages", "each object is written as it is", []call{
			{request: first, answer: list("next", item("a"))},
			{request: put("a"), answer: item("a"), body: "Y2FuYXJ5"},
			{request: second, answer: list("", item("c"))},
			{request: put("c"), answer: item("c"), body: `"resourceVersion":"7"`},
		}, []int{1, 2}, ""},
		{"changed and deleted meanwhile", "the other writer has already encrypted it", []call{
			{request: first, answer: list("next", item("a"))},
			{request: put("a"), status: 409, answer: status("Conflict", 409)},
			{request: second, answer: list("", item("b"))},
			{request: put("b"), status: 404, answer: status("NotFound", 404)},
		}, []int{1, 2}, ""},
		{"too slow", "it starts again", []call{
			{request: first, answer: list("next", item("a"))},
			{request: put("a"), answer: item("a")},
			{request: second, status: 410, answer: status("Expired", 410)},
			{request: first, answer: list("", item("a"))},
			{request: put("a"), answer: item("a")},
		}, []int{1, 1}, ""},
		{"refused", "the server's message may quote the object", []call{
			{request: first, answer: list("", item("a"))}, {request: put("a"), status: 422, answer: status("Invalid", 422)},
		}, nil, "rewriting secrets web/a: the API server refuses it (Invalid)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var done []int
			err := newFakeAPI(t, tc.calls...).newClient().Objects().Rewrite(t.Context(), "secrets", func(n int) { done = append(done, n) })
			if d := cmp.Diff(tc.done, done); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if got := fmt.Sprint(err); (tc.fails != "" || err != nil) && got != tc.fails {
				t.Errorf("got %q, want %q", got, tc.fails)
			}
		})
	}
}
