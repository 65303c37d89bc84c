//go:build linux

package executor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// putBackOp executes op.PutBack.
type putBackOp struct{ o op.PutBack }

func (*putBackOp) LedgerEntries() ([]subject, bool) {
	return nil, true
}

// A subject is the subject of a ledger entry.
type subject struct {
	kind ledger.Kind
	key  string
}

// wantedOf returns the subjects of a list, with the directories that contain them. It is
// an error if an operation does not determine its subjects: its changes would be reverted
// as unneeded.
func (s *session) wantedOf(list op.List) (map[subject]bool, error) {
	out := map[subject]bool{}
	for _, o := range list {
		x, err := s.operationOf(o)
		if err != nil {
			return nil, err
		}
		var entries []subject
		known := false
		if x, ok := x.(reverter); ok {
			entries, known = x.LedgerEntries()
		}
		if !known {
			return nil, invalid("%s %s cannot be reverted: its changes cannot be separated from changes that are still needed",
				o.Kind(), o.Target())
		}
		for _, sub := range entries {
			out[sub.normal()] = true
			if sub.kind != ledger.KindPath {
				continue
			}
			for dir := filepath.Dir(sub.key); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
				out[subject{ledger.KindPath, dir}] = true
			}
		}
	}
	return out, nil
}

// normal returns the same form for both spellings of a kernel parameter.
func (sub subject) normal() subject {
	if sub.kind == ledger.KindSysctl {
		if p, err := sysctlPath(sub.key); err == nil {
			sub.key = p
		}
	}
	return sub
}

// dropped returns the entries of a step that its list no longer needs, newest first.
func (s *session) dropped(l *ledger.Ledger, o op.PutBack) ([]*ledger.Entry, error) {
	wanted, err := s.wantedOf(s.batch.Ops)
	if err != nil {
		return nil, err
	}
	var out []*ledger.Entry
	for _, e := range l.Newest() {
		switch e.Kind {
		case ledger.KindPath, ledger.KindBlock, ledger.KindSysctl, ledger.KindUnit:
		default:
			continue // such as directories of links, which all units share
		}
		if e.Key == online {
			continue // the same
		}
		if e.By.Step == o.Step && !wanted[subject{e.Kind, e.Key}.normal()] {
			out = append(out, e)
		}
	}
	return out, nil
}

func (x *putBackOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	l, err := ledger.Open(s.State, s.Root, s.disk, ledger.Owner{})
	if err != nil {
		return verdict{}, err
	}
	entries, err := s.dropped(l, o)
	if err != nil {
		return verdict{}, err
	}
	var changes []string
	for _, e := range entries {
		would, err := s.wouldPutBack(l, e)
		if err != nil {
			return verdict{}, err
		}
		if would != "" {
			changes = append(changes, would)
		}
	}
	return verdict{change: strings.Join(changes, ", ")}, nil
}

// wouldPutBack describes the action for an entry. An unchanged subject is only removed
// from the ledger, so that later changes by other software belong to that software.
func (s *session) wouldPutBack(l *ledger.Ledger, e *ledger.Entry) (string, error) {
	var would string
	var err error
	switch e.Kind {
	case ledger.KindPath:
		if would, err = l.WouldRestore(e); would == "" && l.MadeDir(e) {
			return "", err // in use
		}
	case ledger.KindSysctl:
		would, err = s.wouldRestoreSysctl(e)
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
func (x *putBackOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	entries, err := s.dropped(s.ledger, o)
	if err != nil {
		return err
	}
	if err := s.restoreEntries(ctx, entries, &report{}); err != nil {
		return err
	}
	for _, e := range entries {
		if s.ledger.MadeDir(e) {
			continue // in use: retried when the cluster is deleted
		}
		if err := s.ledger.End(e); err != nil {
			return fmt.Errorf("cleaning up %s: %w", e.Key, err)
		}
	}
	return nil
}
