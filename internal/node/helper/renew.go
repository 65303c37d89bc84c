//go:build linux

package helper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/run"
)

// renew has the host renew what is due of its certificates, and tells the
// journal what came of it.
func renew(ctx context.Context, file string, to io.Writer) error {
	var job op.AutoRenewal
	if err := toDo(file, &job); err != nil {
		return err
	}
	out, err := (&run.Runner{}).AutoRenew(ctx, job)
	if err != nil {
		return err
	}
	if out.Result == op.AutoFailed {
		return errors.New(out.Message)
	}
	line := string(out.Result)
	if out.Result == op.AutoRenewed {
		line += ": " + strings.Join(out.Renewed, " ")
	}
	_, err = fmt.Fprintln(to, strings.TrimSuffix(line+": "+out.Message, ": "))
	return err
}

// snapshot has the host take a snapshot of its own member of etcd, as a file says,
// and tells the journal what came of it.
func snapshot(ctx context.Context, file string, to io.Writer) error {
	var job op.AutoSnapshot
	if err := toDo(file, &job); err != nil {
		return err
	}
	out, err := (&run.Runner{}).AutoSnapshot(ctx, job)
	if err != nil {
		return err
	}
	var failed []error
	if out.Failed != "" {
		failed = append(failed, errors.New(out.Failed))
	} else if _, err := fmt.Fprintf(to, "snapshot taken: %s, revision %d; %d snapshots are kept\n", out.Kept[0].Path, out.Kept[0].Revision, len(out.Kept)); err != nil {
		return err
	}
	if out.Unremoved != "" {
		failed = append(failed, fmt.Errorf("removing the oldest snapshot: %s", out.Unremoved))
	}
	for _, c := range out.Copies {
		if c.Failed != "" {
			failed = append(failed, fmt.Errorf("copying to %s: %s", c.Target, c.Failed))
		}
		if c.Unremoved != "" {
			failed = append(failed, fmt.Errorf("copied to %s, but removing old copies failed: %s", c.Target, c.Unremoved))
		}
	}
	if d := out.Drill; d != nil && d.Failed != "" {
		failed = append(failed, fmt.Errorf("testing the restore of %s in a temporary etcd: %s", filepath.Base(d.Path), d.Failed))
	}
	return errors.Join(failed...)
}

// approve has a control plane approve what kubelets ask for, as a file says, and
// tells the journal what it approved. It fails if it leaves requests pending.
func approve(ctx context.Context, file string, to io.Writer) error {
	var job op.AutoApproval
	if err := toDo(file, &job); err != nil {
		return err
	}
	approved, err := (&run.Runner{}).AutoApprove(ctx, job)
	for _, name := range approved {
		_, failed := fmt.Fprintln(to, "approved:", name)
		err = errors.Join(err, failed)
	}
	return err
}

// toDo reads what a host is to do by itself, and settles where it works.
func toDo(file string, job any) error {
	raw, err := bounded.ReadFile(file, bounded.Proc)
	if err != nil {
		return fmt.Errorf("reading what is to be done: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(job); err != nil {
		return fmt.Errorf("reading %s, which another version may have written: %w", file, err)
	}
	return settle()
}
