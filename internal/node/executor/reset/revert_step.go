//go:build linux

package reset

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/system"
	"slipway.dev/slipway/internal/node/executor/systemd"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// RevertStepOp executes op.RevertStep.
type RevertStepOp struct{ Op op.RevertStep }

func (*RevertStepOp) LedgerEntries() ([]host.Subject, bool) {
	return nil, true
}

// neededSubjects returns the subjects of a list, with the directories that contain them.
// It is an error if an operation does not determine its subjects: its changes would be
// reverted as unneeded.
func neededSubjects(h *host.Host, list op.List) (map[host.Subject]bool, error) {
	out := map[host.Subject]bool{}
	for _, o := range list {
		x, err := h.OperationOf(o)
		if err != nil {
			return nil, err
		}
		var entries []host.Subject
		known := false
		if x, ok := x.(host.Reverter); ok {
			entries, known = x.LedgerEntries()
		}
		if !known {
			return nil, host.Invalid("%s %s cannot be reverted: its changes cannot be separated from changes that are still needed",
				o.Kind(), o.Target())
		}
		for _, sub := range entries {
			out[normalSubject(sub)] = true
			if sub.Kind != ledger.KindPath {
				continue
			}
			for dir := filepath.Dir(sub.Key); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
				out[host.Subject{Kind: ledger.KindPath, Key: dir}] = true
			}
		}
	}
	return out, nil
}

// normalSubject returns the same form for both spellings of a kernel parameter.
func normalSubject(sub host.Subject) host.Subject {
	if sub.Kind == ledger.KindSysctl {
		if p, err := system.SysctlPath(sub.Key); err == nil {
			sub.Key = p
		}
	}
	return sub
}

// unneededEntries returns the entries of a step that its list no longer needs, newest
// first.
func unneededEntries(h *host.Host, l *ledger.Ledger, o op.RevertStep) ([]*ledger.Entry, error) {
	wanted, err := neededSubjects(h, h.Batch.Ops)
	if err != nil {
		return nil, err
	}
	var out []*ledger.Entry
	for _, e := range l.NewestEntries() {
		switch e.Kind {
		case ledger.KindPath, ledger.KindBlock, ledger.KindSysctl, ledger.KindUnit:
		default:
			continue // such as directories of links, which all units share
		}
		if e.Key == systemd.OnlineTarget {
			continue // the same
		}
		if e.By.Step == o.Step && !wanted[normalSubject(host.Subject{Kind: e.Kind, Key: e.Key})] {
			out = append(out, e)
		}
	}
	return out, nil
}

func (x *RevertStepOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	l, err := ledger.Open(h.State, h.Root, h.Disk, ledger.Owner{})
	if err != nil {
		return host.CheckResult{}, err
	}
	entries, err := unneededEntries(h, l, o)
	if err != nil {
		return host.CheckResult{}, err
	}
	var changes []string
	for _, e := range entries {
		would, err := wouldPutBack(h, l, e)
		if err != nil {
			return host.CheckResult{}, err
		}
		if would != "" {
			changes = append(changes, would)
		}
	}
	return host.CheckResult{Change: strings.Join(changes, ", ")}, nil
}

// wouldPutBack describes the action for an entry. An unchanged subject is only removed
// from the ledger, so that later changes by other software belong to that software.
func wouldPutBack(h *host.Host, l *ledger.Ledger, e *ledger.Entry) (string, error) {
	var would string
	var err error
	switch e.Kind {
	case ledger.KindPath:
		if would, err = l.WouldRestore(e); would == "" && l.MadeDir(e) {
			return "", err // in use
		}
	case ledger.KindSysctl:
		would, err = system.WouldRestoreSysctl(h, e)
	case ledger.KindBlock:
		would = "remove the block " + e.Key
	case ledger.KindUnit:
		would = "restore " + e.Key
	}
	if err == nil && would == "" {
		would = "forget " + e.Key + ", which is unchanged"
	}
	return would, err
}

// Apply restores the subjects and removes their entries. After an interruption it
// continues with the remaining entries.
func (x *RevertStepOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	entries, err := unneededEntries(h, h.Ledger, o)
	if err != nil {
		return err
	}
	if err := restoreEntries(ctx, h, entries, &restoreReport{}); err != nil {
		return err
	}
	for _, e := range entries {
		if h.Ledger.MadeDir(e) {
			continue // in use: retried when the cluster is deleted
		}
		if err := h.Ledger.EndEntry(e); err != nil {
			return fmt.Errorf("cleaning up %s: %w", e.Key, err)
		}
	}
	return nil
}
