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

// signingArgs makes controller managers sign with a separate certificate during a
// rotation of the cluster CA.
func signingArgs(env module.Env) map[string]string {
	if !env.SignsApart {
		return nil
	}
	return map[string]string{"cluster-signing-cert-file": module.SigningCert}
}

// keepSigner returns an environment in which a joined control plane signs as it does now:
// during a rotation of the cluster CA, some have SigningCert and some do not.
func keepSigner(env module.Env, h *engine.Host) module.Env {
	if module.IsJoined(h) {
		env.SignsApart = module.SignsApart(h)
	}
	return env
}

// ChangeSigner makes kubeadm write the manifests of a control plane, with a controller
// manager that signs with SigningCert (apart), or with the trusted CA as usual. The
// saved configuration of the cluster is updated accordingly.
func ChangeSigner(env module.Env, h *engine.Host, apart bool) (op.List, error) {
	env.SignsApart = apart
	list, err := initFiles(env, h)
	if err != nil {
		return nil, err
	}
	list = append(list, rerunControlPlanePhase()...)
	if env.IsFirst(h) && !apart {
		list = append(list, initPhase(env, "upload-config").asExec())
	}
	return list, nil
}

// RerunCAPhases makes kubeadm repeat what it did once with the cluster CA, on the host
// on which the cluster was created, whose API server now has another one.
func RerunCAPhases(env module.Env, h *engine.Host) (list op.List) {
	if !env.IsInitNode(h) {
		return nil
	}
	for _, p := range initPhases(env) {
		if slices.Contains(p.inputs, caCert) {
			list = append(list, p.asExec())
		}
	}
	return list
}

// ReloadKubelet makes the kubelet of a node read files again that it reads at its
// start, and waits until the node does what it did before.
func ReloadKubelet(env module.Env, h *engine.Host, files ...string) op.Unit {
	return op.Unit{
		Name: "kubelet.service", Running: op.Bool(true), Again: env.HealthGate(h, "kubelet.service"),
		RestartOn: append(kubeletStartFiles(), files...),
	}
}

// ConnectAPIWithBothCAs is the module that connects to the API during a rotation of the
// cluster CA, after a step: API servers may have certificates of the old or the new CA.
func ConnectAPIWithBothCAs(env module.Env, step string) engine.Module {
	t := adminTask(env, dialAnyServer, op.ReadFile{Path: module.NextCA})
	t.Needs = []string{step}
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{t}}
}

// ConnectAPIWithNewCA is the module that connects to the API with the administrator
// credentials after a step. It deletes the token that kubeadm created in that step.
func ConnectAPIWithNewCA(env module.Env, step string) engine.Module {
	made := func(*engine.Scope) bool { return true }
	end := revokeTokensTaskWith(env, module.KeyKubeAfter, made, step)
	end.ID = "readmit.token-end"
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{{
		ID: "kubeadm.admin-after", Title: "connect to API with new CA", On: env.IsFirst, Needs: []string{step},
		Provides: []engine.KeyRef{module.KeyKubeAfter.Ref()},
		Ops:      func(*engine.Scope) (op.List, error) { return op.List{op.ReadFile{Path: adminConf, Secret: true}}, nil },
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			if results[0].Missing {
				return nil
			}
			client, err := kube.New(results[0].Output, dialAnyServer(s), kube.Options{Address: localAPIAddress(env), Patience: apiPatience})
			if err == nil {
				engine.ProvideValue(s, module.KeyKubeAfter, client)
			}
			return err
		},
	}, end}}
}

// ReadmitNodesWithNewCA is the module that makes kubelets on nodes without the key of
// the CA request new credentials, after a step. The operations of drop remove their
// present credentials.
func ReadmitNodesWithNewCA(env module.Env, step string, hosts []string, drop func(*engine.Host) (op.List, error)) engine.Module {
	on := func(h *engine.Host) bool { return slices.Contains(hosts, h.Name) }
	made := func(*engine.Scope) bool { return len(hosts) > 0 }
	return engine.Module{Name: "join", Tasks: []engine.Task{
		{
			ID: taskReadmitToken, Title: "create join token", Manager: true, Needs: []string{step}, When: made,
			Consumes: []engine.KeyRef{module.KeyKube.Ref()}, Provides: []engine.KeyRef{keyToken.Ref()},
			Run: tokenAction(env),
		},
		{
			ID: "readmit.kubelet", Title: "request new kubelet credentials", On: on, Timeout: 12 * time.Minute,
			Consumes: []engine.KeyRef{keyToken.Ref()}, Rollout: engine.Rollout{MaxParallel: "10%", MaxUnavailable: "1"},
			Ops: func(s *engine.Scope) (op.List, error) {
				conf, err := bootstrapKubeconfig(env, engine.GetValue(s, keyToken))
				if err != nil {
					return nil, err
				}
				removal, err := drop(s.Host())
				if err != nil {
					return nil, err
				}
				list := append(op.List{op.File{Path: bootstrapConf, Mode: 0o600, Content: conf, Secret: true}}, removal...)
				return append(list,
					ReloadKubelet(env, s.Host(), caCert, bootstrapConf),
					op.Wait{Certificate: module.ClientCert, TimeoutSeconds: 420},
					op.Absent{Path: bootstrapConf},
				), nil
			},
		},
		readmitServing(env, module.JoinsAsWorker, on),
		revokeTokensTask(env, made, "readmit.kubelet"),
	}}
}
