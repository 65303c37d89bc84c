package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
)

func (a *app) upgradeCmd() *cobra.Command {
	var (
		file, to, bundle, pause string
		check                   bool
		removal                 lifecycle.Removal
		rollout                 lifecycle.Rollout
	)
	cmd := &cobra.Command{
		Use:   "upgrade {--to VERSION | -f FILE} [NAME]",
		Short: "Take a cluster to a newer version of Kubernetes",
		Long: `Takes a cluster that runs to a newer version of Kubernetes, one minor at a time:
each is planned, confirmed and carried out by itself, and is a point at which it
can be left: the next one not begun, the exit code is 1, and what goes on is said.
With FILE, to the version that stands there; other differences of the file are
applied first, with: slipway apply -f FILE

Before anything is touched the cluster is looked at: APIs in use that go away,
disruption budgets and webhooks that would stop it, nodes, certificates, disks,
etcd, bundles. What an upgrade would stop at, or harm, refuses it, all at once
(exit code 2; --ignore-check passes one over). --check reports that and no more.

The first control plane goes first, by itself, then each further one, then the
workers. A node is drained (disruption budgets are respected), upgraded, and put
back in service when it is ready; one that does not come to that end keeps those
after it from beginning, and the cluster goes on as it is: mend the cause, and go
on with: slipway resume; or go back: slipway rollback

etcd, CoreDNS, kube-proxy and the way to the API follow when all nodes are
through. The pods of a node are moved if there is another one for them; those of
an only node run on.`,
		Example: `  slipway upgrade prod --to v1.37.1
  slipway upgrade prod --to v1.37.1 --check
  slipway upgrade prod --to v1.37.1 --pause-after canary   # look at it, then: slipway resume prod
  slipway upgrade -f prod.yaml --max-unavailable 20%`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), lifecycle.Upgrade, file, args)
			if err != nil {
				return err
			}
			r.Version, r.Removal, r.Rollout = to, removal, rollout
			if err := wayOf(&r, bundle, pause); err != nil {
				return err
			}
			if check {
				return a.prechecked(cmd.Context(), r)
			}
			return a.upgrade(cmd.Context(), r, file)
		},
	}
	fileFlag(cmd, &file, "the cluster file, with the version to go to; - is standard input")
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "the `version` to go to, such as v1.37.1")
	f.BoolVar(&check, "check", false, "only report what the upgrade would meet, and touch nothing")
	f.StringVar(&bundle, "bundle", "", "take the next version's content from this `bundle`: a file, a directory or a registry reference")
	atOnceFlag(cmd, &rollout)
	pauseFlag(cmd, &pause)
	drainFlags(cmd, &removal, lifecycle.DefaultDrainTimeout)
	a.changeFlags(cmd)
	cmd.MarkFlagsOneRequired("file", "to")
	return cmd
}

// wayOf says where an upgrade has its content from, and where it stops.
func wayOf(r *lifecycle.Request, bundle, pause string) (err error) {
	if r.Rollout.PauseAfter, err = place(pause); err != nil {
		return err
	}
	r.Bundle, err = bundlePath(bundle)
	return err
}

// upgrade goes from one minor to the next until there is no further one.
func (a *app) upgrade(ctx context.Context, r lifecycle.Request, file string) error {
	var before *lifecycle.Result
	for {
		res, err := a.operated(ctx, operation{prepare: a.prepare(r), file: file})
		if err != nil && res == nil && before != nil {
			return &exitError{code: exitFailed, err: &betweenError{error: err, before: before, file: file}}
		}
		if err != nil || res == nil || res.Onward == "" {
			return err
		}
		before = res
		r.Version, r.Bundle, r.Follows = res.Onward, "", true // the bundle that is named was for the version before
	}
}

// A betweenError is why a minor of an upgrade was not begun when the one before had
// come to its end: that one is not taken back, and something was touched.
type betweenError struct {
	error
	before *lifecycle.Result
	file   string
}

func (e *betweenError) Unwrap() error { return e.error }

// explained are what is to say of it, behind what there is to say of its cause: how the
// cluster is, and what goes on.
func (e *betweenError) explained(cause diag.List, code int) diag.List {
	if len(cause) == 0 && code != exitInterrupted {
		cause = diag.List{{Severity: diag.Error, Message: e.Error()}}
	}
	r := e.before
	return append(slices.Clone(cause), diag.Diagnostic{
		ID: idBetween, Severity: diag.Error,
		Message: "cluster " + r.Cluster + " runs whole, with Kubernetes " + r.Reached + "; the next minor, on the way to " + r.Onward + ", was not begun",
		Hint:    "go on with: " + lifecycle.OnwardCommand(r.Cluster, r.Onward, e.file),
	})
}

func atOnceFlag(cmd *cobra.Command, rollout *lifecycle.Rollout) {
	cmd.Flags().StringVar(&rollout.MaxUnavailable, "max-unavailable", "", "how many workers may be out of service at once: a number, or a share such as 20% (default 1)")
}

func pauseFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "pause-after", "", "stop an upgrade behind this `place`, to look: canary, control-plane, or wave")
}

// place reads where to pause.
func place(text string) (lifecycle.Pause, error) {
	p := lifecycle.Pause(text)
	if !slices.Contains([]lifecycle.Pause{"", lifecycle.PauseCanary, lifecycle.PauseControlPlane, lifecycle.PauseWave}, p) {
		return "", problem(idUsage, "say --pause-after canary, control-plane or wave", "there is no place %q to pause after", text)
	}
	return p, nil
}
