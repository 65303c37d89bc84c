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

// Where the cluster publishes its CAs, for joining nodes and for API servers of
// extensions.
var (
	toldToJoin   = publishedCAs{metav1.NamespacePublic, "cluster-info", "kubeconfig"}
	toldToOthers = publishedCAs{metav1.NamespaceSystem, published, "client-ca-file"}
)

type publishedCAs struct{ namespace, name, key string }

func (t publishedCAs) writeCAs(ctx context.Context, client *kube.Client, text []byte) error {
	return client.Objects().Apply(ctx, []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": t.name, "namespace": t.namespace},
		"data": map[string]any{t.key: string(text)},
	}}})
}

// changedText returns the new content if the published CAs are different; nil if they are
// equal, or if the object does not exist.
func (t publishedCAs) changedText(ctx context.Context, client *kube.Client, authorities []byte) ([]byte, error) {
	cm, err := client.ConfigMaps().Get(ctx, t.namespace, t.name)
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

// publishAction publishes CAs in the cluster. API servers add to what extensions read,
// and remove nothing. So that is done when they trust only the new CA.
func (c clusterRotator) publishAction(key engine.Key[*kube.Client], what func(*engine.Scope) ([]byte, error), alone bool) *engine.Action {
	where := []publishedCAs{toldToJoin}
	if alone {
		where = append(where, toldToOthers)
	}
	return &engine.Action{
		Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
			change := []plan.OpChange{{Kind: module.KindObject, Target: "CA certificates for pods and joining nodes", Summary: "publish"}}
			client := engine.GetValue(s, key)
			text, err := what(s)
			if err != nil || client == nil || s.IsPending() || len(text) == 0 {
				return change, err
			}
			for _, t := range where {
				if other, err := t.changedText(ctx, client, text); err != nil || other != nil {
					return change, err
				}
			}
			if others, err := client.Trust().ListOtherRootCAs(ctx, matchSameCAs(text)); err != nil || len(others) > 0 {
				return change, err
			}
			return nil, nil
		},
		Apply: func(ctx context.Context, s *engine.Scope) error {
			client := engine.GetValue(s, key)
			text, err := what(s)
			if err != nil {
				return err
			}
			for _, t := range where {
				other, err := t.changedText(ctx, client, text)
				if err == nil && other != nil {
					err = t.writeCAs(ctx, client, other)
				}
				if err != nil {
					return err
				}
			}
			return client.Trust().WaitRootCAs(ctx, matchSameCAs(text), func(missing string) { s.ShowProgress("%s", missing) })
		},
	}
}

// matchSameCAs reports whether a text holds the same CAs as another, in any order.
func matchSameCAs(as []byte) func(text []byte) bool {
	want, wrong := pki.ParseAuthorities(as)
	return func(text []byte) bool {
		have, err := pki.ParseAuthorities(text)
		if err != nil || wrong != nil || len(have) != len(want) {
			return false
		}
		for _, a := range want {
			if !pki.TrustsCA(have, a.ID) {
				return false
			}
		}
		return true
	}
}

// nextID returns the id of the new CA; "" if it does not exist yet.
func (c clusterRotator) nextID(s *engine.Scope) (string, error) {
	next, err := c.r.parseNextCA(engine.GetValue(s, keyNextCA).cert)
	if next == nil || err != nil {
		return "", err
	}
	return next[0].ID, nil
}

// olderPods returns the change if pods must be restarted, or if something else trusts only
// the old CA.
func (c clusterRotator) olderPods(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	change := []plan.OpChange{{Kind: module.KindObject, Target: "pods that trust only the old CA", Summary: "restart their workloads"}}
	client := engine.GetValue(s, module.KeyKube)
	next, err := c.nextID(s)
	if err != nil || client == nil || next == "" || s.IsPending() {
		return change, err
	}
	at, err := readMarkTime(ctx, client, markCluster, next)
	if err != nil || at.IsZero() {
		return change, err
	}
	older, err := client.Trust().FindCAHolders(ctx, at)
	if err != nil || len(older) > 0 {
		return change, err
	}
	others, err := client.Trust().FindObjectsWithText(ctx, c.r.matchOldCA(next))
	if err != nil || len(others) > 0 {
		return change, err
	}
	return nil, nil
}

