package serverbackup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup/copies"
)

const (
	// retryAfter is the time until a failed backup is tried again.
	retryAfter = 10 * time.Minute
	// clockEvery is how often the clock is read: it can be corrected during a wait.
	clockEvery = time.Minute
)

// A Schedule configures the backups that a server makes.
type Schedule struct {
	// Interval is the time between two sets, Keep the number of sets in Directory.
	Interval time.Duration
	Keep     int
	// Directory is the directory for sets; "" is backups in the data directory. It must
	// exist: another disk may be mounted there.
	Directory string
	// Recipients are the age keys for which sets are encrypted. Targets need them.
	Recipients []age.Recipient
	Targets    []Target
	// Report, if not nil, is called after each try with its result.
	Report func(ok bool, message string)
}

// A Target is a place for copies of sets.
type Target struct {
	Name string
	Keep int
	// Open connects to it.
	Open func(ctx context.Context) (copies.Target, error)
}

// RunSchedule makes backups until the context ends. The next one follows from the newest set
// in the directory, also after a restart.
func (m *Maker) RunSchedule(ctx context.Context, s Schedule) error {
	if m.o.Signer == nil {
		return errors.New("scheduled backups need a signing key, which their names depend on")
	}
	if s.Directory == "" {
		s.Directory = m.o.Dir.Path("backups")
	}
	r := &scheduleRun{m: m, s: s, host: copies.Name{Cluster: product, ID: nameID(m.o.Dir.ServerID()), Host: role}}
	if err := r.removeIncomplete(ctx); err != nil {
		m.o.Log.WarnContext(ctx, "incomplete backups were not removed", "error", err)
	}
	if len(s.Targets) > 0 {
		r.runOnce(ctx) // a target may lack the newest set
	}
	for ctx.Err() == nil {
		if wait := r.nextTime(ctx).Sub(m.o.Now()); wait > 0 {
			pause(ctx, min(wait, clockEvery))
			continue
		}
		r.runOnce(ctx)
	}
	return nil
}

// pause waits until the time has passed or the context has ended.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// A scheduleRun is the state of RunSchedule.
type scheduleRun struct {
	m    *Maker
	s    Schedule
	host copies.Name // of this server
	// failed is the time of the latest try if it failed, else zero.
	failed time.Time
}

func (r *scheduleRun) removeIncomplete(ctx context.Context) error {
	dir, err := r.openDir()
	if err != nil {
		return err
	}
	return copies.RemoveIncomplete(ctx, dir, r.host)
}

func (r *scheduleRun) openDir() (localDir, error) {
	return openDir(r.s.Directory, len(r.s.Recipients) > 0)
}

// isVerified reports whether this server has chosen a name.
func (r *scheduleRun) isVerified(n copies.Name) bool {
	return isOwn(n, r.m.o.Dir.ServerID()) && n.IsVerified(r.m.o.Signer)
}

// newestSet returns the newest set of this server in the directory that is not from the
// future: the clock may have been wrong. ok reports whether there is one.
func (r *scheduleRun) newestSet(ctx context.Context) (newest copies.Copy, ok bool, err error) {
	dir, err := r.openDir()
	if err != nil {
		return newest, false, err
	}
	list, err := copies.ListCopies(ctx, dir, "", r.isVerified)
	for _, c := range list {
		if !c.Taken.After(r.m.o.Now()) && (!ok || c.Taken.After(newest.Taken)) {
			newest, ok = c, true
		}
	}
	return newest, ok, err
}

// nextTime returns the time of the next try.
func (r *scheduleRun) nextTime(ctx context.Context) time.Time {
	switch now := r.m.o.Now(); {
	case r.failed.After(now): // the clock was set back
		return now
	case !r.failed.IsZero():
		return r.failed.Add(min(retryAfter, r.s.Interval))
	}
	newest, ok, err := r.newestSet(ctx)
	if err != nil || !ok {
		return r.m.o.Now()
	}
	return newest.Taken.Add(r.s.Interval)
}

