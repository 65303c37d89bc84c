package certs

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/plan"
)

// What the cluster says of whom it trusts, to whoever joins and to API servers of
// others, and where in it.
var (
	toldToJoin   = told{metav1.NamespacePublic, "cluster-info", "kubeconfig"}
	toldToOthers = told{metav1.NamespaceSystem, published, "client-ca-file"}
)

type told struct{ namespace, name, key string }

func (t told) put(ctx context.Context, client *kube.Client, text []byte) error {
	return client.Apply(ctx, []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": t.name, "namespace": t.namespace},
		"data": map[string]any{t.key: string(text)},
	}}})
}

// differs answers what it is to say, if it says something else about authorities; nil
// if not, or if there is no such thing.
func (t told) differs(ctx context.Context, client *kube.Client, authorities []byte) ([]byte, error) {
	cm, err := client.ConfigMap(ctx, t.namespace, t.name)
	if err != nil || cm == nil || cm.Data[t.key] == "" {
		return nil, err
	}
	is, want := []byte(cm.Data[t.key]), authorities
	if t == toldToJoin {
		want = pki.WithKubeconfigCA(is, authorities)
	}
	if bytes.Equal(is, want) {
		return nil, nil
	}
	return want, nil
}

// tells has all in the cluster be told of authorities. API servers add to what
// others are told, and take nothing away from it: so that is done when they trust no
// other any more.
func (c cluster) tells(key engine.Key[*kube.Client], what func(*engine.Scope) ([]byte, error), alone bool) *engine.Action {
	where := []told{toldToJoin}
	if alone {
		where = append(where, toldToOthers)
	}
	return &engine.Action{
		Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
			change := []plan.OpChange{{Kind: module.KindObject, Target: "what pods and nodes that join know the API servers by", Summary: "publish"}}
			client := engine.Get(s, key)
			text, err := what(s)
			if err != nil || client == nil || s.Pending() || len(text) == 0 {
				return change, err
			}
			for _, t := range where {
				if other, err := t.differs(ctx, client, text); err != nil || other != nil {
					return change, err
				}
			}
			if others, err := client.OtherRootCAs(ctx, same(text)); err != nil || len(others) > 0 {
				return change, err
			}
			return nil, nil
		},
		Apply: func(ctx context.Context, s *engine.Scope) error {
			client := engine.Get(s, key)
			text, err := what(s)
			if err != nil {
				return err
			}
			for _, t := range where {
				other, err := t.differs(ctx, client, text)
				if err == nil && other != nil {
					err = t.put(ctx, client, other)
				}
				if err != nil {
					return err
				}
			}
			return client.WaitRootCAs(ctx, same(text), func(missing string) { s.Tell("%s", missing) })
		},
	}
}

// same says that a text holds the same authorities as another, in any order.
func same(as []byte) func(text []byte) bool {
	want, wrong := pki.Authorities(as)
	return func(text []byte) bool {
		have, err := pki.Authorities(text)
		if err != nil || wrong != nil || len(have) != len(want) {
			return false
		}
		for _, a := range want {
			if !pki.Trusts(have, a.ID) {
				return false
			}
		}
		return true
	}
}

// nextID is the id of the authority that comes; "" if it is not made yet.
func (c cluster) nextID(s *engine.Scope) (string, error) {
	next, err := c.r.parse(engine.Get(s, keyNextCA).cert)
	if next == nil || err != nil {
		return "", err
	}
	return next[0].ID, nil
}

// olderPods says whether something is to be made anew, or to be seen to.
func (c cluster) olderPods(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	change := []plan.OpChange{{Kind: module.KindObject, Target: "pods that trust the old authority alone", Summary: "restart what they belong to"}}
	client := engine.Get(s, module.KeyKube)
	next, err := c.nextID(s)
	if err != nil || client == nil || next == "" || s.Pending() {
		return change, err
	}
	at, err := markedAt(ctx, client, markCluster, next)
	if err != nil || at.IsZero() {
		return change, err
	}
	older, err := client.HoldAuthorities(ctx, at)
	if err != nil || len(older) > 0 {
		return change, err
	}
	others, err := client.Saying(ctx, c.r.old(next))
	if err != nil || len(others) > 0 {
		return change, err
	}
	return nil, nil
}

