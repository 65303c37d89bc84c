//go:build linux

package reset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/images"
	"slipway.dev/slipway/internal/node/executor/program"
	"slipway.dev/slipway/internal/node/executor/system"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/executor/systemd"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/lock"
	"slipway.dev/slipway/internal/node/op"
)

// RestoreHostOp executes op.RestoreHost.
type RestoreHostOp struct{ Op op.RestoreHost }

// helperDir has the helper program below the state directory. It is removed after the
// ledger.
const helperDir = "bin"

// Check reports a change as long as there is a ledger, or anything else of Slipway
// on the host except a held lock, unless the lock is to be removed as well.
func (x *RestoreHostOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	entries, err := atomicfile.ReadDir(h.State)
	if errors.Is(err, fs.ErrNotExist) {
		return host.CheckResult{}, nil
	}
	if err != nil {
		return host.CheckResult{}, err
	}
	l, err := ledger.Open(h.State, h.Root, h.Disk, ledger.Owner{})
	if err != nil {
		return host.CheckResult{}, err
	}
	held, rest, others := false, false, 0
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lock.FileName:
			held = true
		case name == lock.FenceName, name == lock.ManagerName:
		case name == ledger.Dir:
			return host.CheckResult{Change: fmt.Sprintf("restore %d changes to their original state", len(l.NewestEntries()))}, nil
		case IsForeignState(name):
			others++
		default:
			rest = true
		}
	}
	nothing := others > 0 && others == len(entries) || held && !rest && !o.EndLock
	if nothing {
		return host.CheckResult{}, nil
	}
	return host.CheckResult{Change: "remove " + h.State}, nil
}

// stateNames lists the entries of the state directory that belong to Slipway, and are
// removed with the cluster. The directory may have existed before, with files of the
// user.
var stateNames = map[string]bool{
	lock.FileName: true, lock.FenceName: true, lock.ManagerName: true, ledger.Dir: true, ledger.Dir + ".restored": true, ledger.Marker: true,
	helperDir: true, host.ApplyLock: true, hostfs.KeptBlobs: true, hostfs.PassingBlobs: true, images.ImportedFile: true,
	hostfs.BaselineDir: true, program.RunDir: true,
	filepath.Base(op.AutoSnapshots): true, filepath.Base(op.AutoSnapshotFile): true, filepath.Base(op.AutoOutcomeFile): true,
	filepath.Base(op.EtcdRestoreTests): true, filepath.Base(op.EtcdSnapshots): true,
	"exec": true, "units": true, "serving": true, "unpacked": true, "hooks": true, "restore.json": true, "salvage.json": true,
}

// IsForeignState reports whether an entry of the state directory does not belong to
// Slipway.
func IsForeignState(name string) bool {
	temp := strings.HasPrefix(name, ".") && strings.HasSuffix(name, atomicfile.TempSuffix)
	return !stateNames[name] && !temp
}

// restoreReport collects the results of a restore, line by line.
type restoreReport struct {
	lines []string
	left  int
}

func (r *restoreReport) add(what, did string) {
	if did != "" {
		r.lines = append(r.lines, what+": "+did)
	}
}

func (r *restoreReport) text(out ledger.Outcome) {
	r.add(out.Path, out.Did)
	if out.Left != "" {
		r.left++
		r.add(out.Path, "left: "+out.Left)
	}
}

// Apply restores everything, newest first. Each step can be interrupted and is
// then repeated: restored subjects are not changed again, and the ledger is removed last.
func (x *RestoreHostOp) Apply(ctx context.Context, h *host.Host, res *op.Result) error {
	o := x.Op
	var rep restoreReport
	entries := h.Ledger.NewestEntries()
	if err := restoreEntries(ctx, h, entries, &rep); err != nil {
		return err
	}
	left, err := foreignEntries(h)
	if err != nil {
		return err
	}
	for _, name := range left {
		rep.text(ledger.Outcome{Path: filepath.Join(host.DefaultState, name), Left: "not created by Slipway"})
	}
	res.Output = joinLines(rep.lines)
	res.Summary = fmt.Sprintf("%d changes restored", len(entries))
	if changed := rep.left - len(left); changed > 0 {
		res.Summary = fmt.Sprintf("%d changes restored, %d left because other software has changed them since", len(entries)-changed, changed)
	}
	if len(left) > 0 {
		res.Summary += fmt.Sprintf("; %s has files of other software, which remain: %s", host.DefaultState, host.Summarize(left))
	}
	return removeState(h, o)
}

