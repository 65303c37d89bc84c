//go:build linux

package etcd

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
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
)

// RestoreOp executes op.EtcdRestore.
type RestoreOp struct{ Op op.EtcdRestore }

const (
	// WalRoom is the space that etcd preallocates for its log, in bytes.
	WalRoom = 128 << 20
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

func restoreFile(h *host.Host) string { return h.StatePath("restore.json") }

func readRestoreRecord(h *host.Host) (rec restoreRecord, err error) {
	raw, err := atomicfile.ReadFile(restoreFile(h), bounded.Record)
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

// ofThisRestore returns the record of this operation's restore, empty if it belongs to
// another one. A plan has no operation: for it nothing is done yet except prepared data,
// which are valid for any operation.
func ofThisRestore(h *host.Host, o op.EtcdRestore) (restoreRecord, error) {
	rec, err := readRestoreRecord(h)
	if rec.Key == o.Key && rec.Operation == h.Batch.Operation && h.Batch.Operation != "" {
		return rec, err
	}
	prepared := rec.Key == o.Key && rec.Prepared && !rec.Swapping
	return restoreRecord{Operation: h.Batch.Operation, Key: o.Key, Prepared: prepared}, err
}

func checkRestoreStep(o op.EtcdRestore) error {
	if !host.IsFileName(o.Key) {
		return host.Invalid("%q is not a valid name for a restore", o.Key)
	}
	swaps := o.Do == op.RestorePrepare || o.Do == op.RestoreSwap || o.Do == op.RestoreAside
	if swaps && o.Do != op.RestoreAside && o.From == "" {
		if err := hostfs.CheckBlobName(o.Snapshot); err != nil {
			return err
		}
	}
	if o.From != "" && filepath.Clean(o.From) != op.RecoveredSnapshot(o.Data, o.Key) {
		return host.Invalid("%q is not a snapshot that was recovered here", o.From)
	}
	if swaps && (!filepath.IsAbs(o.Data) || filepath.Clean(o.Data) != o.Data || o.Data == "/") {
		return host.Invalid("%q is not a data directory", o.Data)
	}
	return nil
}

// restoredDir returns the directory for the new data: on their future disk, which can be
// mounted at the data directory itself.
func restoredDir(h *host.Host, o op.EtcdRestore) string {
	return h.DiskPath(filepath.Join(o.Data, ".restore-"+o.Key))
}

func (x *RestoreOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if err := checkRestoreStep(o); err != nil {
		return host.CheckResult{}, err
	}
	rec, err := ofThisRestore(h, o)
	if err != nil {
		return host.CheckResult{}, err
	}
	switch o.Do {
	case op.RestorePrepare:
		if rec.Swapping || rec.Prepared && host.Exists(filepath.Join(restoredDir(h, o), "member")) {
			return host.CheckResult{}, nil
		}
		return host.CheckResult{Change: "create the data of " + o.Name + " from the snapshot"}, roomToRestore(h, o)
	case op.RestoreSwap:
		if rec.Swapped {
			return host.CheckResult{}, nil
		}
		return host.CheckResult{Change: "move the old data aside, and the restored data into their place"}, nil
	case op.RestoreAside:
		if rec.Swapped {
			return host.CheckResult{}, nil
		}
		return host.CheckResult{Change: "move the old data aside"}, nil
	case op.RestoreStop:
		return checkStop(ctx, h, o, rec)
	case op.RestoreStart:
		return checkStart(ctx, h, o)
	case op.RestoreRefresh:
		if rec.Refreshed {
			return checkStart(ctx, h, o)
		}
		return host.CheckResult{Change: "restart " + strings.Join(slices.Concat(o.Units, o.Programs), ", ")}, nil
	}
	return host.CheckResult{}, host.Invalid("a restore has no step %q", o.Do)
}

// roomToRestore rejects a restore that would fill the disk: the received snapshot, and
// the new data next to the old.
func roomToRestore(h *host.Host, o op.EtcdRestore) error {
	dir := h.DiskPath(o.Data)
	if !host.Exists(dir) {
		dir = filepath.Dir(dir)
	}
	size := o.Snapshot.Size
	if info, err := os.Stat(h.DiskPath(o.From)); o.From != "" && err == nil {
		size = info.Size()
	}
	return h.RoomFor(dir, 2*size+WalRoom)
}

// checkStop reports a change as long as anything runs that must stop. Programs that were
// started again after the swap keep running.
func checkStop(ctx context.Context, h *host.Host, o op.EtcdRestore, rec restoreRecord) (host.CheckResult, error) {
	if rec.Swapped {
		return host.CheckResult{}, nil
	}
	running, err := runningEtcdUnits(ctx, h, o.Units)
	if err != nil {
		return host.CheckResult{}, err
	}
	all, err := podsUsing(h, o)
	for _, p := range all {
		running = append(running, p.Program())
	}
	if len(running) == 0 || err != nil {
		return host.CheckResult{}, err
	}
	slices.Sort(running)
	return host.CheckResult{Change: "stop " + strings.Join(slices.Compact(running), ", ")}, nil
}

func checkStart(ctx context.Context, h *host.Host, o op.EtcdRestore) (host.CheckResult, error) {
	running, err := runningEtcdUnits(ctx, h, o.Units)
	if err != nil {
		return host.CheckResult{}, err
	}
	if h.Planning || len(running) < len(o.Units) { // by then they are stopped
		return host.CheckResult{Change: "start " + strings.Join(o.Units, ", ")}, nil
	}
	return host.CheckResult{}, nil
}

func runningEtcdUnits(ctx context.Context, h *host.Host, names []string) (running []string, err error) {
	for _, name := range names {
		u, err := systemctl.ShowUnit(ctx, h, name)
		if err != nil {
			return nil, err
		}
		if u.IsRunning() {
			running = append(running, name)
		}
	}
	return running, nil
}

// podsUsing returns the processes of the programs in pods.
func podsUsing(h *host.Host, o op.EtcdRestore) ([]process.Process, error) {
	all, err := process.PodProcesses(h, o.Cgroups)
	return slices.DeleteFunc(all, func(p process.Process) bool { return p.Shim || !slices.Contains(o.Programs, p.Program()) }), err
}

func (x *RestoreOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	rec, err := ofThisRestore(h, o)
	if err != nil {
		return err
	}
	switch o.Do {
	case op.RestorePrepare:
		return prepareRestore(ctx, h, o, rec)
	case op.RestoreSwap:
		return swapRestored(ctx, h, o, rec)
	case op.RestoreAside:
		return setAside(ctx, h, o, rec)
	case op.RestoreStop:
		return stopForRestore(ctx, h, o)
	case op.RestoreStart:
		return startUnits(ctx, h, o)
	}
	if !rec.Refreshed {
		if err := stopForRestore(ctx, h, o); err != nil {
			return err
		}
		rec.Refreshed = true
		if err := h.WriteRecord(restoreFile(h), rec); err != nil {
			return err
		}
	}
	return startUnits(ctx, h, o)
}

// prepareRestore creates the new data next to the old data.
func prepareRestore(ctx context.Context, h *host.Host, o op.EtcdRestore, rec restoreRecord) error {
	from := h.DiskPath(o.From)
	if o.From == "" {
		var err error
		if from, err = hostfs.GetBlob(ctx, h, o.Snapshot, 0, o.Snapshot.Size); err != nil {
			return err
		}
	}
	if err := roomToRestore(h, o); err != nil {
		return err
	}
	if err := h.Disk.MkdirAll(h.DiskPath(o.Data), atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	to := restoredDir(h, o)
	if err := clearRestoredDir(h, o); err != nil {
		return err
	}
	if _, err := h.Output(ctx, o.Utility, "snapshot", "restore", from,
		"--name", o.Name, "--data-dir", to, "--initial-cluster", o.Cluster, "--initial-advertise-peer-urls", o.PeerURL,
		"--initial-cluster-token", o.Key, "--bump-revision", strconv.FormatUint(o.Bump, 10), "--mark-compacted"); err != nil {
		return fmt.Errorf("restoring the snapshot: %w", err)
	}
	if err := atomicfile.SyncTree(to); err != nil {
		return err
	}
	h.Disk.RunAfter("restored")
	rec.Prepared = true
	if err := h.WriteRecord(restoreFile(h), rec); err != nil {
		return err
	}
	return releaseSnapshot(h, o)
}

// releaseSnapshot removes the snapshot from which the data were created.
func releaseSnapshot(h *host.Host, o op.EtcdRestore) error {
	if o.From != "" {
		return h.Disk.RemoveAll(h.DiskPath(op.RecoverDir(o.Data, o.Key)))
	}
	return hostfs.ReleaseBlob(h, o.Snapshot)
}

// clearRestoredDir removes the remains of restores that were not resumed.
func clearRestoredDir(h *host.Host, o op.EtcdRestore) error {
	left, err := filepath.Glob(h.DiskPath(filepath.Join(o.Data, ".restore-*")))
	for _, dir := range left {
		err = errors.Join(err, h.Disk.RemoveAll(dir))
	}
	return err
}

// setAside moves the data aside: the host is then no longer a member.
func setAside(ctx context.Context, h *host.Host, o op.EtcdRestore, rec restoreRecord) error {
	if err := requireStopped(ctx, h, o); err != nil {
		return err
	}
	if place := h.DiskPath(filepath.Join(o.Data, "member")); host.Exists(place) {
		if err := moveAside(h, o, place); err != nil {
			return err
		}
	}
	rec.Swapped = true
	return h.WriteRecord(restoreFile(h), rec)
}

// requireStopped rejects moving data that are in use.
func requireStopped(ctx context.Context, h *host.Host, o op.EtcdRestore) error {
	if v, err := checkStop(ctx, h, o, restoreRecord{}); err != nil || v.Change != "" {
		return errors.Join(err, &op.Error{Reason: "StillRunning", Message: "the etcd data cannot be moved, because they are in use: " + v.Change})
	}
	return nil
}

// swapRestored moves the old data aside and the new data into their place. It can be
// resumed after any interruption.
func swapRestored(ctx context.Context, h *host.Host, o op.EtcdRestore, rec restoreRecord) error {
	if err := requireStopped(ctx, h, o); err != nil {
		return err
	}
	fresh, place := filepath.Join(restoredDir(h, o), "member"), h.DiskPath(filepath.Join(o.Data, "member"))
	if !rec.Swapping {
		if !rec.Prepared || !host.Exists(fresh) {
			return &op.Error{Reason: "NotPrepared", Message: "the restored data are missing: " + fresh}
		}
		rec.Swapping = true
		if err := h.WriteRecord(restoreFile(h), rec); err != nil {
			return err
		}
	}
	h.Disk.RunAfter("swapping")
	if host.Exists(fresh) {
		if host.Exists(place) {
			if err := moveAside(h, o, place); err != nil {
				return err
			}
		}
		if err := h.Disk.MovePath(fresh, place); err != nil {
			return err
		}
		h.Disk.RunAfter("in place")
	}
	if err := h.Disk.RemoveAll(restoredDir(h, o)); err != nil {
		return err
	}
	if err := releaseSnapshot(h, o); err != nil { // an interrupted run may have left it
		return err
	}
	rec.Swapped = true
	return h.WriteRecord(restoreFile(h), rec)
}

// moveAside keeps the old data under the name of the operation.
func moveAside(h *host.Host, o op.EtcdRestore, place string) error {
	aside := h.DiskPath(filepath.Join(o.Data, "before-"+h.Batch.Operation))
	if err := h.Disk.MkdirAll(aside, atomicfile.Meta{Mode: 0o700}); err != nil {
		return err
	}
	if err := h.Disk.MovePath(place, filepath.Join(aside, "member")); err != nil {
		return err
	}
	h.Disk.RunAfter("aside")
	return nil
}

// stopForRestore stops units, then stops programs in pods, which nothing restarts then.
func stopForRestore(ctx context.Context, h *host.Host, o op.EtcdRestore) error {
	running, err := runningEtcdUnits(ctx, h, o.Units)
	if err != nil {
		return err
	}
	for _, name := range running {
		if err := systemctl.RunSystemctl(ctx, h, "stop", "--", name); err != nil {
			return err
		}
	}
	return endPrograms(ctx, h, o)
}

// endPrograms signals programs in pods to stop, waits for them, and kills the remaining
// ones.
func endPrograms(ctx context.Context, h *host.Host, o op.EtcdRestore) error {
	start := time.Now()
	told := map[process.Process]bool{}
	for {
		all, err := podsUsing(h, o)
		if err != nil || len(all) == 0 {
			return err
		}
		late := time.Since(start) > endTime
		if time.Since(start) > endTime+host.SettleTime {
			return &op.Error{Reason: "StillRunning", Message: fmt.Sprintf("%s (process %d) does not stop", all[0].Program(), all[0].PID)}
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
			if err := p.Signal(how); err != nil {
				return err
			}
		}
		if err := host.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func startUnits(ctx context.Context, h *host.Host, o op.EtcdRestore) error {
	for _, name := range o.Units {
		if err := systemctl.RunSystemctl(ctx, h, "start", "--", name); err != nil {
			return err
		}
	}
	return nil
}
