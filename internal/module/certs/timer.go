package certs

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

//go:embed templates
var files embed.FS

const (
	stepTimer = "certs.timer"
	// TimerUnit is the timer of a host that renews its certificates automatically.
	TimerUnit = timerName + ".timer"
	timerName = "slipway-certs"
)

// timed describes the job. The name of its program has no version: each manager installs
// its own version.
var timed = module.TimerJob{
	Name: timerName, Title: "Renew certificates of this host",
	Program: "/usr/local/lib/slipway/slipway-node", JobFile: "/etc/slipway/renewal.json",
}

// How often a host checks its certificates: often enough for the last fifth of their
// lifetime.
const (
	mostEvery  = 12 * time.Hour
	lookPart   = 30
	mostFirst  = 2 * time.Minute
	mostSpread = 10 * time.Minute
)

// EnableAutoRenewal is the module that makes every host renew its due certificates
// automatically, if the key of their CA is on the host. Nothing changes that other
// hosts know about a host, so hosts need not coordinate. API servers and etcd read new
// certificates automatically. Each host continues only if the API servers of the others
// answer.
func EnableAutoRenewal(env module.Env) engine.Module {
	return engine.Module{Name: "certs", Tasks: []engine.Task{{
		ID: stepTimer, Title: "enable automatic certificate renewal",
		On: func(h *engine.Host) bool { return module.IsNode(h) || len(autoRenewable(env, h.Host)) > 0 },
		Ops: func(s *engine.Scope) (op.List, error) {
			if !HasTimer(env, s.Host().Host) { // a worker whose kubelet signed its own certificate had one
				return op.List{op.RevertStep{Step: stepTimer}}, nil
			}
			list, err := timerOps(env, s.Host().Host)
			return append(list, op.RevertStep{Step: stepTimer}), err
		},
	}, approvalTask(env)}}
}

// AutoRenews reports whether the hosts of the cluster renew their certificates
// automatically.
func AutoRenews(env module.Env) bool {
	on := env.Cluster.Spec.Kubernetes.Certificates.AutoRenew
	return on == nil || *on
}

// HasTimer reports whether a host has certificates to renew automatically.
func HasTimer(env module.Env, h v1alpha1.Host) bool {
	return AutoRenews(env) && len(autoRenewable(env, h)) > 0
}

// CheckInterval returns how often a host checks its certificates.
func CheckInterval(env module.Env) time.Duration {
	return max(min(mostEvery, env.CertValidity()/lookPart), time.Second)
}

// TimerState returns operations that read whether the timer of a host is running, and the
// result of its latest run.
func TimerState() op.List {
	return op.List{
		timed.TimerUnit(),
		op.ReadFile{Path: op.AutoOutcomeFile},
	}
}

// autoRenewable returns what a host can renew automatically.
func autoRenewable(env module.Env, h v1alpha1.Host) op.List {
	var out op.List
	for _, o := range (RenewalRequest{}).HostRenewals(env, h) {
		r := o.(op.RenewCertificate)
		r.LeaveStopped = r.Unit != ""
		out = append(out, r)
	}
	if managed := !env.HasStackedEtcd() && env.Cluster.Spec.Etcd.External == nil; managed && hostroles.RunsEtcd(env.Cluster, h.Roles) &&
		spec.HasRole(h, v1alpha1.RoleControlPlane) {
		k := pairOf("apiserver-etcd-client", "apiserver-etcd-client", "etcd/ca") // the key of its CA is on this host
		out = append(out,
			op.RenewCertificate{
				CertificateFile: k.CertificateFile, CAKey: pkiDir + "etcd/ca.key",
				ValiditySeconds: int64(env.CertValidity() / time.Second),
			})
	}
	return out
}

// timerOps returns the program, its job, and the units that run it.
func timerOps(env module.Env, h v1alpha1.Host) (op.List, error) {
	job, err := json.Marshal(autoRenewal(env, h))
	if err != nil {
		return nil, fmt.Errorf("encoding the renewal job of %s: %w", h.Name, err)
	}
	// One line for each operation makes diffs readable.
	job = bytes.ReplaceAll(job, []byte(`{"kind":`), []byte("\n"+`{"kind":`))
	every := CheckInterval(env)
	return timed.InstallOps(files, job, module.TimerSchedule{First: min(every, mostFirst), Every: every, Spread: min(every/2, mostSpread)})
}

// autoRenewal returns what a host renews automatically, what it serves, and the API
// servers that must answer.
func autoRenewal(env module.Env, h v1alpha1.Host) op.AutoRenewal {
	a := op.AutoRenewal{Cluster: env.Cluster.Name, Ops: autoRenewable(env, h)}
	control, member := spec.HasRole(h, v1alpha1.RoleControlPlane), hostroles.RunsEtcd(env.Cluster, h.Roles)
	if member {
		a.Serves = append(a.Serves, waitLocalMember(env))
	}
	port := strconv.Itoa(env.Cluster.Spec.ControlPlaneEndpoint.Port)
	if control {
		a.Ops = append(a.Ops, restartOps(env)...)
		a.Serves = append(a.Serves, waitAPIServes(env))
		a.Own = "https://" + net.JoinHostPort("127.0.0.1", port) + "/readyz"
	}
	if !control && !member {
		return a // it serves no other host
	}
	for _, p := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		if p.Name != h.Name {
			a.Peers = append(a.Peers, "https://"+net.JoinHostPort(module.InternalAddress(p), port)+"/readyz")
		}
	}
	return a
}
