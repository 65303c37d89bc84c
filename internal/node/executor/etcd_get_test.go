//go:build linux

package executor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/etcd"
	"slipway.dev/slipway/internal/node/op"
)

// getValues plays etcdctl, which returns one page of keys in their order.
func getValues(w *world, args []string) (string, error) {
	var page []etcd.Valued
	for _, key := range slices.Sorted(maps.Keys(w.Values)) {
		if key >= args[1] && key < args[2] && len(page) < etcd.ValuesAtOnce {
			page = append(page, etcd.Valued{Key: []byte(key), Value: []byte(w.Values[key])})
		}
	}
	raw, err := json.Marshal(map[string]any{"kvs": page, "count": len(w.Values)})
	return string(raw), err
}

// TestEtcdGet_CountsValuesWithoutReturningThem checks that all pages of values are
// counted, and that no value leaves the host.
func TestEtcdGet_CountsValuesWithoutReturningThem(t *testing.T) {
	const one = "k8s:enc:secretbox:v1:1-ab:"
	many := map[string]string{"/registry/secretsx/a": "plain", "/registry/secret": "plain"}
	for i := range 2*etcd.ValuesAtOnce + 50 {
		many[fmt.Sprintf("/registry/secrets/n/%04d", i)] = one + "canary"
	}
	odd := maps.Clone(many)
	odd["/registry/secrets/n/0150"], odd["/registry/secrets/z/b"] = "k8s\x00canary", "k8s:enc:secretbox:v1:2-cd:canary"
	exact := map[string]string{}
	for i := range etcd.ValuesAtOnce {
		exact[fmt.Sprintf("/registry/secrets/n/%04d", i)] = "k8s\x00canary"
	}
	for _, tc := range []struct {
		name, reason string
		values       map[string]string
		begins       string
		want         op.EtcdKeyValues
	}{
		{"all", "each is counted once, over pages", many, one, op.EtcdKeyValues{Keys: 250}},
		{
			"not all", "one is not encrypted, one by another key", odd, one,
			op.EtcdKeyValues{Keys: 251, Others: 2, First: "/registry/secrets/n/0150"},
		},
		{"not encrypted", "that is what is asked for", exact, "", op.EtcdKeyValues{Keys: 100}},
		{"still encrypted", "by whatever key", many, "", op.EtcdKeyValues{Keys: 250, Others: 250, First: "/registry/secrets/n/0000"}},
		{"none", "there is nothing to encrypt", nil, one, op.EtcdKeyValues{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			w := h.see()
			w.Values = tc.values
			h.world(w)
			o := op.EtcdGet{Prefix: "/registry/secrets/", Begins: tc.begins, EtcdClient: op.EtcdClient{
				Endpoints: []string{"https://gone:2379", "https://votes:2379"}, Program: "etcdctl", CA: "/ca", Cert: "/cert", Key: "/key",
			}}
			r := h.r.Check(t.Context(), op.List{o})[0]
			var got op.EtcdKeyValues
			if err := json.Unmarshal(r.Output, &got); err != nil || r.Error != nil {
				t.Fatal(err, r.Error)
			}
			if d := cmp.Diff(tc.want, got); d != "" || r.Status != op.Unchanged {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if strings.Contains(string(r.Output), "canary") {
				t.Error("a value left the host")
			}
		})
	}
	h := newHost(t)
	if r := h.r.Check(t.Context(), op.List{op.EtcdGet{Prefix: "/registry/secrets/"}})[0]; r.Error == nil {
		t.Error("without a member to ask it answers")
	}
}
