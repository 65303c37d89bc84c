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

// Paths of the audit policy and of the audit logs on a control plane.
const (
	auditPolicy = "/etc/kubernetes/slipway/audit-policy.yaml"
	auditDir    = "/var/log/kubernetes/audit"
)

// stepAudit is the step that writes the audit policy.
const stepAudit = "kubeadm.audit"

// auditTask writes the audit policy before the API server starts. Only root can read audit
// files, because requests contain names and addresses.
func auditTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepAudit, Title: "write audit policy", On: engine.HasRole(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return env.Cluster.Spec.Kubernetes.Audit != nil },
		Ops: func(*engine.Scope) (op.List, error) {
			policy, err := readAuditPolicy(env.Cluster.Spec.Kubernetes.Audit)
			if err != nil {
				return nil, fmt.Errorf("reading the audit policy: %w", err)
			}
			return op.List{op.File{Path: auditPolicy, Mode: 0o600, Content: policy}}, nil
		},
	}
}

// auditLogTask creates the directory for audit logs. It remains when auditing is disabled,
// as long as the host belongs to the cluster.
func auditLogTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.audit-log", Title: "create audit log directory", On: engine.HasRole(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return env.Cluster.Spec.Kubernetes.Audit != nil },
		Ops: func(*engine.Scope) (op.List, error) {
			return op.List{op.Dir{Path: auditDir, Mode: 0o700, Exclusive: true}}, nil
		},
	}
}

func readAuditPolicy(a *v1alpha1.Audit) ([]byte, error) {
	if a.PolicyFile == "" {
		return files.ReadFile("templates/audit-policy.yaml")
	}
	return bounded.ReadArgument(a.PolicyFile, bounded.Argument)
}

// restartForAudit restarts a running API server when its audit policy changes: it reads the
// policy at its start.
func restartForAudit() op.StaticPodRestart {
	return op.StaticPodRestart{Manifest: module.APIServerManifest, Files: []string{auditPolicy}, TimeoutSeconds: 300}
}

// removeAuditTask removes the audit policy when auditing is disabled, after the API
// server has been restarted without it.
func removeAuditTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.unaudited", Title: "remove audit policy", On: engine.HasRole(v1alpha1.RoleControlPlane),
		When: func(*engine.Scope) bool { return env.Cluster.Spec.Kubernetes.Audit == nil },
		Ops:  func(*engine.Scope) (op.List, error) { return op.List{op.RevertStep{Step: stepAudit}}, nil },
	}
}

func auditArgs(a *v1alpha1.Audit) map[string]string {
	return map[string]string{
		"audit-policy-file": auditPolicy, "audit-log-path": auditDir + "/audit.log",
		"audit-log-maxage": strconv.Itoa(a.MaxAge), "audit-log-maxbackup": strconv.Itoa(a.MaxBackups),
		"audit-log-maxsize": strconv.Itoa(a.MaxSize),
	}
}

func auditVolumes() []any {
	return []any{
		object{"name": "audit-policy", "hostPath": auditPolicy, "mountPath": auditPolicy, "pathType": "File", "readOnly": true},
		object{"name": "audit-log", "hostPath": auditDir, "mountPath": auditDir, "pathType": "Directory"},
	}
}
