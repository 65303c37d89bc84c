package daemon

import (
	"context"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/serverbackup"
)

// loadSchedule returns the schedule of --backup-config, nil without this flag.
func (s *serverCommand) loadSchedule() (*serverbackup.Schedule, error) {
	if s.backups == "" {
		return nil, nil
	}
	config, err := serverbackup.LoadConfig(s.backups)
	if err != nil {
		return nil, err
	}
	schedule, err := config.Schedule()
	return &schedule, err
}

// runBackups makes scheduled backups until ctx ends, and reports each result as a condition of
// the server.
func runBackups(
	ctx context.Context, maker *serverbackup.Maker, schedule serverbackup.Schedule, server *controlplane.Server, log *slog.Logger,
) {
	schedule.Report = func(ok bool, message string) {
		c := metav1.Condition{Type: controlplane.BackupsFailing, Status: metav1.ConditionFalse, Reason: "Succeeded", Message: message}
		if !ok {
			c.Status, c.Reason = metav1.ConditionTrue, "Failed"
		}
		server.SetCondition(ctx, c)
	}
	if err := maker.RunSchedule(ctx, schedule); err != nil {
		log.Error("scheduled backups have ended", "error", err)
	}
}