// renewPods restarts the workloads of pods that were created before both CAs were
// published in all namespaces. It then returns an error if something trusts only the old
// CA, because it would reject all API servers later.
func (c clusterRotator) renewPods(ctx context.Context, s *engine.Scope) error {
	client := engine.GetValue(s, module.KeyKube)
	next, err := c.nextID(s)
	if err != nil {
		return err
	}
	at, err := createMark(ctx, client, markCluster, next)
	if err != nil {
		return fmt.Errorf("recording when both CAs were published to pods: %w", err)
	}
	if err := restartOlder(ctx, s, client, client.Trust().FindCAHolders, at); err != nil {
		return err
	}
	pods, err := client.Trust().FindCAHolders(ctx, at)
	if err != nil {
		return err
	}
	var names []string
	for _, w := range pods {
		names = append(names, w.String())
	}
	others, err := client.Trust().FindObjectsWithText(ctx, c.r.matchOldCA(next))
	if err != nil {
		return err
	}
	return oldCANeededError(append(names, others...), nil)
}

func (c clusterRotator) planOldCACheck(context.Context, *engine.Scope) ([]plan.OpChange, error) {
	return []plan.OpChange{{Kind: module.KindObject, Target: "trust in the old CA and certificates signed by it", Summary: "check"}}, nil
}

// checkOldCAUnused returns an error if something in the cluster trusts the old CA and
// not the new one, or holds a certificate signed by the old one. It runs after the new
// CA signs, because only then can others get new certificates.
func (c clusterRotator) checkOldCAUnused(ctx context.Context, s *engine.Scope) error {
	next, err := c.nextID(s)
	if err != nil {
		return err
	}
	client := engine.GetValue(s, module.KeyKube)
	trust, err := client.Trust().FindObjectsWithText(ctx, c.r.matchOldCA(next))
	if err != nil {
		return err
	}
	show, err := client.Trust().FindConfigWithText(ctx, c.r.matchOldCert(next))
	if err != nil {
		return err
	}
	return oldCANeededError(trust, show)
}

// oldCANeededError returns an error if something trusts only the old CA, or holds a
// certificate that it has signed.
func oldCANeededError(trust, show []string) error {
	var why []string
	if len(trust) > 0 {
		why = append(why, "it, and not the new CA, is trusted by "+strings.Join(trust, ", "))
	}
	if len(show) > 0 {
		why = append(why, "valid certificates signed by it are in "+strings.Join(show, ", "))
	}
	if len(why) == 0 {
		return nil
	}
	return &op.Error{Reason: op.IDCAStillNeeded, Message: "the old cluster CA is still needed and is kept: " + strings.Join(why, "; ")}
}

// matchOldCA reports whether a text holds an old CA, and not the new one.
func (r ClusterRotation) matchOldCA(next string) func(text []byte) bool {
	return func(text []byte) bool {
		if in, err := pki.KubeconfigCA(text); err == nil && len(in) > 0 {
			text = in
		}
		has, err := pki.ParseAuthorities(text)
		if err != nil || pki.TrustsCA(has, next) {
			return false
		}
		return slices.ContainsFunc(r.droppedCAs(next), func(a pki.Authority) bool { return pki.TrustsCA(has, a.ID) })
	}
}

// matchOldCert reports whether a text holds a valid certificate that an old CA has
// signed for others.
func (r ClusterRotation) matchOldCert(next string) func(text []byte) bool {
	now := r.Now()
	return func(text []byte) bool {
		return slices.ContainsFunc(r.droppedCAs(next), func(a pki.Authority) bool { return a.HasSigned(text, now) })
	}
}

// droppedCAs returns the old CAs among all that any host trusts.
func (r ClusterRotation) droppedCAs(next string) []pki.Authority {
	return slices.DeleteFunc(slices.Clone(r.Known), func(a pki.Authority) bool { return a.ID == next })
}
