package kubeadm

import (
	"fmt"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// Where a control plane has what its API server records, and by which policy.
const (
	auditPolicy = "/etc/kubernetes/slipway/audit-policy.yaml"
	auditDir    = "/var/log/kubernetes/audit"
)

// stepAudit is the step that has what an API server needs which records.
const stepAudit = "kubeadm.audit"

// auditTask brings what an API server that records needs before it starts. Others
// than root may not read along: requests have names and addresses in them.
func auditTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepAudit, Title: "write what API servers record", On: engine.Role(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return env.Cluster.Spec.Kubernetes.Audit != nil },
		Ops: func(*engine.Scope) (op.List, error) {
			policy, err := policyOf(env.Cluster.Spec.Kubernetes.Audit)
			if err != nil {
				return nil, fmt.Errorf("reading the policy for audit logs: %w", err)
			}
			return op.List{op.File{Path: auditPolicy, Mode: 0o600, Content: policy}}, nil
		},
	}
}

// auditLogTask makes the place for what is recorded. That stays when nothing is
// recorded any more, for as long as the host is the cluster's.
func auditLogTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.audit-log", Title: "make room for audit logs", On: engine.Role(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return env.Cluster.Spec.Kubernetes.Audit != nil },
		Ops: func(*engine.Scope) (op.List, error) {
			return op.List{op.Dir{Path: auditDir, Mode: 0o700, Exclusive: true}}, nil
		},
	}
}

func policyOf(a *v1alpha1.Audit) ([]byte, error) {
	if a.PolicyFile == "" {
		return files.ReadFile("templates/audit-policy.yaml")
	}
	return bounded.ReadArgument(a.PolicyFile, bounded.Argument)
}

// auditFollows has an API server that runs go by another policy: it reads it when
// it starts.
func auditFollows() op.PodRestart {
	return op.PodRestart{Manifest: module.APIServerManifest, Files: []string{auditPolicy}, TimeoutSeconds: 300}
}

// unauditTask takes the policy away when nothing is recorded any more, after the
// API server that went by it.
func unauditTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.unaudited", Title: "take the policy for audit logs away", On: engine.Role(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return env.Cluster.Spec.Kubernetes.Audit == nil },
		Ops:  func(*engine.Scope) (op.List, error) { return op.List{op.PutBack{Step: stepAudit}}, nil },
	}
}

func auditArgs(a *v1alpha1.Audit) map[string]string {
	return map[string]string{
		"audit-policy-file": auditPolicy, "audit-log-path": auditDir + "/audit.log",
		"audit-log-maxage": strconv.Itoa(a.MaxAge), "audit-log-maxbackup": strconv.Itoa(a.MaxBackups), "audit-log-maxsize": strconv.Itoa(a.MaxSize),
	}
}

func auditVolumes() []any {
	return []any{
		object{"name": "audit-policy", "hostPath": auditPolicy, "mountPath": auditPolicy, "pathType": "File", "readOnly": true},
		object{"name": "audit-log", "hostPath": auditDir, "mountPath": auditDir, "pathType": "Directory"},
	}
}
