// Package clusterstate saves what is needed to manage a cluster: the admin kubeconfig
// on the manager, and the description of the cluster in the cluster.
package clusterstate

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
)

// The ConfigMap in kube-system with the description of the cluster, and its key. SignerKey
// is the public key of the signer of its backup sets. A person may compare it. A program
// must not trust it, because everyone who can write the ConfigMap can replace it.
const (
	Name      = "slipway-cluster"
	Key       = "cluster.yaml"
	SignerKey = "backupSigner"
)

// StateStore is the state of clusters on the manager.
type StateStore interface {
	// Kubeconfig returns the kubeconfig of the administrator; nil if there is none.
	Kubeconfig(ctx context.Context, name string) ([]byte, error)
	SaveKubeconfig(ctx context.Context, name string, content []byte) error
	// TakeOff removes a host from the state of a cluster, and returns the names of the
	// remaining hosts.
	TakeOff(ctx context.Context, cluster, host string) ([]string, error)
}

// SaveState is the module that saves the kubeconfig and the description of the
// cluster. admin is the key of the kubeconfig of the administrator
// from the control plane. owner identifies the manager of the cluster.
func SaveState(env module.Env, admin engine.Key[kubeconfig.Untrusted], store StateStore, owner string) engine.Module {
	return engine.Module{Name: "record", Tasks: []engine.Task{
		kubeconfigTask(env, admin, store),
		{
			ID: "record.cluster", Title: "save cluster description in cluster", Manager: true,
			Consumes: []engine.KeyRef{module.KeyKube.Ref()},
			Run:      module.KeepObjects(module.StaticObjects(func() ([]*unstructured.Unstructured, error) { return configMap(env, owner) })),
		},
	}}
}

// SaveKubeconfig is the module that saves only the kubeconfig of the administrator.
func SaveKubeconfig(env module.Env, admin engine.Key[kubeconfig.Untrusted], store StateStore) engine.Module {
	return engine.Module{Name: "record", Tasks: []engine.Task{kubeconfigTask(env, admin, store)}}
}

func kubeconfigTask(env module.Env, admin engine.Key[kubeconfig.Untrusted], store StateStore) engine.Task {
	return engine.Task{
		ID: "record.kubeconfig", Title: "save admin kubeconfig", Manager: true,
		Consumes: []engine.KeyRef{admin.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				change := []plan.OpChange{{Kind: "kubeconfig", Target: env.Cluster.Name, Summary: "save"}}
				conf := engine.GetValue(s, admin)
				if conf.Text == nil {
					return change, nil
				}
				have, err := store.Kubeconfig(ctx, env.Cluster.Name)
				if err != nil {
					return nil, err
				}
				want, err := MakeExternalKubeconfig(env, conf, have)
				if err != nil || bytes.Equal(have, want) {
					return nil, err
				}
				return change, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				have, err := store.Kubeconfig(ctx, env.Cluster.Name)
				if err != nil {
					return err
				}
				want, err := MakeExternalKubeconfig(env, engine.GetValue(s, admin), have)
				if err != nil {
					return err
				}
				return store.SaveKubeconfig(ctx, env.Cluster.Name, want)
			},
		},
	}
}

// RemoveHosts is the module that removes each host from the state when it has left,
// independently of the others. Until then another manager must know the host;
// afterwards it must not be joined again.
func RemoveHosts(env module.Env, store StateStore, owner string) engine.Module {
	return engine.Module{Name: "record", Tasks: []engine.Task{{
		ID: "record.left", Title: "remove host from cluster state", On: env.IsLeaving,
		// Each host writes the state that the previous one has left. An etcd member that
		// still exists must remain in the state.
		Needs: []string{"record.cluster", "leave.member"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
		Rollout: engine.Rollout{MaxParallel: "1"},
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				engine.GetValue(s, module.KeyKube)
				// The present content does not matter, because the host is added before
				// this step runs.
				return []plan.OpChange{{
					Kind: module.KindObject, Target: "ConfigMap kube-system/" + Name,
					Summary: "update: remove host " + s.Host().Name,
				}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				left, err := store.TakeOff(ctx, env.Cluster.Name, s.Host().Name)
				if err != nil {
					return err
				}
				now := env
				now.Leaving = slices.DeleteFunc(slices.Clone(env.Leaving), func(l module.LeavingHost) bool { return !slices.Contains(left, l.Name) })
				objs, err := configMap(now, owner)
				if err != nil {
					return err
				}
				return engine.GetValue(s, module.KeyKube).Objects().Apply(ctx, objs)
			},
		},
	}}}
}

// RemoveHostsFromState is the module that removes hosts only from the state on the
// manager, without any request to the cluster, while etcd has no data or receives other
// data.
func RemoveHostsFromState(env module.Env, store StateStore) engine.Module {
	return engine.Module{Name: "record", Tasks: []engine.Task{{
		ID: "record.off", Title: "remove host from local state", On: env.IsLeaving,
		Rollout: engine.Rollout{MaxParallel: "1"}, // each host writes the state that the previous one has left
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				return []plan.OpChange{{Kind: "record", Target: env.Cluster.Name, Summary: "update: remove host " + s.Host().Name}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				_, err := store.TakeOff(ctx, env.Cluster.Name, s.Host().Name)
				return err
			},
		},
	}}}
}

// configMap returns the description of the cluster, without secrets.
func configMap(env module.Env, owner string) ([]*unstructured.Unstructured, error) {
	text, err := yaml.Marshal(env.PublicDescription(env.WithLeaving()))
	if err != nil {
		return nil, fmt.Errorf("encoding the cluster description: %w", err)
	}
	data := map[string]any{Key: string(text), "owner": owner}
	if env.BackupSigner != "" {
		data[SignerKey] = env.BackupSigner
	}
	return []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": Name, "namespace": "kube-system"},
		"data":     data,
	}}}, nil
}