// restoreEntries restores the subjects of entries, newest first, while units are stopped.
func restoreEntries(ctx context.Context, h *host.Host, entries []*ledger.Entry, rep *restoreReport) error {
	for _, e := range entries {
		if e.Kind != ledger.KindUnit {
			continue
		}
		did, err := systemd.QuietUnit(ctx, h, e)
		if err != nil {
			return fmt.Errorf("restoring unit %s: %w", e.Key, err)
		}
		rep.add(e.Key, did)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := restoreEntry(ctx, h, e, rep); err != nil {
			return fmt.Errorf("restoring %s %s: %w", e.Kind, e.Key, err)
		}
	}
	return reviveUnits(ctx, h, entries, rep)
}

func restoreEntry(ctx context.Context, h *host.Host, e *ledger.Entry, rep *restoreReport) error {
	var did string
	var err error
	switch e.Kind {
	case ledger.KindPath:
		var out ledger.Outcome
		out, err = h.Ledger.RestorePath(e)
		rep.text(out)
	case ledger.KindGlob:
		var outs []ledger.Outcome
		outs, err = h.Ledger.RestoreGlob(e)
		for _, out := range outs {
			rep.text(out)
		}
	case ledger.KindBlock:
		err = hostfs.RestoreBlock(h, e)
	case ledger.KindSysctl:
		did, err = system.RestoreSysctl(h, e)
	case ledger.KindHostname:
		did, err = system.RestoreHostname(h, e)
	case ledger.KindSwap:
		did, err = system.RestoreSwap(ctx, h, e)
	case ledger.KindUser:
		err = system.RestoreUser(ctx, h, e)
	case ledger.KindUnit: // before and after all others
	default:
		err = host.Invalid("the ledger is from a later version of Slipway: it has %q", e.Kind)
	}
	rep.add(e.Key, did)
	return err
}

// reviveUnits starts the units that ran before, with their original files.
func reviveUnits(ctx context.Context, h *host.Host, entries []*ledger.Entry, rep *restoreReport) error {
	reload := false
	for _, e := range entries {
		reload = reload || e.Kind == ledger.KindUnit || e.Kind == ledger.KindSwap ||
			e.Kind == ledger.KindPath && strings.Contains(e.Key, "/systemd/system/")
	}
	if !reload {
		return nil
	}
	if err := systemctl.RunSystemctl(ctx, h, "daemon-reload"); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Kind != ledger.KindUnit {
			continue
		}
		did, err := systemd.ReviveUnit(ctx, h, e)
		if err != nil {
			return fmt.Errorf("restoring unit %s: %w", e.Key, err)
		}
		rep.add(e.Key, did)
	}
	return nil
}

// foreignEntries returns the entries of the state directory that do not belong to
// Slipway.
func foreignEntries(h *host.Host) (names []string, err error) {
	entries, err := atomicfile.ReadDir(h.State)
	for _, e := range entries {
		if IsForeignState(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// removeState removes everything of Slipway: the ledger after everything that needs it,
// the helper after the ledger. A held lock that is not to be removed is kept with its
// fence. Its release removes the state directory, unless it has other files.
func removeState(h *host.Host, o op.RestoreHost) error {
	entries, err := atomicfile.ReadDir(h.State)
	if err != nil {
		return err
	}
	held := false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lock.FileName:
			held = true
		case name == lock.FenceName, name == lock.ManagerName, name == ledger.Dir, name == ledger.Marker, name == helperDir,
			name == host.ApplyLock:
		case IsForeignState(name):
		default:
			if err := h.Disk.RemoveAll(h.StatePath(e.Name())); err != nil {
				return err
			}
		}
	}
	if err := h.Ledger.RemoveLedger(); err != nil {
		return err
	}
	for _, name := range []string{helperDir, host.ApplyLock} {
		if err := h.Disk.RemoveAll(h.StatePath(name)); err != nil {
			return err
		}
	}
	if held && !o.EndLock {
		return nil
	}
	if err := h.Lock.ForgetLock(); err != nil {
		return err
	}
	if err := h.Disk.RemovePath(h.State); !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil // files of other software
}
