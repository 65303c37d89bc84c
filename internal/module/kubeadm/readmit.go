package kubeadm

import (
	"maps"
	"slices"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// ReadmitExpiredNodes is the module for kubelets whose credentials have expired: with
// these they cannot request new ones. They do the same as when they joined: a kubelet
// with expired credentials and a token requests new ones with the token. So neither
// their keys nor the key of the CA are transferred.
func ReadmitExpiredNodes(env module.Env, hosts []string) engine.Module {
	on := func(h *engine.Host) bool { return slices.Contains(hosts, h.Name) }
	made := func(*engine.Scope) bool { return true }
	return engine.Module{Name: "join", Tasks: []engine.Task{
		adminTask(env, dialLocalServer),
		{
			ID: taskReadmitToken, Title: "create join token", Manager: true,
			Consumes: []engine.KeyRef{module.KeyKube.Ref()}, Provides: []engine.KeyRef{keyToken.Ref()},
			Run: tokenAction(env),
		},
		{
			ID: "readmit.kubelet", Title: "request new kubelet credentials", On: on,
			Consumes: []engine.KeyRef{keyToken.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				conf, err := bootstrapKubeconfig(env, engine.GetValue(s, keyToken))
				if err != nil {
					return nil, err
				}
				return op.List{
					op.File{Path: bootstrapConf, Mode: 0o600, Content: conf, Secret: true},
					// The kubelet reads the token at its start.
					op.Unit{Name: "kubelet.service", Running: op.Bool(true), RestartOn: append(kubeletStartFiles(), bootstrapConf)},
				}, nil
			},
		},
		{
			ID: "readmit.wait", Title: "wait for new kubelet credentials", On: on, Timeout: 8 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.Wait{Certificate: module.ClientCert, TimeoutSeconds: 420}, op.Absent{Path: bootstrapConf}}, nil
			},
		},
		readmitServing(env, on, func(*engine.Host) bool { return false }),
		revokeTokensTask(env, made, "readmit.wait"),
	}}
}

// bootstrapKubeconfig returns the kubeconfig with which kubeadm makes a kubelet join.
func bootstrapKubeconfig(env module.Env, token string) ([]byte, error) {
	return kubeconfigDocument(env, object{"certificate-authority": caCert}, object{"token": token})
}

// kubeconfigDocument returns a kubeconfig for the API of the cluster, with the given CA
// and credentials.
func kubeconfigDocument(env module.Env, authority, credentials object) ([]byte, error) {
	const user = "tls-bootstrap-token-user"
	named := func(name, kind string, what object) []any { return []any{object{"name": name, kind: what}} }
	cluster := object{"server": "https://" + env.APIEndpoint()}
	maps.Copy(cluster, authority)
	return encodeDocuments(object{
		"apiVersion": "v1", "kind": "Config", "current-context": user,
		"clusters": named(env.Cluster.Name, "cluster", cluster),
		"contexts": named(user, "context", object{"cluster": env.Cluster.Name, "user": user}),
		"users":    named(user, "user", credentials),
	})
}
