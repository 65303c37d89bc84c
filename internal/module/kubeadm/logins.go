package kubeadm

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

const (
	kubeletLogins = "/var/lib/kubelet/config.json"
	stepLogins    = "kubernetes.kubelet.logins"
)

// loginsTask has the kubelet hand Docker, which keeps none, the logins to registries
// with each image that is to be pulled; and no kubelet of a node that has left it.
func loginsTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepLogins, Title: "give the kubelet its logins", On: module.IsNode,
		Ops: func(*engine.Scope) (op.List, error) { return logins(env) },
	}
}

// logins is a file as `docker login` writes it.
func logins(env module.Env) (op.List, error) {
	type login struct {
		Auth string `json:"auth"`
	}
	all := map[string]login{}
	for _, l := range env.Logins() {
		if l.Username != "" {
			all[l.Registry] = login{base64.StdEncoding.EncodeToString([]byte(l.Username + ":" + l.Password.Reveal()))}
		}
	}
	putBack := op.PutBack{Step: stepLogins}
	if !env.Docker() || len(all) == 0 {
		return op.List{putBack}, nil
	}
	text, err := json.MarshalIndent(map[string]any{"auths": all}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the kubelet's logins: %w", err)
	}
	return op.List{op.File{Path: kubeletLogins, Content: append(text, '\n'), Mode: 0o600, Secret: true}, putBack}, nil
}
