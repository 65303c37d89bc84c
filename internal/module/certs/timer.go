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
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

//go:embed templates
var files embed.FS

const (
	stepTimer = "certs.timer"
	// TimerUnit is the timer of a host that renews its certificates by itself.
	TimerUnit = timerName + ".timer"
	timerName = "slipway-certs"
)

// timed is how. The name of its program says no version: managers come and go, and
// each brings its own.
var timed = module.Timed{
	Name: timerName, Title: "Look at this host's certificates",
	Program: "/usr/local/lib/slipway/slipway-node", JobFile: "/etc/slipway/renewal.json",
}

// How often a host looks at its certificates: often enough for the last fifth
// of their time, and no more than that.
const (
	mostEvery  = 12 * time.Hour
	lookPart   = 30
	mostFirst  = 2 * time.Minute
	mostSpread = 10 * time.Minute
)

// Timer is the module that has every host renew by itself what is due of its
// certificates: those whose authorities have their keys on it. What others of
// the cluster's programs know of a host is not touched, so that hosts need not
// agree: API servers and etcd read what is new by themselves, and each host goes
// by whether the API servers of the others answer.
func Timer(env module.Env) engine.Module {
	return engine.Module{Name: "certs", Tasks: []engine.Task{{
		ID: stepTimer, Title: "have certificates be renewed by themselves",
		On: func(h *engine.Host) bool { return module.IsNode(h) || len(byItself(env, h.Host)) > 0 },
		Ops: func(s *engine.Scope) (op.List, error) {
			if !HasTimer(env, s.Host().Host) { // a worker whose kubelet signed its own certificate had one
				return op.List{op.PutBack{Step: stepTimer}}, nil
			}
			list, err := timer(env, s.Host().Host)
			return append(list, op.PutBack{Step: stepTimer}), err
		},
	}, approval(env)}}
}

// AutoRenews says that the cluster's hosts renew their certificates by
// themselves.
func AutoRenews(env module.Env) bool {
	on := env.Cluster.Spec.Kubernetes.Certificates.AutoRenew
	return on == nil || *on
}

// HasTimer says that a host has something to renew by itself.
func HasTimer(env module.Env, h v1alpha1.Host) bool {
	return AutoRenews(env) && len(byItself(env, h)) > 0
}

// LooksEvery is how often a host looks at its certificates.
func LooksEvery(env module.Env) time.Duration {
	return max(min(mostEvery, env.Validity()/lookPart), time.Second)
}

// TimerState asks a host whether its timer runs, and what came of its latest
// look.
func TimerState() op.List {
	return op.List{
		timed.Unit(),
		op.ReadFile{Path: op.AutoOutcomeFile},
	}
}

// byItself is what a host can renew by itself.
func byItself(env module.Env, h v1alpha1.Host) op.List {
	var out op.List
	for _, o := range (Wish{}).Renewals(env, h) {
		r := o.(op.Renewal)
		r.LeaveStopped = r.Unit != ""
		out = append(out, r)
	}
	if managed := !env.Stacked() && env.Cluster.Spec.Etcd.External == nil; managed && facts.RunsEtcd(env.Cluster, h.Roles) && spec.HasRole(h, v1alpha1.RoleControlPlane) {
		k := pairOf("apiserver-etcd-client", "apiserver-etcd-client", "etcd/ca") // the key of its authority is here
		out = append(out, op.Renewal{CertificateFile: k.CertificateFile, CAKey: pkiDir + "etcd/ca.key", ValiditySeconds: int64(env.Validity() / time.Second)})
	}
	return out
}

// timer is the program, what it is to do, and the units that have it run.
func timer(env module.Env, h v1alpha1.Host) (op.List, error) {
	job, err := json.Marshal(autoRenewal(env, h))
	if err != nil {
		return nil, fmt.Errorf("writing down what %s renews by itself: %w", h.Name, err)
	}
	// A line for each operation, for whoever reads a difference.
	job = bytes.ReplaceAll(job, []byte(`{"kind":`), []byte("\n"+`{"kind":`))
	every := LooksEvery(env)
	return timed.Ops(files, job, module.TimedAt{First: min(every, mostFirst), Every: every, Spread: min(every/2, mostSpread)})
}

// autoRenewal is what a host renews by itself, what it serves, and whose answers
// it goes by.
func autoRenewal(env module.Env, h v1alpha1.Host) op.AutoRenewal {
	a := op.AutoRenewal{Cluster: env.Cluster.Name, Ops: byItself(env, h)}
	control, member := spec.HasRole(h, v1alpha1.RoleControlPlane), facts.RunsEtcd(env.Cluster, h.Roles)
	if member {
		a.Serves = append(a.Serves, ownMember(env))
	}
	port := strconv.Itoa(env.Cluster.Spec.ControlPlaneEndpoint.Port)
	if control {
		a.Ops = append(a.Ops, restarts(env)...)
		a.Serves = append(a.Serves, serves(env))
		a.Own = "https://" + net.JoinHostPort("127.0.0.1", port) + "/readyz"
	}
	if !control && !member {
		return a // it serves nobody
	}
	for _, p := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		if p.Name != h.Name {
			a.Peers = append(a.Peers, "https://"+net.JoinHostPort(module.InternalAddress(p), port)+"/readyz")
		}
	}
	return a
}
