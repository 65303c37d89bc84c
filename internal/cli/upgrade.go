package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
	kinds "slipway.dev/slipway/internal/lifecycle/operation"
)

// upgradeHelp is the help text of upgrade.
const upgradeHelp = `Upgrades a running cluster to a newer version of Kubernetes, one minor version at a
time. Slipway plans, confirms and applies each minor version separately. If you stop
between two minor versions, the exit code is 1 and the command to continue is printed.
With FILE, upgrades to the version in FILE. Apply other differences of the file first
with: slipway apply -f FILE

Before any change, Slipway checks the cluster: removed APIs that are still in use,
PodDisruptionBudgets and webhooks that would block the upgrade, nodes, certificates,
disks, etcd, and bundles. It reports all problems at once and refuses the upgrade
(exit code 2; --ignore-check ignores a problem). --check only runs these checks.

The first control plane is upgraded first, then the other control planes one at a
time, then the workers. Slipway drains a node (it respects PodDisruptionBudgets),
upgrades it, and uncordons it when it is ready. If a node fails, no further node is
started, and the cluster keeps working. Fix the cause and run "slipway resume", or run
"slipway rollback".

etcd, CoreDNS, kube-proxy and the control plane endpoint are upgraded after all nodes.
Pods of a node move only if another node can run them; on a single node they keep
running.`

// upgradeCommand holds what "upgrade" needs.
type upgradeCommand struct {
	operationCommand
	prechecker *prechecker
}

func newUpgradeCommand(c upgradeCommand) *cobra.Command {
	var (
		file, bundle, pause string
		check               bool
		r                   lifecycle.UpgradeRequest
	)
	cmd := &cobra.Command{
		Use:   "upgrade {--to VERSION | -f FILE} [NAME]",
		Short: "Upgrade a cluster",
		Long:  upgradeHelp,
		Example: `  slipway upgrade prod --to v1.37.1
  slipway upgrade prod --to v1.37.1 --check
  slipway upgrade prod --to v1.37.1 --pause-after canary   # inspect it, then: slipway resume prod
  slipway upgrade -f prod.yaml --max-unavailable 20%`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.Subject, err = c.subjects.readSubject(cmd.Context(), file, args); err != nil {
				return err
			}
			if err := setUpgradePath(&r, bundle, pause); err != nil {
				return err
			}
			if check {
				return c.prechecker.checkAndReport(cmd.Context(), r)
			}
			return c.upgradeStepwise(cmd.Context(), r, file)
		},
	}
	addFileFlag(cmd, &file, "the cluster file with the target version; - is standard input")
	f := cmd.Flags()
	f.StringVar(&r.Version, "to", "", "the target `version`, such as v1.37.1")
	f.BoolVar(&check, "check", false, "only check for problems, and change nothing")
	f.StringVar(&bundle, "bundle", "", "install the next version from this `bundle`: a file, a directory or a registry reference")
	addMaxUnavailableFlag(cmd, &r.MaxUnavailable)
	addPauseFlag(cmd, &pause)
	addDrainFlags(cmd, &r.Removal, lifecycle.DefaultDrainTimeout)
	addOptionFlags(cmd, &r.Options)
	cmd.MarkFlagsOneRequired("file", "to")
	return cmd
}

// setUpgradePath sets the bundle of an upgrade, and the place after which it pauses.
func setUpgradePath(r *lifecycle.UpgradeRequest, bundle, pause string) (err error) {
	if r.PauseAfter, err = parsePausePoint(pause); err != nil {
		return err
	}
	r.Bundle, err = resolveBundlePath(bundle)
	return err
}

// upgradeStepwise upgrades a cluster one minor version after the other until it reaches
// the target.
func (c upgradeCommand) upgradeStepwise(ctx context.Context, r lifecycle.UpgradeRequest, file string) error {
	var before *lifecycle.Result
	for {
		res, err := c.runner.runForResult(ctx, operation{prepare: prepareRequest(r), file: file})
		if err != nil && res == nil && before != nil {
			return &exitError{code: exitFailed, err: &betweenError{error: err, before: before, file: file}}
		}
		if err != nil || res == nil || res.Onward == "" {
			return err
		}
		if res.Cancelled != nil {
			return &exitError{code: exitInterrupted, err: &betweenError{error: res.Cancelled, before: res, file: file}}
		}
		before = res
		r.Version, r.Bundle, r.Follows = res.Onward, "", true // the given bundle was for the previous version
	}
}

// A betweenError is the reason why the next minor version of an upgrade was not started
// after the previous one had completed. The previous one is kept, so the cluster was
// changed.
type betweenError struct {
	error
	before *lifecycle.Result
	file   string
}

func (e *betweenError) Unwrap() error { return e.error }

// explainCause returns the diagnostics of the cause, and then a diagnostic with the
// version that the cluster has now and the command that continues the upgrade.
func (e *betweenError) explainCause(cause diag.List, code int) diag.List {
	if len(cause) == 0 && code != exitInterrupted {
		cause = diag.List{{Severity: diag.Error, Message: e.Error()}}
	}
	r := e.before
	return append(slices.Clone(cause), diag.Diagnostic{
		ID: idBetween, Severity: diag.Error,
		Message: "cluster " + r.Cluster + " now runs Kubernetes " + r.Reached +
			"; the upgrade to the next minor version on the path to " + r.Onward + " was not started",
		Hint: "continue with: " + kinds.UpgradeCommand(r.Cluster, r.Onward, e.file),
	})
}
