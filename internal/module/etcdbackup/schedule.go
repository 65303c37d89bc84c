package etcdbackup

import (
	"embed"
	"encoding/json"
	"fmt"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec/hostroles"
)

//go:embed templates
var files embed.FS

const (
	stepTimer = "backup.timer"
	// TimerUnit is the timer of a host that takes snapshots automatically.
	TimerUnit = timerName + ".timer"
	timerName = "slipway-backup"
)

var timed = module.TimerJob{
	Name: timerName, Title: "Take a snapshot of etcd",
	Program: "/usr/local/lib/slipway/slipway-backup", JobFile: "/etc/slipway/backup.json",
}

// The maximum delay after the start of a host, and the maximum random delay: members do
// not coordinate, and must not all take a snapshot at the same time.
const (
	mostFirst  = 5 * time.Minute
	mostSpread = 10 * time.Minute
	spreadPart = 4
)

// ScheduleSnapshots is the module that makes every host with an etcd member take
// snapshots of it automatically. Each host takes its own, so there are as many backups
// as members, and no host needs to know the others.
func ScheduleSnapshots(env module.Env) engine.Module {
	return engine.Module{Name: "backup", Tasks: []engine.Task{{
		ID: stepTimer, Title: "schedule etcd snapshots", On: isMember(env),
		Ops: func(s *engine.Scope) (op.List, error) {
			var list op.List
			if env.Cluster.Spec.Etcd.Backup != nil {
				var err error
				if list, err = scheduleOps(env, s.Host()); err != nil {
					return nil, err
				}
			}
			return append(list, op.RevertStep{Step: stepTimer}), nil
		},
	}}}
}

// HasRestoreTests reports whether a host runs restore tests of its snapshots.
func HasRestoreTests(c *v1alpha1.Cluster, h v1alpha1.Host) bool {
	b := c.Spec.Etcd.Backup
	return b != nil && b.DrillEvery != nil && b.DrillEvery.Duration > 0 && hostroles.RunsEtcd(c, h.Roles)
}

// autoRestoreTest returns how a host runs restore tests; nil if it does not. Control
// planes have the keys that encrypt Secrets.
func autoRestoreTest(env module.Env, h *engine.Host) *op.AutoDrill {
	if !HasRestoreTests(env.Cluster, h.Host) {
		return nil
	}
	out := &op.AutoDrill{
		EverySeconds: int64(env.Cluster.Spec.Etcd.Backup.DrillEvery.Duration / time.Second),
		Server:       module.EtcdPrograms().Server, Prefix: env.StoragePrefix("secrets"),
	}
	if h.HasRole(v1alpha1.RoleControlPlane) {
		out.Encryption = encryptionFiles(env.Cluster)
	}
	return out
}

// ScheduleState returns operations that read whether the timer of a host is running, and
// the result of its latest run.
func ScheduleState() op.List {
	return op.List{timed.TimerUnit(), op.ReadFile{Path: op.AutoSnapshotFile}}
}

// scheduleOps returns the program, its job, and the units that run it.
func scheduleOps(env module.Env, h *engine.Host) (op.List, error) {
	b := env.Cluster.Spec.Etcd.Backup
	client := module.EtcdClient()
	client.Endpoints = []string{env.LocalMemberURL()}
	job := op.AutoSnapshot{
		Cluster: env.Cluster.Name, EtcdClient: client, Utility: module.Etcdutl, Keep: b.Keep,
		Copies: autoCopies(env, h), Drill: autoRestoreTest(env, h),
	}
	text, err := json.MarshalIndent(job, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the snapshot job: %w", err)
	}
	every := b.Every.Duration
	list, err := timed.InstallOps(files, text,
		module.TimerSchedule{First: min(every/spreadPart, mostFirst), Every: every, Spread: min(every/spreadPart, mostSpread)})
	if HasCopies(env.Cluster, h.Host) {
		list = append(copySecrets(env), list...)
	}
	return list, err
}
