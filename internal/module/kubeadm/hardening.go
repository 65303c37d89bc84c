package kubeadm

import (
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

const stepHardening = "kubeadm.hardening"

// hardeningTask writes the configuration of anonymous access for a hardened API server,
// before it starts.
func hardeningTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepHardening, Title: "write anonymous access configuration", On: engine.HasRole(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return spec.HardeningSettings(env.Cluster).ConfiguresAnonymous() },
		Ops: func(*engine.Scope) (op.List, error) {
			text, err := files.ReadFile("templates/authentication.yaml")
			if err != nil {
				return nil, err
			}
			return op.List{op.File{Path: spec.AuthenticationFile, Mode: 0o600, Content: text}}, nil
		},
	}
}

// removeHardeningTask removes it, after the API server that used it was restarted.
func removeHardeningTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.unhardened", Title: "remove anonymous access configuration", On: engine.HasRole(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return !spec.HardeningSettings(env.Cluster).ConfiguresAnonymous() },
		Ops:  func(*engine.Scope) (op.List, error) { return op.List{op.RevertStep{Step: stepHardening}}, nil },
	}
}

func mountHostFile(name, file string) object {
	return object{"name": name, "hostPath": file, "mountPath": file, "pathType": "File", "readOnly": true}
}
