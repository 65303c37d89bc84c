// Package record keeps what is needed to take a cluster over: the admin
// kubeconfig with the manager, and the cluster's description in the cluster.
package record

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

// The config map in kube-system that the cluster's description is in, and its
// key there. SignerKey is the key of the public half of what signs its backup sets. A
// person may compare it: a program must not trust it, for whoever can write the config
// map can write another one there.
const (
	Name      = "slipway-cluster"
	Key       = "cluster.yaml"
	SignerKey = "backupSigner"
)

// Records are what the manager keeps of clusters.
type Records interface {
	// Kubeconfig answers the administrator's, nil if there is none.
	Kubeconfig(name string) ([]byte, error)
	SaveKubeconfig(name string, content []byte) error
	// TakeOff takes a host off a cluster, and answers the names of those that
	// are left.
	TakeOff(cluster, host string) ([]string, error)
}

// New is the module. admin is the key of the administrator's kubeconfig as
// the control plane has it; owner says who looks after the cluster.
func New(env module.Env, admin engine.Key[kubeconfig.Untrusted], keep Records, owner string) engine.Module {
	return engine.Module{Name: "record", Tasks: []engine.Task{
		kubeconfigTask(env, admin, keep),
		{
			ID: "record.cluster", Title: "record the cluster in itself", Manager: true,
			Consumes: []engine.KeyRef{module.KeyKube.Ref()},
			Run:      module.Objects(module.Wanted(func() ([]*unstructured.Unstructured, error) { return configMap(env, owner) })),
		},
	}}
}

// Kubeconfig is the module that keeps the administrator's kubeconfig alone.
func Kubeconfig(env module.Env, admin engine.Key[kubeconfig.Untrusted], keep Records) engine.Module {
	return engine.Module{Name: "record", Tasks: []engine.Task{kubeconfigTask(env, admin, keep)}}
}

func kubeconfigTask(env module.Env, admin engine.Key[kubeconfig.Untrusted], keep Records) engine.Task {
	return engine.Task{
		ID: "record.kubeconfig", Title: "keep the admin kubeconfig", Manager: true,
		Consumes: []engine.KeyRef{admin.Ref()},
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				change := []plan.OpChange{{Kind: "kubeconfig", Target: env.Cluster.Name, Summary: "keep"}}
				conf := engine.Get(s, admin)
				if conf.Text == nil {
					return change, nil
				}
				have, err := keep.Kubeconfig(env.Cluster.Name)
				if err != nil {
					return nil, err
				}
				want, err := Outside(env, conf, have)
				if err != nil || bytes.Equal(have, want) {
					return nil, err
				}
				return change, nil
			},
			Apply: func(_ context.Context, s *engine.Scope) error {
				have, err := keep.Kubeconfig(env.Cluster.Name)
				if err != nil {
					return err
				}
				want, err := Outside(env, engine.Get(s, admin), have)
				if err != nil {
					return err
				}
				return keep.SaveKubeconfig(env.Cluster.Name, want)
			},
		},
	}
}

// Left is the module that takes each host off the records when it has left,
// whatever becomes of the others: until then whoever takes the cluster over
// must know of it, and afterwards nobody may join it again.
func Left(env module.Env, keep Records, owner string) engine.Module {
	return engine.Module{Name: "record", Tasks: []engine.Task{{
		ID: "record.left", Title: "take the host off the records", On: env.Leaves,
		// Each writes what the one before it has left. A member that is in etcd yet
		// would be known to nobody.
		Needs: []string{"record.cluster", "leave.member"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()}, Rollout: engine.Rollout{MaxParallel: "1"},
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				engine.Get(s, module.KeyKube)
				// What is there now says nothing: by then it is on them.
				return []plan.OpChange{{Kind: module.KindObject, Target: "ConfigMap kube-system/" + Name, Summary: "take " + s.Host().Name + " off"}}, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				left, err := keep.TakeOff(env.Cluster.Name, s.Host().Name)
				if err != nil {
					return err
				}
				now := env
				now.Leaving = slices.DeleteFunc(slices.Clone(env.Leaving), func(l module.Leaving) bool { return !slices.Contains(left, l.Name) })
				objs, err := configMap(now, owner)
				if err != nil {
					return err
				}
				return engine.Get(s, module.KeyKube).Apply(ctx, objs)
			},
		},
	}}}
}

// Off is the module that takes each host off the manager's records, and asks nobody:
// while etcd has no data to go by, or is given others.
func Off(env module.Env, keep Records) engine.Module {
	return engine.Module{Name: "record", Tasks: []engine.Task{{
		ID: "record.off", Title: "take the host off this machine's records", On: env.Leaves,
		Rollout: engine.Rollout{MaxParallel: "1"}, // each writes what the one before it has left
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				return []plan.OpChange{{Kind: "record", Target: env.Cluster.Name, Summary: "take " + s.Host().Name + " off"}}, nil
			},
			Apply: func(_ context.Context, s *engine.Scope) error {
				_, err := keep.TakeOff(env.Cluster.Name, s.Host().Name)
				return err
			},
		},
	}}}
}

// configMap is the cluster's description, in which secrets are not.
func configMap(env module.Env, owner string) ([]*unstructured.Unstructured, error) {
	wanted := spec.Redacted(env.WithLeaving())
	wanted.Status = v1alpha1.ClusterStatus{} // changes with every operation, and is no part of what is wanted
	text, err := yaml.Marshal(wanted)
	if err != nil {
		return nil, fmt.Errorf("describing the cluster: %w", err)
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
