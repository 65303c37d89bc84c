//go:build linux

package executor

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
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/lock"
	"slipway.dev/slipway/internal/node/op"
)

// restoreOp executes op.Restore.
type restoreOp struct{ o op.Restore }

// helperDir has the helper program below the state directory. It is removed after the
// ledger.
const helperDir = "bin"

// Check reports a change as long as there is a ledger, or anything else of Slipway
// on the host except a held lock, unless the lock is to be removed as well.
func (x *restoreOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	entries, err := atomicfile.ReadDir(s.State)
	if errors.Is(err, fs.ErrNotExist) {
		return verdict{}, nil
	}
	if err != nil {
		return verdict{}, err
	}
	l, err := ledger.Open(s.State, s.Root, s.disk, ledger.Owner{})
	if err != nil {
		return verdict{}, err
	}
	held, rest, others := false, false, 0
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lock.FileName:
			held = true
		case name == lock.FenceName:
		case name == ledger.Dir:
			return verdict{change: fmt.Sprintf("restore %d changes to their original state", len(l.Newest()))}, nil
		case foreignState(name):
			others++
		default:
			rest = true
		}
	}
	nothing := others > 0 && others == len(entries) || held && !rest && !o.EndLock
	if nothing {
		return verdict{}, nil
	}
	return verdict{change: "remove " + s.State}, nil
}

// stateNames lists the entries of the state directory that belong to Slipway, and are
// removed with the cluster. The directory may have existed before, with files of the
// user.
var stateNames = map[string]bool{
	lock.FileName: true, lock.FenceName: true, ledger.Dir: true, ledger.Dir + ".restored": true, ledger.Marker: true,
	helperDir: true, applyLock: true, keptBlobs: true, passingBlobs: true, importedFile: true, keptDir: true, runDir: true,
	filepath.Base(op.AutoSnapshots): true, filepath.Base(op.AutoSnapshotFile): true, filepath.Base(op.AutoOutcomeFile): true,
	filepath.Base(op.EtcdDrills): true, filepath.Base(op.EtcdSnapshots): true,
	"exec": true, "units": true, "serving": true, "unpacked": true, "hooks": true, "restore.json": true, "salvage.json": true,
}

// foreignState reports whether an entry of the state directory does not belong to
// Slipway.
func foreignState(name string) bool {
	temp := strings.HasPrefix(name, ".") && strings.HasSuffix(name, atomicfile.TempSuffix)
	return !stateNames[name] && !temp
}

// report collects the results of a restore, line by line.
type report struct {
	lines []string
	left  int
}

func (r *report) did(what, did string) {
	if did != "" {
		r.lines = append(r.lines, what+": "+did)
	}
}

func (r *report) outcome(out ledger.Outcome) {
	r.did(out.Path, out.Did)
	if out.Left != "" {
		r.left++
		r.did(out.Path, "left: "+out.Left)
	}
}

// Apply restores everything, newest first. Each step can be interrupted and is
// then repeated: restored subjects are not changed again, and the ledger is removed last.
func (x *restoreOp) Apply(ctx context.Context, s *session, res *op.Result) error {
	o := x.o
	var rep report
	entries := s.ledger.Newest()
	if err := s.restoreEntries(ctx, entries, &rep); err != nil {
		return err
	}
	left, err := s.foreignEntries()
	if err != nil {
		return err
	}
	for _, name := range left {
		rep.outcome(ledger.Outcome{Path: filepath.Join(DefaultState, name), Left: "not created by Slipway"})
	}
	res.Output = []byte(strings.Join(rep.lines, "\n") + "\n")
	res.Summary = fmt.Sprintf("%d changes restored", len(entries))
	if changed := rep.left - len(left); changed > 0 {
		res.Summary = fmt.Sprintf("%d changes restored, %d left because other software has changed them since", len(entries)-changed, changed)
	}
	if len(left) > 0 {
		res.Summary += fmt.Sprintf("; %s has files of other software, which remain: %s", DefaultState, some(left))
	}
	return s.removeState(o)
}

