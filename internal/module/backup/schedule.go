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
	TimerUnit   = "slipway-backup.timer"
	timerFile   = "/etc/systemd/system/" + TimerUnit
	serviceName = "slipway-backup.service"
	serviceFile = "/etc/systemd/system/" + serviceName
	jobFile     = "/etc/slipway/backup.json"
	// helperProgram is the node helper as the unit runs it. It is not that of the
	// renewal of certificates: each comes and goes with its own setting.
	helperProgram = "/usr/local/lib/slipway/slipway-backup"
)

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
		Ops: func(*engine.Scope) (op.List, error) {
			var list op.List
			if b := env.Cluster.Spec.Etcd.Backup; b != nil {
				var err error
				if list, err = scheduled(env.Cluster.Name, b); err != nil {
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

// ScheduleState asks a host whether its timer runs, and what came of the latest
// time.
func ScheduleState() op.List {
	return op.List{timerUnit(), op.ReadFile{Path: op.AutoSnapshotFile}}
}

// scheduled is the program, what it is to do, and the units that have it run.
func scheduled(cluster string, b *v1alpha1.EtcdBackup) (op.List, error) {
	client := module.EtcdClient()
	client.Endpoints = []string{module.OwnEtcd()}
	job, err := json.MarshalIndent(op.AutoSnapshot{Cluster: cluster, EtcdClient: client, Utility: module.Etcdutl, Keep: b.Keep}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing down how snapshots are taken: %w", err)
	}
	service, err := module.Render(files, serviceName, map[string]string{"Program": helperProgram, "Job": jobFile})
	if err != nil {
		return nil, err
	}
	every := b.Every.Duration
	seconds := func(d time.Duration) int64 { return max(int64(d/time.Second), 1) }
	text, err := module.Render(files, TimerUnit, map[string]int64{
		"First": seconds(min(every/spreadPart, mostFirst)), "Every": seconds(every), "Spread": seconds(min(every/spreadPart, mostSpread)),
	})
	if err != nil {
		return nil, err
	}
	return op.List{
		op.Self{Path: helperProgram},
		op.File{Path: jobFile, Content: append(job, '\n'), Mode: 0o600},
		op.File{Path: serviceFile, Content: service},
		op.File{Path: timerFile, Content: text},
		timerUnit(),
	}, nil
}

func timerUnit() op.Unit {
	return op.Unit{Name: TimerUnit, Enabled: op.Bool(true), Running: op.Bool(true), RestartOn: []string{timerFile}}
}