// renewPods restarts what pods belong to that were made before all namespaces were
// told of both authorities, and wants nobody to trust the old one alone then: what
// does would believe no API server any more.
func (c cluster) renewPods(ctx context.Context, s *engine.Scope) error {
	client := engine.Get(s, module.KeyKube)
	next, err := c.nextID(s)
	if err != nil {
		return err
	}
	at, err := marks(ctx, client, markCluster, next)
	if err != nil {
		return fmt.Errorf("noting since when pods are told of both authorities: %w", err)
	}
	if err := restartOlder(ctx, s, client, client.HoldAuthorities, at); err != nil {
		return err
	}
	pods, err := client.HoldAuthorities(ctx, at)
	if err != nil {
		return err
	}
	var names []string
	for _, w := range pods {
		names = append(names, w.String())
	}
	others, err := client.Saying(ctx, c.r.old(next))
	if err != nil {
		return err
	}
	return stillNeeded(append(names, others...), nil)
}

func (c cluster) mayNeed(context.Context, *engine.Scope) ([]plan.OpChange, error) {
	return []plan.OpChange{{Kind: module.KindObject, Target: "what trusts the old authority alone, or shows what it has signed", Summary: "look for it"}}, nil
}

// needed fails if something in the cluster trusts the old authority and not the next, or
// holds what the old one has signed: before the next signs nobody could get another.
func (c cluster) needed(ctx context.Context, s *engine.Scope) error {
	next, err := c.nextID(s)
	if err != nil {
		return err
	}
	client := engine.Get(s, module.KeyKube)
	trust, err := client.Saying(ctx, c.r.old(next))
	if err != nil {
		return err
	}
	show, err := client.Keeping(ctx, c.r.signed(next))
	if err != nil {
		return err
	}
	return stillNeeded(trust, show)
}

// stillNeeded fails if some trust the old authority alone, or hold what it has signed.
func stillNeeded(trust, show []string) error {
	var why []string
	if len(trust) > 0 {
		why = append(why, "it, and not the next one, is trusted by "+strings.Join(trust, ", "))
	}
	if len(show) > 0 {
		why = append(why, "certificates that it has signed, and that are valid yet, are in "+strings.Join(show, ", "))
	}
	if len(why) == 0 {
		return nil
	}
	return &op.Error{Reason: op.IDCAStillNeeded, Message: "the old authority of the cluster is still needed, and stays: " + strings.Join(why, "; ")}
}

// old says that a text holds an authority that goes, and not the next.
func (r ClusterRotation) old(next string) func(text []byte) bool {
	return func(text []byte) bool {
		if in, err := pki.KubeconfigCA(text); err == nil && len(in) > 0 {
			text = in
		}
		has, err := pki.Authorities(text)
		if err != nil || pki.Trusts(has, next) {
			return false
		}
		return slices.ContainsFunc(r.goes(next), func(a pki.Authority) bool { return pki.Trusts(has, a.ID) })
	}
}

// signed says that a text holds what an authority that goes has signed for somebody, and
// that is valid yet.
func (r ClusterRotation) signed(next string) func(text []byte) bool {
	now := r.Now()
	return func(text []byte) bool {
		return slices.ContainsFunc(r.goes(next), func(a pki.Authority) bool { return a.HasSigned(text, now) })
	}
}

// goes are the authorities that go, of all that some host trusts.
func (r ClusterRotation) goes(next string) []pki.Authority {
	return slices.DeleteFunc(slices.Clone(r.Known), func(a pki.Authority) bool { return a.ID == next })
}
