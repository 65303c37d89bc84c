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
	// FrontProxy is the name of the front proxy CA.
	FrontProxy = "front-proxy"
	// published is the ConfigMap in which API servers publish the CAs that extension API
	// servers must trust. Each API server adds its own, and removes none.
	published    = "extension-apiserver-authentication"
	publishedKey = "requestheader-client-ca-file"
	publishTime  = 3 * time.Minute
)

// FrontProxyAuthority returns the CA with which extension API servers (metrics-server and
// others) verify API servers.
func FrontProxyAuthority(env module.Env) Authority {
	ca := pkiDir + "front-proxy-ca"
	return Authority{
		Name: FrontProxy, CommonName: "front-proxy-ca", Cert: ca + ".crt", Key: ca + ".key", Trust: ca + ".crt",
		On: engine.HasRole(v1alpha1.RoleControlPlane), Keeper: env.IsFirst,
	}
}

var keyNextFrontProxy = engine.NewKey("certs.next-front-proxy", nextPair{})

// RotateFrontProxy is the module that rotates the front proxy CA. Every API server trusts
// and publishes both CAs before any uses a certificate of the new one. All are known to
// have read theirs before any drops the old one. API servers read all files automatically,
// so none is restarted.
func RotateFrontProxy(env module.Env, r AuthorityRotation) engine.Module {
	next := []engine.KeyRef{keyNextFrontProxy.Ref()}
	asks := append(slices.Clone(next), module.KeyKube.Ref())
	get := func(s *engine.Scope) nextPair { return engine.GetValue(s, keyNextFrontProxy) }
	f := frontProxies{r}
	return engine.Module{Name: "rotate", Tasks: []engine.Task{
		r.createCATask(env, keyNextFrontProxy, r.IsOldTrusted),
		{
			ID: "rotate.front-proxy.trust", Title: "trust both front proxy CAs", On: r.On, When: r.IsOldTrustedEverywhere, Rollout: rolling,
			Consumes: next,
			Ops: func(s *engine.Scope) (op.List, error) {
				text, err := r.bothCAs(s.Host().Name, get(s).cert)
				return trustBundle(env, r.Trust, text), err
			},
		},
		{
			ID: "rotate.front-proxy.publish", Title: "wait until both CAs are published", Manager: true, When: r.IsOldTrustedEverywhere,
			Timeout: publishTime,
			Needs:   []string{"rotate.front-proxy.trust"}, Consumes: asks,
			Run: &engine.Action{Check: f.planPublish, Apply: f.awaitPublished},
		},
		{
			ID: "rotate.front-proxy.sign", Title: "reissue front proxy certificates", On: r.On, When: r.IsOldTrustedEverywhere, Rollout: rolling,
			Consumes: next,
			Needs:    []string{"rotate.front-proxy.publish"},
			Ops: func(s *engine.Scope) (op.List, error) {
				text, err := r.newCAFirst(get(s).cert)
				list := op.List{op.File{Path: r.Key, Content: get(s).key, Mode: 0o600, Secret: true}}
				return append(append(list, trustBundle(env, r.Trust, text)...),
					r.reissueCert(env, pkiDir+"front-proxy-client"), waitAPIServes(env), waitCertShown(env)), err
			},
		},
		{
			ID: "rotate.front-proxy.answer", Title: "check aggregated APIs", Manager: true, When: r.IsOldTrustedEverywhere,
			Timeout: publishTime,
			Needs:   []string{"rotate.front-proxy.sign"}, Consumes: asks, Retry: engine.Retry{Attempts: 6, Delay: 2 * time.Second, Backoff: 1.5},
			Run: &engine.Action{Check: planAPICheck, Apply: checkAggregatedAPIs},
		},
		{
			// An API server that has not read the file yet would publish the old CA again.
			ID: "rotate.front-proxy.drop", Title: "trust new front proxy CA only", On: r.On, When: r.HasBegun, Rollout: rolling, Consumes: next,
			Needs: []string{"rotate.front-proxy.answer"},
			Ops: func(s *engine.Scope) (op.List, error) {
				if r.Gone {
					return op.List{waitCAsLoaded(env)}, nil
				}
				return trustBundle(env, r.Trust, get(s).cert), nil
			},
		},
		{
			ID: "rotate.front-proxy.withdraw", Title: "publish only new front proxy CA", Manager: true, When: r.HasBegun, Timeout: publishTime,
			Needs: []string{"rotate.front-proxy.drop"}, Consumes: asks,
			Run: &engine.Action{Check: f.planWithdrawal, Apply: f.withdrawOldCA},
		},
		r.deleteFilesTask("rotate.front-proxy.withdraw"),
	}}
}

// trustBundle makes the API server of a control plane use a bundle of CAs, and waits
// until it does.
func trustBundle(env module.Env, file string, text []byte) op.List {
	return op.List{op.File{Path: file, Content: text}, waitCAsLoaded(env)}
}

// waitCertShown waits until the API server of a control plane has read its front proxy
// certificate. It shows that certificate only to extension API servers, so its metrics are
// used to detect the reload.
func waitCertShown(env module.Env) op.TriggerReload {
	return op.TriggerReload{
		Manifest: module.APIServerManifest, File: pkiDir + "front-proxy-client.crt", TimeoutSeconds: 180,
		Metrics: requestLocalServer(env, "/metrics"), Queue: "DynamicCABundle-aggregator-proxy-cert",
	}
}

