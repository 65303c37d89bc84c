package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"errors"
)

const (
	// noticePart and warnPart are the parts of the quota from which the condition is set
	// and a warning is logged, in per cent.
	noticePart, warnPart = 60, 80
	// recoverPart is the part of the quota below which a full database accepts writes
	// again, in per cent.
	recoverPart = 90
	// wasteBytes is the unused space from which a database is defragmented, if it is also
	// half of the file.
	wasteBytes = 16 << 20
	// usagePeriod is the time between two looks at the size of the database.
	usagePeriod = 10 * time.Second
)

// A databaseUsage is the size of the database.
type databaseUsage struct {
	Bytes, InUse, Quota int64
	// Full reports whether etcd refuses writes because of its quota.
	Full bool
}

// part returns the used part of the quota, in per cent.
func (u databaseUsage) part() int {
	if u.Quota <= 0 {
		return 0
	}
	return int(u.Bytes * 100 / u.Quota)
}

// String returns the usage in words.
func (u databaseUsage) String() string {
	return fmt.Sprintf("the database has %d of %d MiB (%d %%)", u.Bytes>>20, u.Quota>>20, u.part())
}

// readUsage returns the size of the database.
func (e *etcd) readUsage(ctx context.Context) (databaseUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	var problems []error
	for _, server := range e.servers {
		status, err := e.client.Status(ctx, server)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		u := databaseUsage{Bytes: status.DbSize, InUse: status.DbSizeInUse, Quota: status.DbSizeQuota}
		if !e.isExternal() {
			u.Quota = e.quota
		}
		u.Full = slices.Contains(status.Errors, etcdserverpb.AlarmType_NOSPACE.String()) || e.hasSpaceAlarm(ctx)
		return u, nil
	}
	return databaseUsage{}, errors.Join(problems...)
}

// hasSpaceAlarm reports whether etcd has raised the alarm for a full database.
func (e *etcd) hasSpaceAlarm(ctx context.Context) bool {
	list, err := e.client.AlarmList(ctx)
	return err == nil && slices.ContainsFunc(list.Alarms, func(a *etcdserverpb.AlarmMember) bool {
		return a.Alarm == etcdserverpb.AlarmType_NOSPACE
	})
}

// maintainDatabase watches the size of the database until ctx ends. It returns unused space to
// the disk, and lets a full database accept writes again once there is room.
func (s *Server) maintainDatabase(ctx context.Context) {
	tick := time.NewTicker(usagePeriod)
	defer tick.Stop()
	var defragmented time.Time
	for {
		usage, err := s.etcd.readUsage(ctx)
		if err == nil {
			s.reportUsage(ctx, usage)
			due := time.Since(defragmented) >= s.config.DefragmentInterval && usage.Bytes-usage.InUse >= max(wasteBytes, usage.Bytes/2)
			if usage.Full || due && !s.etcd.isExternal() {
				defragmented = time.Now()
				if err = s.etcd.makeRoom(ctx, usage.Full); err == nil {
					usage, err = s.etcd.readUsage(ctx)
					s.reportUsage(ctx, usage)
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			s.config.Log.Warn("the database could not be checked", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.guard.refused: // etcd refused a write
		}
	}
}

// makeRoom returns the unused space of the embedded database to the disk. If the database is
// full, it also removes all old revisions, and ends the alarm once there is room.
func (e *etcd) makeRoom(ctx context.Context, full bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if full {
		if err := e.compactAll(ctx); err != nil {
			return err
		}
	}
	if e.isExternal() {
		return e.endAlarm(ctx, full)
	}
	if _, err := e.client.Defragment(ctx, e.servers[0]); err != nil {
		return fmt.Errorf("defragmenting the database: %w", err)
	}
	return e.endAlarm(ctx, full)
}

// compactAll removes all revisions before the current one. Clients that watch from an older
// revision must list again.
func (e *etcd) compactAll(ctx context.Context) error {
	current, err := e.client.Get(ctx, markerPrefix, clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("reading the revision: %w", err)
	}
	_, err = e.client.Compact(ctx, current.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compacting the database: %w", err)
	}
	return nil
}

// endAlarm ends the alarm for a full database if enough of the quota is free. The owner of an
// external etcd does that.
func (e *etcd) endAlarm(ctx context.Context, full bool) error {
	usage, err := e.readUsage(ctx)
	if err != nil || !full || e.isExternal() || usage.part() >= recoverPart {
		return err
	}
	if _, err := e.client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("ending the alarm for a full database: %w", err)
	}
	e.log.Info("the database accepts writes again", "usage", usage.String())
	return nil
}
