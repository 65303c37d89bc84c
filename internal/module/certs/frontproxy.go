package certs

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/plan"
)

const (
	// FrontProxy names the authority of the front proxy.
	FrontProxy = "front-proxy"
	// published is where API servers tell those that they hand requests to whom to
	// believe: each adds to it what it trusts, and takes nothing out.
	published    = "extension-apiserver-authentication"
	publishedKey = "requestheader-client-ca-file"
	publishTime  = 3 * time.Minute
)

// FrontProxyAuthority is the one by which those that API servers hand requests to
// (metrics-server, and other APIs of the cluster's own) know API servers.
func FrontProxyAuthority(env module.Env) Authority {
	ca := pkiDir + "front-proxy-ca"
	return Authority{
		Name: FrontProxy, CommonName: "front-proxy-ca", Cert: ca + ".crt", Key: ca + ".key", Trust: ca + ".crt",
		On: engine.Role(v1alpha1.RoleControlPlane), Keeper: env.IsFirst,
	}
}

var keyNextFrontProxy = engine.NewKey("certs.next-front-proxy", nextPair{})

// RotateFrontProxy is the module. Every API server trusts both authorities, and
// has told the others so, before any shows a certificate of the next one; and all
// have been seen to have read theirs before any drops the old one. API servers read all of it by
// themselves, so that none is restarted.
func RotateFrontProxy(env module.Env, r AuthorityRotation) engine.Module {
	next := []engine.KeyRef{keyNextFrontProxy.Ref()}
	asks := append(slices.Clone(next), module.KeyKube.Ref())
	get := func(s *engine.Scope) nextPair { return engine.Get(s, keyNextFrontProxy) }
	f := frontProxies{r}
	return engine.Module{Name: "rotate", Tasks: []engine.Task{
		r.make(env, keyNextFrontProxy, r.There),
		{
			ID: "rotate.front-proxy.trust", Title: "trust both authorities of the front proxy", On: r.On, When: r.Everywhere, Rollout: rolling, Consumes: next,
			Ops: func(s *engine.Scope) (op.List, error) {
				text, err := r.both(s.Host().Name, get(s).cert)
				return trusts(env, r.Trust, text), err
			},
		},
		{
			ID: "rotate.front-proxy.publish", Title: "wait until it is published that both count", Manager: true, When: r.Everywhere, Timeout: publishTime,
			Needs: []string{"rotate.front-proxy.trust"}, Consumes: asks,
			Run: &engine.Action{Check: f.unpublished, Apply: f.awaitPublished},
		},
		{
			ID: "rotate.front-proxy.sign", Title: "sign the front proxy's certificates with the next", On: r.On, When: r.Everywhere, Rollout: rolling, Consumes: next,
			Needs: []string{"rotate.front-proxy.publish"},
			Ops: func(s *engine.Scope) (op.List, error) {
				text, err := r.first(get(s).cert)
				list := op.List{op.File{Path: r.Key, Content: get(s).key, Mode: 0o600, Secret: true}}
				return append(append(list, trusts(env, r.Trust, text)...), r.signs(env, pkiDir+"front-proxy-client"), serves(env), shows(env)), err
			},
		},
		{
			ID: "rotate.front-proxy.answer", Title: "ask the APIs that API servers hand requests to", Manager: true, When: r.Everywhere, Timeout: publishTime,
			Needs: []string{"rotate.front-proxy.sign"}, Consumes: asks, Retry: engine.Retry{Attempts: 6, Delay: 2 * time.Second, Backoff: 1.5},
			Run: &engine.Action{Check: unanswered, Apply: answers},
		},
		{
			// One that has not read it yet would publish the old one again.
			ID: "rotate.front-proxy.drop", Title: "trust the next authority of the front proxy alone", On: r.On, When: r.Begun, Rollout: rolling, Consumes: next,
			Needs: []string{"rotate.front-proxy.answer"},
			Ops: func(s *engine.Scope) (op.List, error) {
				if r.Gone {
					return op.List{knows(env)}, nil
				}
				return trusts(env, r.Trust, get(s).cert), nil
			},
		},
		{
			ID: "rotate.front-proxy.withdraw", Title: "publish that the next alone counts", Manager: true, When: r.Begun, Timeout: publishTime,
			Needs: []string{"rotate.front-proxy.drop"}, Consumes: asks,
			Run: &engine.Action{Check: f.outdated, Apply: f.withdraw},
		},
		r.end("rotate.front-proxy.withdraw"),
	}}
}

// trusts has a control plane's API server go by a bundle, and waits until it does.
func trusts(env module.Env, file string, text []byte) op.List {
	return op.List{op.File{Path: file, Content: text}, knows(env)}
}

// shows waits until a control plane's API server has read the certificate that it shows
// to those that it hands requests to: there is nobody else whom it shows it, and so it
// is asked how often it has read it.
func shows(env module.Env) op.Reload {
	return op.Reload{
		Manifest: module.APIServerManifest, File: pkiDir + "front-proxy-client.crt", TimeoutSeconds: 180,
		Metrics: ownServer(env, "/metrics"), Queue: "DynamicCABundle-aggregator-proxy-cert",
	}
}