// waitCAsLoaded waits until the API server of a control plane verifies clients with the
// CAs in its files.
func waitCAsLoaded(env module.Env) op.Wait {
	clients := cmp.Or(env.Cluster.Spec.Kubernetes.APIServer.ExtraArgs["client-ca-file"], pkiDir+"ca.crt")
	return op.Wait{
		TCP:    net.JoinHostPort("127.0.0.1", strconv.Itoa(env.Cluster.Spec.ControlPlaneEndpoint.Port)),
		Trusts: []string{clients, FrontProxyAuthority(env).Trust}, TimeoutSeconds: 180,
	}
}

// frontProxies is the part of the rotation that uses the API.
type frontProxies struct{ AuthorityRotation }

// publishedNow returns the CAs that are published.
func publishedNow(ctx context.Context, client *kube.Client) ([]pki.Authority, error) {
	cm, err := client.ConfigMaps().Get(ctx, metav1.NamespaceSystem, published)
	if err != nil || cm == nil || cm.Data[publishedKey] == "" {
		return nil, err
	}
	return pki.ParseAuthorities([]byte(cm.Data[publishedKey]))
}

// publishChange returns the change of a manager task to the published CAs.
func publishChange(summary string) []plan.OpChange {
	return []plan.OpChange{{Kind: module.KindObject, Target: "ConfigMap " + metav1.NamespaceSystem + "/" + published, Summary: summary}}
}

func (f frontProxies) planPublish(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	client, next := engine.GetValue(s, module.KeyKube), engine.GetValue(s, keyNextFrontProxy).cert
	if client == nil || s.IsPending() {
		return publishChange("wait"), nil
	}
	missing, err := f.missingCAs(ctx, client, next)
	if err != nil || missing == "" {
		return nil, err
	}
	return publishChange("wait"), nil
}

// missingCAs returns the names of CAs that are not published yet; "" if none is missing.
func (f frontProxies) missingCAs(ctx context.Context, client *kube.Client, next []byte) (string, error) {
	comes, err := f.parseNextCA(next)
	if err != nil {
		return "", err
	}
	now, err := publishedNow(ctx, client)
	if err != nil {
		return "", err
	}
	if len(comes) == 0 || !pki.TrustsCA(now, comes[0].ID) {
		return "the new CA is not yet in ConfigMap " + metav1.NamespaceSystem + "/" + published, nil
	}
	return "", nil
}

func (f frontProxies) awaitPublished(ctx context.Context, s *engine.Scope) error {
	client, next := engine.GetValue(s, module.KeyKube), engine.GetValue(s, keyNextFrontProxy).cert
	return client.WaitUntil(ctx, func(ctx context.Context) (string, error) { return f.missingCAs(ctx, client, next) })
}

// planAPICheck returns a change if an extension API server does not answer.
func planAPICheck(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	any := []plan.OpChange{{Kind: module.KindObject, Target: "APIServices", Summary: "wait until they answer"}}
	client := engine.GetValue(s, module.KeyKube)
	if client == nil || s.IsPending() {
		return any, nil
	}
	silent, err := client.APIServer().ListSilentAPIs(ctx)
	if err != nil || len(silent) == 0 {
		return nil, err
	}
	return any, nil
}

// checkAggregatedAPIs returns an error that names the aggregated APIs that do not
// answer API servers with the new certificates.
func checkAggregatedAPIs(ctx context.Context, s *engine.Scope) error {
	silent, err := engine.GetValue(s, module.KeyKube).APIServer().ListSilentAPIs(ctx)
	if err != nil || len(silent) == 0 {
		return err
	}
	return &op.Error{Reason: op.IDAuthorityHeld, Message: "the old front proxy CA may still be needed and is kept: " +
		"API servers use certificates of the new CA, and get no answer from " + strings.Join(silent, ", ")}
}

// remainingCAs returns the CAs that hosts trust after the old one is dropped; none if
// they are not known yet.
func (f frontProxies) remainingCAs(s *engine.Scope) ([]pki.Authority, error) {
	if f.Gone {
		return f.Known, nil
	}
	return f.parseNextCA(engine.GetValue(s, keyNextFrontProxy).cert)
}

// haveSameCAs reports whether two bundles have the same CAs.
func haveSameCAs(one, other []pki.Authority) bool {
	in := func(a, b []pki.Authority) bool {
		return !slices.ContainsFunc(a, func(x pki.Authority) bool { return !pki.TrustsCA(b, x.ID) })
	}
	return in(one, other) && in(other, one)
}

func (f frontProxies) planWithdrawal(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	client := engine.GetValue(s, module.KeyKube)
	stays, err := f.remainingCAs(s)
	if client == nil || s.IsPending() || err != nil {
		return publishChange("drop the old CA"), err
	}
	now, err := publishedNow(ctx, client)
	if err != nil || haveSameCAs(now, stays) {
		return nil, err
	}
	return publishChange("drop the old CA"), nil
}

// withdrawOldCA publishes only the new CA. An API server that still has the old one
// would add it again, so the result is verified.
func (f frontProxies) withdrawOldCA(ctx context.Context, s *engine.Scope) error {
	client := engine.GetValue(s, module.KeyKube)
	stays, err := f.remainingCAs(s)
	if err != nil {
		return err
	}
	return client.WaitUntil(ctx, func(ctx context.Context) (string, error) {
		now, err := publishedNow(ctx, client)
		if err != nil || haveSameCAs(now, stays) {
			return "", err
		}
		return "the old CA is still published", client.Objects().Apply(ctx, []*unstructured.Unstructured{{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": published, "namespace": metav1.NamespaceSystem},
			"data":     map[string]any{publishedKey: string(pki.BundleCAs(stays...))},
		}}})
	})
}
