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
	"slipway.dev/slipway/internal/node/executor"
	"slipway.dev/slipway/internal/node/op"
)

// renewCertificates renews certificates of the host that are due, and writes the result to the
// journal.
func renewCertificates(ctx context.Context, file string, to io.Writer) error {
	var job op.AutoRenewal
	if err := toDo(file, &job); err != nil {
		return err
	}
	out, err := (&executor.Runner{}).AutoRenew(ctx, job)
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

// takeSnapshot takes a snapshot of the host's own etcd member, as a file configures it, and
// writes the result to the journal.
func takeSnapshot(ctx context.Context, file string, to io.Writer) error {
	var job op.AutoSnapshot
	if err := toDo(file, &job); err != nil {
		return err
	}
	out, err := (&executor.Runner{}).AutoSnapshot(ctx, job)
	if err != nil {
		return err
	}
	var failed []error
	if out.Failed != "" {
		failed = append(failed, errors.New(out.Failed))
	} else if _, err := fmt.Fprintf(to, "snapshot taken: %s, revision %d; %d snapshots are kept\n", out.Kept[0].Path,
		out.Kept[0].Revision, len(out.Kept)); err != nil {
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

// approveRequests approves requests of kubelets on a control plane, as a file configures it, and
// writes the approvals to the journal. It fails if requests remain pending.
func approveRequests(ctx context.Context, file string, to io.Writer) error {
	var job op.AutoApproval
	if err := toDo(file, &job); err != nil {
		return err
	}
	approved, err := (&executor.Runner{}).AutoApprove(ctx, job)
	for _, name := range approved {
		_, failed := fmt.Fprintln(to, "approved:", name)
		err = errors.Join(err, failed)
	}
	return err
}

// toDo reads the configuration of an automatic task, and sets up its directories.
func toDo(file string, job any) error {
	raw, err := bounded.ReadFile(file, bounded.Proc)
	if err != nil {
		return fmt.Errorf("reading the configuration of the task: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(job); err != nil {
		return fmt.Errorf("reading %s, which another version may have written: %w", file, err)
	}
	return resetProcess()
}