// knows waits until a control plane's API server knows its clients by what is in
// the files.
func knows(env module.Env) op.Wait {
	clients := cmp.Or(env.Cluster.Spec.Kubernetes.APIServer.ExtraArgs["client-ca-file"], pkiDir+"ca.crt")
	return op.Wait{
		TCP:    net.JoinHostPort("127.0.0.1", strconv.Itoa(env.Cluster.Spec.ControlPlaneEndpoint.Port)),
		Trusts: []string{clients, FrontProxyAuthority(env).Trust}, TimeoutSeconds: 180,
	}
}

// frontProxies is what of the exchange the API is asked for.
type frontProxies struct{ AuthorityRotation }

// publishedNow are the authorities that are published.
func publishedNow(ctx context.Context, client *kube.Client) ([]pki.Authority, error) {
	cm, err := client.ConfigMap(ctx, metav1.NamespaceSystem, published)
	if err != nil || cm == nil || cm.Data[publishedKey] == "" {
		return nil, err
	}
	return pki.Authorities([]byte(cm.Data[publishedKey]))
}

// change is what a task of the manager does to what is published.
func change(summary string) []plan.OpChange {
	return []plan.OpChange{{Kind: module.KindObject, Target: "ConfigMap " + metav1.NamespaceSystem + "/" + published, Summary: summary}}
}

func (f frontProxies) unpublished(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	client, next := engine.Get(s, module.KeyKube), engine.Get(s, keyNextFrontProxy).cert
	if client == nil || s.Pending() {
		return change("wait"), nil
	}
	missing, err := f.missing(ctx, client, next)
	if err != nil || missing == "" {
		return nil, err
	}
	return change("wait"), nil
}

// missing says what is not published yet; "" if all is that is to be.
func (f frontProxies) missing(ctx context.Context, client *kube.Client, next []byte) (string, error) {
	comes, err := f.parse(next)
	if err != nil {
		return "", err
	}
	now, err := publishedNow(ctx, client)
	if err != nil {
		return "", err
	}
	if len(comes) == 0 || !pki.Trusts(now, comes[0].ID) {
		return "the next authority is not in ConfigMap " + metav1.NamespaceSystem + "/" + published + " yet", nil
	}
	return "", nil
}

func (f frontProxies) awaitPublished(ctx context.Context, s *engine.Scope) error {
	client, next := engine.Get(s, module.KeyKube), engine.Get(s, keyNextFrontProxy).cert
	return client.Until(ctx, func(ctx context.Context) (string, error) { return f.missing(ctx, client, next) })
}

// unanswered says that something that API servers hand requests to does not answer.
func unanswered(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	any := []plan.OpChange{{Kind: module.KindObject, Target: "APIServices", Summary: "wait until they answer"}}
	client := engine.Get(s, module.KeyKube)
	if client == nil || s.Pending() {
		return any, nil
	}
	silent, err := client.SilentAPIs(ctx)
	if err != nil || len(silent) == 0 {
		return nil, err
	}
	return any, nil
}

// answers wants all APIs that API servers hand requests to to take what these show
// now: what does not is named.
func answers(ctx context.Context, s *engine.Scope) error {
	silent, err := engine.Get(s, module.KeyKube).SilentAPIs(ctx)
	if err != nil || len(silent) == 0 {
		return err
	}
	return &op.Error{Reason: op.IDAuthorityHeld, Message: "the old authority of the front proxy may still be needed, and stays: API servers show certificates of the next one, and do not get an answer from " + strings.Join(silent, ", ")}
}

// stays are those that hosts trust when what goes is dropped, and no others; none if
// that is not known yet.
func (f frontProxies) stays(s *engine.Scope) ([]pki.Authority, error) {
	if f.Gone {
		return f.Known, nil
	}
	return f.parse(engine.Get(s, keyNextFrontProxy).cert)
}

// agree says that two bundles have the same authorities.
func agree(one, other []pki.Authority) bool {
	in := func(a, b []pki.Authority) bool {
		return !slices.ContainsFunc(a, func(x pki.Authority) bool { return !pki.Trusts(b, x.ID) })
	}
	return in(one, other) && in(other, one)
}

func (f frontProxies) outdated(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	client := engine.Get(s, module.KeyKube)
	stays, err := f.stays(s)
	if client == nil || s.Pending() || err != nil {
		return change("drop the old authority"), err
	}
	now, err := publishedNow(ctx, client)
	if err != nil || agree(now, stays) {
		return nil, err
	}
	return change("drop the old authority"), nil
}

// withdraw publishes what is trusted alone. An API server that has not done so yet
// would put the old one back, so it is looked at again.
func (f frontProxies) withdraw(ctx context.Context, s *engine.Scope) error {
	client := engine.Get(s, module.KeyKube)
	stays, err := f.stays(s)
	if err != nil {
		return err
	}
	return client.Until(ctx, func(ctx context.Context) (string, error) {
		now, err := publishedNow(ctx, client)
		if err != nil || agree(now, stays) {
			return "", err
		}
		return "the old authority is published yet", client.Apply(ctx, []*unstructured.Unstructured{{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": published, "namespace": metav1.NamespaceSystem},
			"data":     map[string]any{publishedKey: string(pki.Bundle(stays...))},
		}}})
	})
}
