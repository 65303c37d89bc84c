// Package endpoint makes nodes reach a working API server under the API name. Each mode
// that needs files on nodes or objects in the cluster has its own source file.
package endpoint

import (
	"context"
	"embed"
	"net"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

//go:embed templates
var files embed.FS

// Paths of the files of endpoint modes. A kubelet runs the pods in manifests before it
// reaches the API.
const (
	configDir = "/etc/kubernetes/slipway"
	manifests = "/etc/kubernetes/manifests"
	caCert    = "/etc/kubernetes/pki/ca.crt"
)

// MarkPaths returns files whose presence shows how nodes reach the API; facts are
// collected for them.
func MarkPaths() []string { return []string{module.KeepalivedManifest, module.KubeVIPManifest} }

// SetUpEndpoint is the module that sets up the API endpoint of nodes. It runs before
// nodes join, because their kubelets need it to reach the API. On running nodes, the
// endpoint of the mode works before the API name leads to it; PruneEndpoints removes
// the endpoint of another mode.
func SetUpEndpoint(env module.Env) engine.Module {
	tasks := append(keepalivedTasks(env), kubeVIPTasks(env)...)
	tasks = append(tasks, haproxyTask(env), relayTask(env), updaterTask(env))
	return engine.Module{Name: "endpoint", Tasks: append(tasks,
		engine.Task{
			ID: "endpoint.name", Title: "add API name to hosts file", On: module.JoinsAsWorker, Timeout: 4 * time.Minute,
			Ops: func(s *engine.Scope) (op.List, error) { return op.List{hostsEntry(env, s.Host())}, nil },
		},
		engine.Task{
			ID: "endpoint.pods", Title: "update API name in host-network pods", On: module.JoinsAsWorker,
			When: func(s *engine.Scope) bool { return module.IsJoined(s.Host()) },
			Ops: func(s *engine.Scope) (op.List, error) {
				return op.List{op.PodHosts{
					Name: env.Cluster.Spec.ControlPlaneEndpoint.Domain, Address: spec.EndpointAddress(env.Cluster, s.Host().Host),
				}}, nil
			},
		},
	)}
}

// hostsEntry returns the entry of the API name in the hosts file. A node already uses
// that name, so the API must answer at the address first.
func hostsEntry(env module.Env, h *engine.Host) op.Block {
	ep := env.Cluster.Spec.ControlPlaneEndpoint
	b := op.Block{Path: "/etc/hosts", Name: env.Cluster.Name + " API"}
	at := spec.EndpointAddress(env.Cluster, h.Host)
	if at != "" {
		b.Lines = []string{at + " " + ep.Domain}
	} else { // the user makes the name resolvable on every host
		at = ep.Domain
	}
	if module.IsJoined(h) {
		b.Gate = &op.Wait{HTTP: "https://" + net.JoinHostPort(at, strconv.Itoa(ep.Port)) + "/readyz", TimeoutSeconds: 180}
	}
	return b
}

// PruneEndpoints is the module that removes the endpoints of previous modes when no
// node uses them. It does nothing if a node has failed or does not take part, because
// that node may still use them.
func PruneEndpoints(env module.Env) engine.Module {
	through := []string{"endpoint.pods"}
	asked := func(*engine.Scope) bool {
		return !slices.ContainsFunc(env.Absent, func(h v1alpha1.Host) bool { return module.JoinsAsWorker(&engine.Host{Host: h}) })
	}
	return engine.Module{Name: "endpoint-end", Tasks: []engine.Task{
		{
			ID: "endpoint.retire", Title: "remove previous API endpoint", On: module.IsNode, When: asked, Needs: through, NeedsAll: true,
			Ops: func(*engine.Scope) (op.List, error) {
				var list op.List
				for step, mode := range map[string]v1alpha1.EndpointMode{
					stepHAProxy: v1alpha1.EndpointHAProxy, stepRelay: v1alpha1.EndpointUpdater, stepKeepalived: v1alpha1.EndpointKeepalived,
					stepKubeVIP: v1alpha1.EndpointKubeVIP, stepKubeVIPJoined: v1alpha1.EndpointKubeVIP,
				} {
					if mode != env.Cluster.Spec.ControlPlaneEndpoint.Mode {
						list = append(list, op.RevertStep{Step: step})
					}
				}
				return sortOps(list), nil
			},
		},
		removeModeTask(env, asked, v1alpha1.EndpointUpdater, "endpoint.updater-end", "remove API Service", updaterTraces),
		removeModeTask(env, asked, v1alpha1.EndpointKubeVIP, "endpoint.kube-vip-end", "remove kube-vip permissions",
			func(module.Env) ([]*unstructured.Unstructured, error) { return kubeVIPRights() }),
	}}
}

// removeModeTask removes the objects of another mode from the cluster when no node uses
// that mode.
func removeModeTask(
	env module.Env, asked func(*engine.Scope) bool, mode v1alpha1.EndpointMode, id, title string,
	traces func(module.Env) ([]*unstructured.Unstructured, error),
) engine.Task {
	return engine.Task{
		ID: id, Title: title, Manager: true, Needs: []string{"endpoint.pods", "endpoint.retire"}, NeedsAll: true,
		Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		When: func(s *engine.Scope) bool {
			return asked(s) && env.Cluster.Spec.ControlPlaneEndpoint.Mode != mode
		},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				objs, err := traces(env)
				if err != nil {
					return nil, err
				}
				return remainingObjects(ctx, s, objs)
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				objs, err := traces(env)
				if err != nil {
					return err
				}
				return engine.GetValue(s, module.KeyKube).Objects().Delete(ctx, objs)
			},
		},
	}
}

// remainingObjects returns the objects that still exist in the cluster, as changes.
func remainingObjects(ctx context.Context, s *engine.Scope, objs []*unstructured.Unstructured) ([]plan.OpChange, error) {
	client := engine.GetValue(s, module.KeyKube)
	if client == nil {
		return nil, nil // no cluster yet
	}
	there, err := client.Objects().FindExisting(ctx, objs)
	var out []plan.OpChange
	for _, o := range there {
		out = append(out, plan.OpChange{
			Kind:   module.KindObject,
			Target: kube.Change{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}.ObjectName(), Summary: "delete",
		})
	}
	return out, err
}