// runOnce makes a set if one is due, sends the newest set to targets that lack it, and
// reports the result.
func (r *scheduleRun) runOnce(ctx context.Context) {
	file, err := r.makeSet(ctx)
	if err == nil {
		err = r.sendCopies(ctx, file)
	}
	if ctx.Err() != nil {
		return // the server stops: this is not a failure
	}
	if err != nil {
		r.failed = r.m.o.Now()
		r.m.o.Log.ErrorContext(ctx, "scheduled backup failed", "error", err)
		r.report(false, "the latest scheduled backup failed: "+err.Error())
		return
	}
	r.failed = time.Time{}
	r.m.o.Log.InfoContext(ctx, "scheduled backup is complete", "directory", r.s.Directory, "file", file)
	r.report(true, "the latest scheduled backup is "+file+" in "+r.s.Directory)
}

func (r *scheduleRun) report(ok bool, message string) {
	if r.s.Report != nil {
		r.s.Report(ok, message)
	}
}

// makeSet returns the newest set of the directory, and makes one before if it is due. The
// result is a name as localDir lists it.
func (r *scheduleRun) makeSet(ctx context.Context) (file string, err error) {
	dir, err := r.openDir()
	if err != nil {
		return "", err
	}
	if newest, ok, err := r.newestSet(ctx); err == nil && ok && newest.Taken.Add(r.s.Interval).After(r.m.o.Now()) {
		actual, err := dir.actualName(ctx, newest.File.Name)
		encrypted := strings.HasSuffix(actual, sealedSuffix)
		if err != nil || encrypted || len(r.s.Targets) == 0 {
			return newest.File.Name, err
		} // a copy must be encrypted
	}
	select {
	case r.m.busy <- struct{}{}:
		defer r.m.release()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	d, err := r.m.draftSet(ctx)
	if err != nil {
		return "", err
	}
	defer d.discard()
	name := nameFor(d.header, d.signer)
	sent, err := copies.SendCopy(ctx, dir, name, r.m.o.Signer, r.s.Keep, func(w io.Writer) error {
		return d.writeSet(ctx, w, r.s.Recipients)
	})
	if err != nil {
		return "", explainRoom(fmt.Errorf("writing the backup to %s: %w", r.s.Directory, err))
	}
	if sent.Unremoved != nil {
		r.m.o.Log.WarnContext(ctx, "old backups were not removed", "directory", r.s.Directory, "error", sent.Unremoved)
	}
	return name.String(), nil
}

// sendCopies sends a set of the directory to all targets that lack it.
func (r *scheduleRun) sendCopies(ctx context.Context, file string) (failed error) {
	dir, err := r.openDir()
	if err != nil {
		return err
	}
	name, ok := copies.ParseName(file)
	if !ok {
		return fmt.Errorf("%q is not the name of a backup", file)
	}
	for _, to := range r.s.Targets {
		if err := r.sendCopy(ctx, dir, name, to); err != nil {
			failed = errors.Join(failed, fmt.Errorf("copying %s to target %s: %w", file, to.Name, err))
		}
	}
	return failed
}

func (r *scheduleRun) sendCopy(ctx context.Context, dir localDir, name copies.Name, to Target) error {
	target, err := to.Open(ctx)
	if err != nil {
		return err
	}
	defer target.Close()
	there, err := copies.ListCopies(ctx, target, "", func(n copies.Name) bool { return n == name })
	if err != nil || len(there) > 0 {
		return err
	}
	sent, err := copies.SendCopy(ctx, target, name, r.m.o.Signer, cmp.Or(to.Keep, r.s.Keep), func(w io.Writer) error {
		return dir.Fetch(ctx, name.String(), w)
	})
	if err == nil && sent.Unremoved != nil {
		r.m.o.Log.WarnContext(ctx, "old copies were not removed", "target", to.Name, "error", sent.Unremoved)
	}
	return err
}
