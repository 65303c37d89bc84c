package kubeadm

import (
	"context"
	"slices"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// signing has controller managers sign with a certificate of their own while the
// cluster's authority is exchanged.
func signing(env module.Env) map[string]string {
	if !env.SignsApart {
		return nil
	}
	return map[string]string{"cluster-signing-cert-file": module.SigningCert}
}

// asItSigns has a control plane that has joined sign as it does: while the cluster's
// authority is exchanged, some have SigningCert and some have not.
func asItSigns(env module.Env, h *engine.Host) module.Env {
	if module.Holds(h) {
		env.SignsApart = module.SignsApart(h)
	}
	return env
}

// Signing has kubeadm write the manifests of a control plane, with a controller
// manager that signs with SigningCert, or with what all trust as it does else. What
// is on record of the cluster's settings says the same.
func Signing(env module.Env, h *engine.Host, apart bool) (op.List, error) {
	env.SignsApart = apart
	list, err := initFiles(env, h)
	if err != nil {
		return nil, err
	}
	list = append(list, controlPlane()...)
	if env.IsFirst(h) && !apart {
		list = append(list, initPhase(env, "upload-config").exec())
	}
	return list, nil
}

// Follows has kubeadm do again what it did once by the cluster's authority, on the
// host on which the cluster began, whose API server serves by another.
func Follows(env module.Env, h *engine.Host) (list op.List) {
	if !env.Begins(h) {
		return nil
	}
	for _, p := range initPhases(env) {
		if slices.Contains(p.inputs, caCert) {
			list = append(list, p.exec())
		}
	}
	return list
}

// Rereads has a node's kubelet have read files with which it is started, and the
// node do what it did before.
func Rereads(env module.Env, h *engine.Host, files ...string) op.Unit {
	return op.Unit{
		Name: "kubelet.service", Running: op.Bool(true), Again: env.Again(h, "kubelet.service"),
		RestartOn: append(kubeletFollows(), files...),
	}
}

// ReachBoth is the module that speaks to the API of a cluster whose authority is
// exchanged, when a step has been done: API servers are believed by the one that
// goes and by the one that comes.
func ReachBoth(env module.Env, step string) engine.Module {
	t := adminTask(env, anyServer, op.ReadFile{Path: module.NextCA})
	t.Needs = []string{step}
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{t}}
}

// ReachAfter is the module that speaks to the API by what the administrator has when
// a step has been done. It deletes the token that kubeadm made in that step.
func ReachAfter(env module.Env, step string) engine.Module {
	made := func(*engine.Scope) bool { return true }
	end := endTokensBy(env, module.KeyKubeAfter, made, step)
	end.ID = "readmit.token-end"
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{{
		ID: "kubeadm.admin-after", Title: "reach the API with what is new", On: env.IsFirst, Needs: []string{step},
		Provides: []engine.KeyRef{module.KeyKubeAfter.Ref()},
		Ops:      func(*engine.Scope) (op.List, error) { return op.List{op.ReadFile{Path: adminConf, Secret: true}}, nil },
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			if results[0].Missing {
				return nil
			}
			client, err := kube.New(results[0].Output, anyServer(s), kube.Options{Address: localAPI(env), Patience: apiPatience})
			if err == nil {
				engine.Provide(s, module.KeyKubeAfter, client)
			}
			return err
		},
	}, end}}
}

// ReadmitAnew is the module that has kubelets without the authority's key beside them
// ask for other credentials, when a step has been done: those that they have are given
// up for it, by the operations of anew.
func ReadmitAnew(env module.Env, step string, hosts []string, anew func(*engine.Host) (op.List, error)) engine.Module {
	on := func(h *engine.Host) bool { return slices.Contains(hosts, h.Name) }
	made := func(*engine.Scope) bool { return len(hosts) > 0 }
	return engine.Module{Name: "join", Tasks: []engine.Task{
		{
			ID: "readmit.token", Title: "make a join token", Manager: true, Needs: []string{step}, When: made,
			Consumes: []engine.KeyRef{module.KeyKube.Ref()}, Provides: []engine.KeyRef{keyToken.Ref()},
			Run: tokenAction(env),
		},
		{
			ID: "readmit.kubelet", Title: "have the kubelet ask for other credentials", On: on, Timeout: 12 * time.Minute,
			Consumes: []engine.KeyRef{keyToken.Ref()}, Rollout: engine.Rollout{MaxParallel: "10%", MaxUnavailable: "1"},
			Ops: func(s *engine.Scope) (op.List, error) {
				conf, err := bootstrapKubeconfig(env, engine.Get(s, keyToken))
				if err != nil {
					return nil, err
				}
				giveUp, err := anew(s.Host())
				if err != nil {
					return nil, err
				}
				list := append(op.List{op.File{Path: bootstrapConf, Mode: 0o600, Content: conf, Secret: true}}, giveUp...)
				return append(list,
					Rereads(env, s.Host(), caCert, bootstrapConf),
					op.Wait{Certificate: module.ClientCert, TimeoutSeconds: 420},
					op.Absent{Path: bootstrapConf},
				), nil
			},
		},
		readmitServing(env, module.JoinsAsWorker, on),
		endTokens(env, made, "readmit.kubelet"),
	}}
}
