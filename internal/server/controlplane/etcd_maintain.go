package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"slipway.dev/slipway/internal/server/diskspace"
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
	// refusedPeriod is the least time between two looks after refused writes, and
	// lowInterval between two removals of unused space while the disk has little room.
	refusedPeriod, lowInterval = 2 * time.Second, 30 * time.Second
	// copyBytes is the room that a new database file needs in addition to its data.
	copyBytes = 1 << 20
	// maintainTime limits a maintenance of the database.
	maintainTime = 5 * time.Minute
)

// A databaseUsage is the size of the database.
type databaseUsage struct {
	Bytes, InUse, Quota int64
	// Full reports whether etcd refuses writes because of its quota.
	Full bool
}

// usedPercent returns the used part of the quota, in per cent.
func (u databaseUsage) usedPercent() int {
	if u.Quota <= 0 {
		return 0
	}
	return int(u.Bytes * 100 / u.Quota)
}

// String returns the usage in words.
func (u databaseUsage) String() string {
	return fmt.Sprintf("the database has %d of %d MiB (%d %%)", u.Bytes>>20, u.Quota>>20, u.usedPercent())
}

// readUsage returns the size of the database from the first server that responds. Each server
// has its own deadline.
func (e *etcd) readUsage(ctx context.Context) (databaseUsage, error) {
	return readFirst(ctx, e.servers, e.readServer)
}

// readFirst returns the usage from the first server that responds in time.
func readFirst(
	ctx context.Context, servers []string, read func(ctx context.Context, server string) (databaseUsage, error),
) (databaseUsage, error) {
	var problems []error
	for _, server := range servers {
		reading, cancel := context.WithTimeout(ctx, requestTime)
		usage, err := read(reading, server)
		cancel()
		if err == nil {
			return usage, nil
		}
		problems = append(problems, err)
	}
	return databaseUsage{}, errors.Join(problems...)
}

// readServer returns the size of the database of one server.
func (e *etcd) readServer(ctx context.Context, server string) (databaseUsage, error) {
	status, err := e.client.Status(ctx, server)
	if err != nil {
		return databaseUsage{}, err
	}
	u := databaseUsage{Bytes: status.DbSize, InUse: status.DbSizeInUse, Quota: status.DbSizeQuota}
	if !e.isExternal() {
		u.Quota = e.quota
	}
	u.Full = slices.Contains(status.Errors, etcdserverpb.AlarmType_NOSPACE.String()) || e.hasSpaceAlarm(ctx)
	return u, nil
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
	upkeep := upkeep{interval: s.config.DefragmentInterval}
	for {
		if err := s.maintainOnce(ctx, &upkeep); err != nil && ctx.Err() == nil {
			s.config.Log.Warn("the database could not be maintained", "error", err)
		}
		if !upkeep.wait(ctx, tick.C, s.guard.refused) {
			return
		}
	}
}

// wait waits for the next look at the database, and reports whether ctx has not ended. Many
// writes can be refused at once; they cause one look.
func (u *upkeep) wait(ctx context.Context, tick <-chan time.Time, refused <-chan struct{}) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-refused:
			if time.Since(u.looked) >= refusedPeriod {
				return true
			}
		}
	}
}

// maintainOnce reports the size of the database, and does what is due. The owner of an external
// etcd does this there.
func (s *Server) maintainOnce(ctx context.Context, u *upkeep) error {
	u.looked = time.Now()
	usage, err := s.etcd.readUsage(ctx)
	if err != nil {
		return err
	}
	s.reportUsage(ctx, usage)
	if s.etcd.isExternal() {
		return nil
	}
	free, all, err := s.guard.freeBytes(s.guard.dir)
	if err != nil {
		return err
	}
	switch low := free < diskspace.Reserve(all); {
	case usage.Full:
		err = s.etcd.endFullness(ctx, free)
	case u.isDue(usage, low):
		err = s.etcd.returnSpace(ctx, low, free)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if usage, err = s.etcd.readUsage(ctx); err == nil {
		s.reportUsage(ctx, usage)
	}
	return err
}

// An upkeep has the times of the maintenance of a database.
type upkeep struct {
	interval time.Duration
	looked   time.Time // at the size of the database
	returned time.Time // unused space, to the disk
}

// isDue reports whether unused space is returned to the disk now. low reports whether the disk
// has little room: then less space counts, and old revisions are removed too.
func (u *upkeep) isDue(usage databaseUsage, low bool) bool {
	interval, least := u.interval, max(wasteBytes, usage.Bytes/2)
	if low {
		interval, least = min(interval, lowInterval), 0
	}
	if time.Since(u.returned) < interval || usage.Bytes-usage.InUse < least {
		return false
	}
	u.returned = time.Now()
	return true
}

// endFullness removes all old revisions of a full database, and ends the alarm once there is
// room. free is the room on the disk.
func (e *etcd) endFullness(ctx context.Context, free int64) error {
	ctx, cancel := context.WithTimeout(ctx, maintainTime)
	defer cancel()
	if err := e.compactAll(ctx); err != nil {
		return err
	}
	usage, err := e.readUsage(ctx)
	if err != nil || usage.InUse*100 >= usage.Quota*recoverPart { // objects must be deleted first
		return err
	}
	if usage.usedPercent() >= recoverPart {
		if err := e.defragment(ctx, usage, free); err != nil {
			return err
		}
	}
	return e.endAlarm(ctx)
}

// returnSpace returns unused space to the disk. all selects the space of old revisions too.
func (e *etcd) returnSpace(ctx context.Context, all bool, free int64) error {
	ctx, cancel := context.WithTimeout(ctx, maintainTime)
	defer cancel()
	if all {
		if err := e.compactAll(ctx); err != nil {
			return err
		}
	}
	usage, err := e.readUsage(ctx)
	if err != nil {
		return err
	}
	if usage.Bytes-usage.InUse < usage.Bytes/4 {
		return nil // a new file would not be much smaller
	}
	return e.defragment(ctx, usage, free)
}

// defragment writes the database to a new file without unused space, if the disk has room for
// both files.
func (e *etcd) defragment(ctx context.Context, usage databaseUsage, free int64) error {
	if need := usage.InUse + usage.InUse/8 + copyBytes; free < need {
		return fmt.Errorf("the disk has %d MiB of the %d MiB that a new database file needs", free>>20, need>>20)
	}
	if _, err := e.client.Defragment(ctx, e.servers[0]); err != nil {
		return fmt.Errorf("defragmenting the database: %w", err)
	}
	// At once, because another program can fill the disk. The former file had a reserve too.
	_ = reserveSpace(databaseFile(e.dir), databaseReserve, 0) // keepReserve reports errors
	return nil
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

// endAlarm ends the alarm for a full database if enough of the quota is free.
func (e *etcd) endAlarm(ctx context.Context) error {
	usage, err := e.readUsage(ctx)
	if err != nil || usage.usedPercent() >= recoverPart {
		return err
	}
	if _, err := e.client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("ending the alarm for a full database: %w", err)
	}
	e.log.Info("the database accepts writes again", "usage", usage.String())
	return nil
}