// restoreEntries restores the subjects of entries, newest first, while units are stopped.
func (s *session) restoreEntries(ctx context.Context, entries []*ledger.Entry, rep *report) error {
	for _, e := range entries {
		if e.Kind != ledger.KindUnit {
			continue
		}
		did, err := s.quietUnit(ctx, e)
		if err != nil {
			return fmt.Errorf("restoring unit %s: %w", e.Key, err)
		}
		rep.did(e.Key, did)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.restoreEntry(ctx, e, rep); err != nil {
			return fmt.Errorf("restoring %s %s: %w", e.Kind, e.Key, err)
		}
	}
	return s.reviveUnits(ctx, entries, rep)
}

func (s *session) restoreEntry(ctx context.Context, e *ledger.Entry, rep *report) error {
	var did string
	var err error
	switch e.Kind {
	case ledger.KindPath:
		var out ledger.Outcome
		out, err = s.ledger.RestorePath(e)
		rep.outcome(out)
	case ledger.KindGlob:
		var outs []ledger.Outcome
		outs, err = s.ledger.RestoreGlob(e)
		for _, out := range outs {
			rep.outcome(out)
		}
	case ledger.KindBlock:
		err = s.restoreBlock(e)
	case ledger.KindSysctl:
		did, err = s.restoreSysctl(e)
	case ledger.KindHostname:
		did, err = s.restoreHostname(e)
	case ledger.KindSwap:
		did, err = s.restoreSwap(ctx, e)
	case ledger.KindUser:
		err = s.restoreUser(ctx, e)
	case ledger.KindUnit: // before and after all others
	default:
		err = invalid("the ledger is from a later version of Slipway: it has %q", e.Kind)
	}
	rep.did(e.Key, did)
	return err
}

// reviveUnits starts the units that ran before, with their original files.
func (s *session) reviveUnits(ctx context.Context, entries []*ledger.Entry, rep *report) error {
	reload := false
	for _, e := range entries {
		reload = reload || e.Kind == ledger.KindUnit || e.Kind == ledger.KindSwap ||
			e.Kind == ledger.KindPath && strings.Contains(e.Key, "/systemd/system/")
	}
	if !reload {
		return nil
	}
	if err := s.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Kind != ledger.KindUnit {
			continue
		}
		did, err := s.reviveUnit(ctx, e)
		if err != nil {
			return fmt.Errorf("restoring unit %s: %w", e.Key, err)
		}
		rep.did(e.Key, did)
	}
	return nil
}

// foreignEntries returns the entries of the state directory that do not belong to
// Slipway.
func (s *session) foreignEntries() (names []string, err error) {
	entries, err := atomicfile.ReadDir(s.State)
	for _, e := range entries {
		if foreignState(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// removeState removes everything of Slipway: the ledger after everything that needs it,
// the helper after the ledger. A held lock that is not to be removed is kept with its
// fence. Its release removes the state directory, unless it has other files.
func (s *session) removeState(o op.Restore) error {
	entries, err := atomicfile.ReadDir(s.State)
	if err != nil {
		return err
	}
	held := false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lock.FileName:
			held = true
		case name == lock.FenceName, name == ledger.Dir, name == ledger.Marker, name == helperDir, name == applyLock:
		case foreignState(name):
		default:
			if err := s.disk.RemoveAll(s.state(e.Name())); err != nil {
				return err
			}
		}
	}
	if err := s.ledger.Remove(); err != nil {
		return err
	}
	for _, name := range []string{helperDir, applyLock} {
		if err := s.disk.RemoveAll(s.state(name)); err != nil {
			return err
		}
	}
	if held && !o.EndLock {
		return nil
	}
	if err := s.lock.Forget(); err != nil {
		return err
	}
	if err := s.disk.Remove(s.State); !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil // files of other software
}
