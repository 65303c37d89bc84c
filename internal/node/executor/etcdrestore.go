//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// etcdRestoreOp executes op.EtcdRestore.
type etcdRestoreOp struct{ o op.EtcdRestore }

const (
	// walRoom is the space that etcd preallocates for its log, in bytes.
	walRoom = 128 << 20
	// endTime is the time for programs with data to stop before they are killed.
	endTime = 30 * time.Second
)

// restoreRecord is the progress of a host in a restore.
type restoreRecord struct {
	Operation string `json:"operation"`
	Key       string `json:"key"`
	// Prepared reports whether the new data are complete, Swapping whether they are being
	// moved into place, Swapped whether they are in place, and Refreshed whether programs
	// that used the old data were stopped.
	Prepared  bool `json:"prepared,omitempty"`
	Swapping  bool `json:"swapping,omitempty"`
	Swapped   bool `json:"swapped,omitempty"`
	Refreshed bool `json:"refreshed,omitempty"`
}

func (s *session) restoreFile() string { return s.state("restore.json") }

func (s *session) restoreRecord() (rec restoreRecord, err error) {
	raw, err := atomicfile.ReadFile(s.restoreFile(), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err != nil {
		return rec, fmt.Errorf("reading how far the last restore came: %w", err)
	}
	return rec, nil
}

// ofThis returns the record of this operation's restore, empty if it belongs to another
// one. A plan has no operation: for it nothing is done yet except prepared data, which
// are valid for any operation.
func (s *session) ofThis(o op.EtcdRestore) (restoreRecord, error) {
	rec, err := s.restoreRecord()
	if rec.Key == o.Key && rec.Operation == s.batch.Operation && s.batch.Operation != "" {
		return rec, err
	}
	prepared := rec.Key == o.Key && rec.Prepared && !rec.Swapping
	return restoreRecord{Operation: s.batch.Operation, Key: o.Key, Prepared: prepared}, err
}

func checkRestoreStep(o op.EtcdRestore) error {
	if !wordy(o.Key) {
		return invalid("%q is not a valid name for a restore", o.Key)
	}
	swaps := o.Do == op.RestorePrepare || o.Do == op.RestoreSwap || o.Do == op.RestoreAside
	if swaps && o.Do != op.RestoreAside && o.From == "" {
		if err := checkBlobName(o.Snapshot); err != nil {
			return err
		}
	}
	if o.From != "" && filepath.Clean(o.From) != op.SalvagedSnapshot(o.Data, o.Key) {
		return invalid("%q is not a snapshot that was recovered here", o.From)
	}
	if swaps && (!filepath.IsAbs(o.Data) || filepath.Clean(o.Data) != o.Data || o.Data == "/") {
		return invalid("%q is not a data directory", o.Data)
	}
	return nil
}

// restoredDir returns the directory for the new data: on their future disk, which can be
// mounted at the data directory itself.
func (s *session) restoredDir(o op.EtcdRestore) string {
	return s.path(filepath.Join(o.Data, ".restore-"+o.Key))
}

func (x *etcdRestoreOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	if err := checkRestoreStep(o); err != nil {
		return verdict{}, err
	}
	rec, err := s.ofThis(o)
	if err != nil {
		return verdict{}, err
	}
	switch o.Do {
	case op.RestorePrepare:
		if rec.Swapping || rec.Prepared && exists(filepath.Join(s.restoredDir(o), "member")) {
			return verdict{}, nil
		}
		return verdict{change: "create the data of " + o.Name + " from the snapshot"}, s.roomToRestore(o)
	case op.RestoreSwap:
		if rec.Swapped {
			return verdict{}, nil
		}
		return verdict{change: "move the old data aside, and the restored data into their place"}, nil
	case op.RestoreAside:
		if rec.Swapped {
			return verdict{}, nil
		}
		return verdict{change: "move the old data aside"}, nil
	case op.RestoreStop:
		return s.checkStop(ctx, o, rec)
	case op.RestoreStart:
		return s.checkStart(ctx, o)
	case op.RestoreRefresh:
		if rec.Refreshed {
			return s.checkStart(ctx, o)
		}
		return verdict{change: "restart " + strings.Join(slices.Concat(o.Units, o.Programs), ", ")}, nil
	}
	return verdict{}, invalid("a restore has no step %q", o.Do)
}

// roomToRestore rejects a restore that would fill the disk: the received snapshot, and
// the new data next to the old.
func (s *session) roomToRestore(o op.EtcdRestore) error {
	dir := s.path(o.Data)
	if !exists(dir) {
		dir = filepath.Dir(dir)
	}
	size := o.Snapshot.Size
	if info, err := os.Stat(s.path(o.From)); o.From != "" && err == nil {
		size = info.Size()
	}
	return s.roomFor(dir, 2*size+walRoom)
}

// checkStop reports a change as long as anything runs that must stop. Programs that were
// started again after the swap keep running.
func (s *session) checkStop(ctx context.Context, o op.EtcdRestore, rec restoreRecord) (verdict, error) {
	if rec.Swapped {
		return verdict{}, nil
	}
	running, err := s.runningUnits(ctx, o.Units)
	if err != nil {
		return verdict{}, err
	}
	all, err := s.inPods(o)
	for _, p := range all {
		running = append(running, p.program())
	}
	if len(running) == 0 || err != nil {
		return verdict{}, err
	}
	slices.Sort(running)
	return verdict{change: "stop " + strings.Join(slices.Compact(running), ", ")}, nil
}

func (s *session) checkStart(ctx context.Context, o op.EtcdRestore) (verdict, error) {
	running, err := s.runningUnits(ctx, o.Units)
	if err != nil {
		return verdict{}, err
	}
	if s.planning || len(running) < len(o.Units) { // by then they are stopped
		return verdict{change: "start " + strings.Join(o.Units, ", ")}, nil
	}
	return verdict{}, nil
}

func (s *session) runningUnits(ctx context.Context, names []string) (running []string, err error) {
	for _, name := range names {
		u, err := s.unit(ctx, name)
		if err != nil {
			return nil, err
		}
		if u.running() {
			running = append(running, name)
		}
	}
	return running, nil
}

// inPods returns the processes of the programs in pods.
func (s *session) inPods(o op.EtcdRestore) ([]process, error) {
	all, err := s.podProcesses(o.Cgroups)
	return slices.DeleteFunc(all, func(p process) bool { return p.shim || !slices.Contains(o.Programs, p.program()) }), err
}

func (x *etcdRestoreOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	rec, err := s.ofThis(o)
	if err != nil {
		return err
	}
	switch o.Do {
	case op.RestorePrepare:
		return s.prepareRestore(ctx, o, rec)
	case op.RestoreSwap:
		return s.swapRestored(ctx, o, rec)
	case op.RestoreAside:
		return s.setAside(ctx, o, rec)
	case op.RestoreStop:
		return s.stopForRestore(ctx, o)
	case op.RestoreStart:
		return s.startUnits(ctx, o)
	}
	if !rec.Refreshed {
		if err := s.stopForRestore(ctx, o); err != nil {
			return err
		}
		rec.Refreshed = true
		if err := s.keep(s.restoreFile(), rec); err != nil {
			return err
		}
	}
	return s.startUnits(ctx, o)
}

// prepareRestore creates the new data next to the old data.
func (s *session) prepareRestore(ctx context.Context, o op.EtcdRestore, rec restoreRecord) error {
	from := s.path(o.From)
	if o.From == "" {
		var err error
		if from, err = s.blob(ctx, o.Snapshot, 0, o.Snapshot.Size); err != nil {
			return err
		}
	}
	if err := s.roomToRestore(o); err != nil {
		return err
	}
	if err := s.disk.MkdirAll(s.path(o.Data), atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	to := s.restoredDir(o)
	if err := s.clearRestored(o); err != nil {
		return err
	}
	if _, err := s.output(ctx, o.Utility, "snapshot", "restore", from,
		"--name", o.Name, "--data-dir", to, "--initial-cluster", o.Cluster, "--initial-advertise-peer-urls", o.PeerURL,
		"--initial-cluster-token", o.Key, "--bump-revision", strconv.FormatUint(o.Bump, 10), "--mark-compacted"); err != nil {
		return fmt.Errorf("restoring the snapshot: %w", err)
	}
	if err := atomicfile.SyncTree(to); err != nil {
		return err
	}
	s.disk.Did("restored")
	rec.Prepared = true
	if err := s.keep(s.restoreFile(), rec); err != nil {
		return err
	}
	return s.letGoOf(o)
}

// letGoOf removes the snapshot from which the data were created.
func (s *session) letGoOf(o op.EtcdRestore) error {
	if o.From != "" {
		return s.disk.RemoveAll(s.path(op.SalvageDir(o.Data, o.Key)))
	}
	return s.letGo(o.Snapshot)
}

// clearRestored removes the remains of restores that were not resumed.
func (s *session) clearRestored(o op.EtcdRestore) error {
	left, err := filepath.Glob(s.path(filepath.Join(o.Data, ".restore-*")))
	for _, dir := range left {
		err = errors.Join(err, s.disk.RemoveAll(dir))
	}
	return err
}

// setAside moves the data aside: the host is then no longer a member.
func (s *session) setAside(ctx context.Context, o op.EtcdRestore, rec restoreRecord) error {
	if err := s.stopped(ctx, o); err != nil {
		return err
	}
	if place := s.path(filepath.Join(o.Data, "member")); exists(place) {
		if err := s.moveAside(o, place); err != nil {
			return err
		}
	}
	rec.Swapped = true
	return s.keep(s.restoreFile(), rec)
}

// stopped rejects moving data that are in use.
func (s *session) stopped(ctx context.Context, o op.EtcdRestore) error {
	if v, err := s.checkStop(ctx, o, restoreRecord{}); err != nil || v.change != "" {
		return errors.Join(err, &op.Error{Reason: "StillRunning", Message: "the etcd data cannot be moved, because they are in use: " + v.change})
	}
	return nil
}

// swapRestored moves the old data aside and the new data into their place. It can be
// resumed after any interruption.
func (s *session) swapRestored(ctx context.Context, o op.EtcdRestore, rec restoreRecord) error {
	if err := s.stopped(ctx, o); err != nil {
		return err
	}
	fresh, place := filepath.Join(s.restoredDir(o), "member"), s.path(filepath.Join(o.Data, "member"))
	if !rec.Swapping {
		if !rec.Prepared || !exists(fresh) {
			return &op.Error{Reason: "NotPrepared", Message: "the restored data are missing: " + fresh}
		}
		rec.Swapping = true
		if err := s.keep(s.restoreFile(), rec); err != nil {
			return err
		}
	}
	s.disk.Did("swapping")
	if exists(fresh) {
		if exists(place) {
			if err := s.moveAside(o, place); err != nil {
				return err
			}
		}
		if err := s.disk.Move(fresh, place); err != nil {
			return err
		}
		s.disk.Did("in place")
	}
	if err := s.disk.RemoveAll(s.restoredDir(o)); err != nil {
		return err
	}
	if err := s.letGoOf(o); err != nil { // an interrupted run may have left it
		return err
	}
	rec.Swapped = true
	return s.keep(s.restoreFile(), rec)
}

// moveAside keeps the old data under the name of the operation.
func (s *session) moveAside(o op.EtcdRestore, place string) error {
	aside := s.path(filepath.Join(o.Data, "before-"+s.batch.Operation))
	if err := s.disk.MkdirAll(aside, atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	if err := s.disk.Move(place, filepath.Join(aside, "member")); err != nil {
		return err
	}
	s.disk.Did("aside")
	return nil
}

// stopForRestore stops units, then stops programs in pods, which nothing restarts then.
func (s *session) stopForRestore(ctx context.Context, o op.EtcdRestore) error {
	running, err := s.runningUnits(ctx, o.Units)
	if err != nil {
		return err
	}
	for _, name := range running {
		if err := s.systemctl(ctx, "stop", "--", name); err != nil {
			return err
		}
	}
	return s.endPrograms(ctx, o)
}

// endPrograms signals programs in pods to stop, waits for them, and kills the remaining
// ones.
func (s *session) endPrograms(ctx context.Context, o op.EtcdRestore) error {
	start := time.Now()
	told := map[process]bool{}
	for {
		all, err := s.inPods(o)
		if err != nil || len(all) == 0 {
			return err
		}
		late := time.Since(start) > endTime
		if time.Since(start) > endTime+settle {
			return &op.Error{Reason: "StillRunning", Message: fmt.Sprintf("%s (process %d) does not stop", all[0].program(), all[0].pid)}
		}
		for _, p := range all {
			how := unix.SIGTERM
			if late {
				how = unix.SIGKILL
			}
			if told[p] && !late {
				continue
			}
			told[p] = true
			if err := p.signal(how); err != nil {
				return err
			}
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (s *session) startUnits(ctx context.Context, o op.EtcdRestore) error {
	for _, name := range o.Units {
		if err := s.systemctl(ctx, "start", "--", name); err != nil {
			return err
		}
	}
	return nil
}
