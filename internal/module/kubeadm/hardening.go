package kubeadm

import (
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

const stepHardening = "kubeadm.hardening"

// hardeningTask brings what a hardened API server answers strangers, before it
// starts.
func hardeningTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepHardening, Title: "write what API servers answer strangers", On: engine.Role(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return spec.Harden(env.Cluster).Anonymous() },
		Ops: func(*engine.Scope) (op.List, error) {
			text, err := files.ReadFile("templates/authentication.yaml")
			if err != nil {
				return nil, err
			}
			return op.List{op.File{Path: spec.AuthenticationFile, Mode: 0o600, Content: text}}, nil
		},
	}
}

// unhardenTask takes it away, after the API server that went by it.
func unhardenTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.unhardened", Title: "take away what API servers answered strangers", On: engine.Role(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return !spec.Harden(env.Cluster).Anonymous() },
		Ops:  func(*engine.Scope) (op.List, error) { return op.List{op.PutBack{Step: stepHardening}}, nil },
	}
}

func mounted(name, file string) object {
	return object{"name": name, "hostPath": file, "mountPath": file, "pathType": "File", "readOnly": true}
}
