package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// IDProxyBehind is the id of a kube-proxy that does not apply changes of
// Services after its node was upgraded.
const IDProxyBehind = "kube-proxy-behind"

// gateTime is the timeout for kube-proxy. After its API server was down, the client of
// kube-proxy may pause for up to a minute before it reconnects.
const gateTime = 3 * time.Minute

// proxyGate returns when kube-proxy on the node has applied a change that was made after
// the node was upgraded. Until then it may send requests to pods that the next drain
// deletes. It creates an EndpointSlice without a Service, and deletes it when kube-proxy
// has received it. kube-proxy synchronizes its rules sequentially, so a synchronization
// with the deletion begins only after the one with the creation has ended. The counters do
// not identify the changes that they count: with many other changes at the same time, the
// gate can pass a moment early. During a rollback, a kube-proxy that is behind is only
// reported.
func proxyGate(ctx context.Context, env module.Env, s *engine.Scope) error {
	if env.Cluster.Spec.Kubernetes.ProxyMode == "none" {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, gateTime)
	defer cancel()
	h, client := s.Host(), engine.GetValue(s, module.KeyKube)
	sets, err := client.Workloads().ListDaemonSets(bounded)
	if err == nil && !slices.Contains(sets, namespace+"/kube-proxy") { // another program replaces it
		s.ShowProgress("there is no DaemonSet kube-proxy: not waiting for it")
		return nil
	}
	if err == nil {
		err = proxyApplies(bounded, client, gateSlice(h.Host), func(ctx context.Context) (op.ProxyCounters, string, error) {
			return proxyCounters(ctx, h)
		})
	}
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case env.Upgrade.IsRollback:
		s.ShowProgress("continuing: %v", err)
		return nil
	}
	return diag.List{{
		ID: IDProxyBehind, Severity: diag.Error,
		Message: fmt.Sprintf("kube-proxy on node %s has not applied a new change of Services within %s: %v", s.Host().Name, gateTime, err),
		Hint: "check that kube-proxy serves metrics at 127.0.0.1:10249, and read its log " +
			"(kubectl -n kube-system logs -l k8s-app=kube-proxy --prefix); fix the cause, then resume",
	}}
}

// A counterReader returns the counters of a kube-proxy, or why they are missing.
type counterReader func(context.Context) (c op.ProxyCounters, missing string, err error)

func proxyApplies(ctx context.Context, client *kube.Client, slice *unstructured.Unstructured, read counterReader) error {
	objs := []*unstructured.Unstructured{slice}
	if err := client.Objects().Delete(ctx, objs); err != nil { // one of an interrupted attempt
		return err
	}
	var seen op.ProxyCounters
	if err := client.WaitUntil(ctx, func(ctx context.Context) (missing string, err error) {
		seen, missing, err = read(ctx)
		return missing, err
	}); err != nil {
		return err
	}
	for _, change := range []func(context.Context, []*unstructured.Unstructured) error{client.Objects().Apply, client.Objects().Delete} {
		if err := change(ctx, objs); err != nil {
			return err
		}
		last := seen.Received
		if err := client.WaitUntil(ctx, func(ctx context.Context) (missing string, err error) {
			seen, missing, err = read(ctx)
			switch {
			case missing != "" || err != nil:
				return missing, err
			case seen.Received < last:
				last = 0 // the counters were reset by a restart
				return "kube-proxy was restarted", nil
			case seen.Received == last:
				return "kube-proxy has not received the change", nil
			case seen.Pending > 0:
				return "kube-proxy has not applied the change", nil
			}
			return "", nil
		}); err != nil {
			return errors.Join(err, cleanUp(ctx, client, objs))
		}
	}
	return nil
}

// cleanUp deletes the objects of the gate, even after its timeout.
func cleanUp(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return client.Objects().Delete(ctx, objs)
}

// proxyCounters returns the counters of a host's kube-proxy, or why they are
// missing.
func proxyCounters(ctx context.Context, h *engine.Host) (c op.ProxyCounters, missing string, err error) {
	results, err := h.Conn.Check(ctx, op.List{op.ProxyChanges{}})
	switch {
	case err != nil:
		return c, "", err
	case len(results) != 1:
		return c, "", fmt.Errorf("host %s returned %d results for one operation", h.Name, len(results))
	case results[0].Error != nil:
		return c, "", results[0].Error
	case results[0].Missing:
		return c, "kube-proxy does not serve metrics: " + string(results[0].Output), nil
	}
	if err := json.Unmarshal(results[0].Output, &c); err != nil {
		return c, "", fmt.Errorf("reading the counters of kube-proxy on %s: %w", h.Name, err)
	}
	return c, "", nil
}

// gateSlice returns an EndpointSlice that belongs to no Service: kube-proxy counts it, and
// creates no rule for it.
func gateSlice(h v1alpha1.Host) *unstructured.Unstructured {
	address, family := module.InternalAddress(h), "IPv4"
	if strings.Contains(address, ":") {
		family = "IPv6"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
		"metadata": map[string]any{
			"name": "slipway-kube-proxy-" + h.Name, "namespace": namespace,
			"labels": map[string]any{
				"kubernetes.io/service-name":             "slipway-kube-proxy",
				"endpointslice.kubernetes.io/managed-by": "slipway.dev",
			},
		},
		"endpoints": []any{map[string]any{"addresses": []any{address}}},
		"ports":     []any{map[string]any{"name": "gate", "port": int64(1), "protocol": "TCP"}},
	}}
}
