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

// loginsTask makes the kubelet pass registry credentials to Docker with each image pull,
// because Docker stores none. On nodes that no longer use Docker it removes them.
func loginsTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepLogins, Title: "write kubelet registry credentials", On: module.IsNode,
		Ops: func(*engine.Scope) (op.List, error) { return encodeLogins(env) },
	}
}

// encodeLogins returns a file in the format of `docker login`.
func encodeLogins(env module.Env) (op.List, error) {
	type login struct {
		Auth string `json:"auth"`
	}
	all := map[string]login{}
	for _, l := range env.RegistryLogins() {
		if l.Username != "" {
			all[l.Registry] = login{base64.StdEncoding.EncodeToString([]byte(l.Username + ":" + l.Password.Reveal()))}
		}
	}
	putBack := op.RevertStep{Step: stepLogins}
	if !env.UsesDocker() || len(all) == 0 {
		return op.List{putBack}, nil
	}
	text, err := json.MarshalIndent(map[string]any{"auths": all}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the registry credentials of the kubelet: %w", err)
	}
	return op.List{op.File{Path: kubeletLogins, Content: append(text, '\n'), Mode: 0o600, Secret: true}, putBack}, nil
}
