package backup

import (
	"embed"
	"encoding/json"
	"fmt"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

//go:embed templates
var files embed.FS

const (
	stepTimer = "backup.timer"
	// TimerUnit is the timer of a host that takes snapshots by itself.
	TimerUnit = timerName + ".timer"
	timerName = "slipway-backup"
)

var timed = module.Timed{
	Name: timerName, Title: "Have a snapshot of etcd be taken",
	Program: "/usr/local/lib/slipway/slipway-backup", JobFile: "/etc/slipway/backup.json",
}

// How long after a host's start, and how far apart, snapshots are taken at most:
// members need not agree on who takes one, and shall not all do it at once.
const (
	mostFirst  = 5 * time.Minute
	mostSpread = 10 * time.Minute
	spreadPart = 4
)

// Schedule is the module that has every host with a member of etcd take snapshots
// of it by itself: each its own, so that a backup is on as many hosts as there are
// members, and none has to know which others are there.
func Schedule(env module.Env) engine.Module {
	return engine.Module{Name: "backup", Tasks: []engine.Task{{
		ID: stepTimer, Title: "have snapshots of etcd be taken by themselves", On: isMember(env),
		Ops: func(s *engine.Scope) (op.List, error) {
			var list op.List
			if env.Cluster.Spec.Etcd.Backup != nil {
				var err error
				if list, err = scheduled(env, s.Host()); err != nil {
					return nil, err
				}
			}
			return append(list, op.PutBack{Step: stepTimer}), nil
		},
	}}}
}

// HasSchedule says that a host takes snapshots by itself.
func HasSchedule(env module.Env, h v1alpha1.Host) bool {
	return env.Cluster.Spec.Etcd.Backup != nil && facts.RunsEtcd(env.Cluster, h.Roles)
}

// HasDrills says that a host tries the snapshots that it has taken.
func HasDrills(c *v1alpha1.Cluster, h v1alpha1.Host) bool {
	b := c.Spec.Etcd.Backup
	return b != nil && b.DrillEvery != nil && b.DrillEvery.Duration > 0 && facts.RunsEtcd(c, h.Roles)
}

// drilled is how a host tries them; nil if it does not. Control planes have the keys by
// which Secrets are encrypted.
func drilled(env module.Env, h *engine.Host) *op.AutoDrill {
	if !HasDrills(env.Cluster, h.Host) {
		return nil
	}
	out := &op.AutoDrill{
		EverySeconds: int64(env.Cluster.Spec.Etcd.Backup.DrillEvery.Duration / time.Second),
		Server:       module.EtcdPrograms().Server, Prefix: env.Stored("secrets"),
	}
	if h.HasRole(v1alpha1.RoleControlPlane) {
		out.Encryption = encryptionFiles(env.Cluster)
	}
	return out
}

// ScheduleState asks a host whether its timer runs, and what came of the latest
// time.
func ScheduleState() op.List {
	return op.List{timed.Unit(), op.ReadFile{Path: op.AutoSnapshotFile}}
}

// scheduled is the program, what it is to do, and the units that have it run.
func scheduled(env module.Env, h *engine.Host) (op.List, error) {
	b := env.Cluster.Spec.Etcd.Backup
	client := module.EtcdClient()
	client.Endpoints = []string{env.OwnMember()}
	job := op.AutoSnapshot{Cluster: env.Cluster.Name, EtcdClient: client, Utility: module.Etcdutl, Keep: b.Keep, Copies: copied(env, h), Drill: drilled(env, h)}
	text, err := json.MarshalIndent(job, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing down how snapshots are taken: %w", err)
	}
	every := b.Every.Duration
	list, err := timed.Ops(files, text, module.TimedAt{First: min(every/spreadPart, mostFirst), Every: every, Spread: min(every/spreadPart, mostSpread)})
	if HasCopies(env.Cluster, h.Host) {
		list = append(secrets(env), list...)
	}
	return list, err
}
