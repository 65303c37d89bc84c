package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/plan"
)

func (a *app) planCmd() *cobra.Command {
	var (
		file, out string
		exitCode  bool
	)
	cmd := &cobra.Command{
		Use:   "plan [-f FILE] [NAME]",
		Short: "Show what would change",
		Long: `Shows what applying FILE would change, and changes nothing. Without a file, shows
how far the hosts have drifted from the cluster's saved state.

To apply a plan that you saved with --out, run: slipway apply -f PLAN`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), lifecycle.Apply, file, args)
			if err != nil {
				return err
			}
			// Only the plan goes to stdout; progress goes to stderr.
			p, err := a.ready(cmd.Context(), a.prepare(r), a.people(nil))
			if err != nil {
				return err
			}
			return errors.Join(a.showPlan(p, out, exitCode), p.Close())
		},
	}
	fileFlag(cmd, &file, "the cluster file; - is standard input")
	a.passFlags(cmd)
	cmd.Flags().StringVar(&out, "out", "", "save the plan to this `file`")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with code 4 if the plan has changes")
	return cmd
}

func (a *app) showPlan(prepared lifecycle.Prepared, out string, exitCode bool) error {
	p := prepared.Plan()
	text, err := p.Encode()
	if err != nil {
		return err
	}
	if out != "" {
		if err := prepared.Savable(); err != nil {
			return err
		}
	}
	switch a.format {
	case view.Text:
		err = view.Plan(a.Out, p, false, a.outStyle())
	case view.JSON:
		_, err = a.Out.Write(text)
	default:
		err = view.Data(a.Out, a.format, p)
	}
	if err := unlessUnread(err); err != nil {
		return err
	}
	if out != "" {
		if err := a.writeNew(out, text, 0o600); err != nil {
			return err
		}
		a.say("Saved the plan to %s.\nNext: slipway apply -f %s", out, out)
	}
	switch {
	case len(prepared.Failures()) > 0: // the plan does not cover failed hosts
		return &exitError{code: exitPartial}
	case exitCode && !p.Empty():
		return &exitError{code: exitChanges}
	}
	return nil
}

func (a *app) applyCmd() *cobra.Command {
	var (
		file                 string
		allowRemoval, forget bool
		removal              lifecycle.Removal
		rollout              lifecycle.Rollout
		noRevert             bool
	)
	cmd := &cobra.Command{
		Use:   "apply [-f FILE|PLAN] [NAME]",
		Short: "Apply a cluster file or a saved plan",
		Long: `Changes only what differs from FILE. A cluster that does not exist is created.
Without a file, restores the cluster to its saved state. A saved plan is refused
if its changes would be different now; the difference is shown.

New hosts in FILE join the cluster. Hosts that are missing from FILE are drained,
reset and removed. Confirm a removal by typing the host's name (for several hosts,
the cluster's name), or with --allow-removal.

Settings that require a restart go to control planes one at a time, then to
workers. The next node starts when the previous node is healthy again. If a node
does not become healthy, all nodes get their previous settings back automatically.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			how := lifecycle.Request{Forget: forget, Removal: removal, Rollout: rollout, KeepFailed: noRevert}
			o, err := a.applied(cmd.Context(), file, args, how)
			if err != nil {
				return err
			}
			o.allowRemoval = allowRemoval
			return a.operate(cmd.Context(), o)
		},
	}
	fileFlag(cmd, &file, "a cluster file or a saved plan; - is standard input")
	leavingFlags(cmd, &allowRemoval, &forget, &removal)
	atOnceFlag(cmd, &rollout)
	cmd.Flags().BoolVar(&noRevert, "no-revert", false, "do not roll back new settings when a node does not become healthy")
	a.changeFlags(cmd)
	return cmd
}

// applied returns the operation of apply: for a cluster file, for a saved plan, or
// without a file for the cluster's saved state. how has the options for hosts that
// leave the cluster and for the rollout.
func (a *app) applied(ctx context.Context, file string, args []string, how lifecycle.Request) (o operation, err error) {
	if file == "" {
		r, err := a.request(ctx, lifecycle.Apply, "", args)
		r.Forget, r.Removal, r.Rollout, r.KeepFailed = how.Forget, how.Removal, how.Rollout, how.KeepFailed
		o.prepare = a.prepare(r)
		return o, err
	}
	data, dir, err := a.read(ctx, file)
	if err != nil {
		return o, err
	}
	saved, err := plan.Decode(data)
	if err == nil {
		if len(args) > 0 && args[0] != saved.Cluster {
			return o, problem(idNameMismatch, "leave out the name, or give the right plan",
				"%s is a plan for cluster %s, not %s", called(file), saved.Cluster, args[0])
		}
		o.prepare = func(ctx context.Context, svc lifecycle.Service, progress event.Sink) (lifecycle.Prepared, error) {
			return svc.PrepareSaved(ctx, saved, a.asked(how), progress)
		}
		return o, nil
	}
	if !errors.Is(err, plan.ErrNotAPlan) {
		return o, problem(idPlanChanged, "create a new plan: slipway plan -f FILE --out PLAN", "%s: %v", called(file), err)
	}
	d, err := a.load(ctx, file, data, dir)
	if err != nil {
		return o, err
	}
	if len(args) > 0 && args[0] != d.Cluster.Name {
		return o, problem(idNameMismatch, "leave out the name, or give the right file",
			"%s describes cluster %s, not %s", called(file), d.Cluster.Name, args[0])
	}
	r := a.described(lifecycle.Apply, d)
	r.Forget, r.Removal, r.Rollout, r.KeepFailed = how.Forget, how.Removal, how.Rollout, how.KeepFailed
	o.prepare, o.file = a.prepare(r), file
	return o, nil
}

func removalFlag(cmd *cobra.Command, allow *bool) {
	cmd.Flags().BoolVar(allow, "allow-removal", false, "allow the plan to remove hosts and data")
}

func (a *app) resumeCmd() *cobra.Command {
	var (
		file, pause string
		removal     lifecycle.Removal
	)
	cmd := &cobra.Command{
		Use: "resume [-f FILE] [NAME]", Aliases: []string{"retry"},
		Short: "Resume a cluster's unfinished operation",
		Long: `Resumes the latest operation that failed or was interrupted, as it was planned
and confirmed. If the cluster file has changed since then, the command refuses the
file with -f, and reports the change without -f. Use apply for a changed file.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), "", file, args) // the operation to resume has the kind
			if err != nil {
				return err
			}
			if r.Rollout.PauseAfter, err = place(pause); err != nil {
				return err
			}
			r.Removal = removal
			do := func(ctx context.Context, svc lifecycle.Service, progress event.Sink) (lifecycle.Prepared, error) {
				return svc.PrepareResume(ctx, r.Name, r, progress)
			}
			return a.operate(cmd.Context(), operation{prepare: do, file: file, confirmed: true})
		},
	}
	fileFlag(cmd, &file, "the cluster file, which must not have changed since the operation began; - is standard input")
	drainFlags(cmd, &removal, 0)
	pauseFlag(cmd, &pause)
	a.changeFlags(cmd)
	return cmd
}

func (a *app) rollbackCmd() *cobra.Command {
	var (
		allowRemoval bool
		removal      lifecycle.Removal
	)
	cmd := &cobra.Command{
		Use:   "rollback [NAME]",
		Short: "Roll back a cluster's unfinished operation",
		Long: `Rolls back the latest operation that failed or was interrupted. Slipway shows the
plan of the rollback and asks for confirmation. The rollback of a create removes
everything that it made. The rollback of an upgrade restores the previous version:
first on workers, then on control planes one at a time, then for the components
in the cluster. Data written to the cluster meanwhile is kept. A completed upgrade
cannot be rolled back.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.which(cmd.Context(), args)
			if err != nil {
				return err
			}
			do := func(ctx context.Context, svc lifecycle.Service, progress event.Sink) (lifecycle.Prepared, error) {
				return svc.PrepareRollback(ctx, name, a.asked(lifecycle.Request{Name: name, Removal: removal}), progress)
			}
			return a.operate(cmd.Context(), operation{prepare: do, named: len(args) > 0, allowRemoval: allowRemoval, brief: true})
		},
	}
	removalFlag(cmd, &allowRemoval)
	drainFlags(cmd, &removal, 0)
	a.changeFlags(cmd)
	return cmd
}

func (a *app) cancelCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel [NAME]",
		Short: "Stop a cluster's running operation",
		Args:  cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			svc, name, err := a.chosen(ctx, args)
			if err != nil {
				return err
			}
			told := event.SinkFunc(func(event.Event) {
				a.say("Stopping the operation on cluster %s: waiting for it to reach a safe point.", name)
			})
			if err := svc.Cancel(ctx, name, told); err != nil {
				return err
			}
			if a.format != view.Text {
				return view.Data(a.Out, a.format, map[string]string{"cluster": name, "outcome": string(event.Cancelled)})
			}
			a.say("Stopped.\nNext: slipway resume %s\nRollback: slipway rollback %s", name, name)
			return nil
		},
	}
}

func (a *app) deleteCmd() *cobra.Command {
	cmd := program.Parent("delete", "Delete a cluster or nodes", "destroy", "del")
	var (
		file                 string
		allowRemoval, forget bool
	)
	cluster := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Delete a cluster and reset its hosts",
		Long: `Deletes a cluster and resets its hosts: they get back the files, units, settings,
mounts, links and packet filter rules that they had before. Files that other
programs created since then are kept, except in directories that were created only
for the cluster, such as /var/lib/etcd, /var/lib/kubelet and /var/lib/containerd.

This removes data. Confirm it by typing the cluster's name, by giving the
cluster's name with --yes, or with --allow-removal.

A cluster remains in Slipway's state until all its hosts are reset. If hosts are
permanently lost, --forget removes the cluster anyway: Slipway resets the hosts
that it can and lists the others. A missing key or password on this machine does
not mean that a host is lost: such a host is refused, also with --forget.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), lifecycle.Delete, file, args)
			if err != nil {
				return err
			}
			r.Forget = forget
			return a.operate(cmd.Context(), operation{
				prepare: a.prepare(r), file: file, named: len(args) > 0, allowRemoval: allowRemoval, brief: true,
			})
		},
	}
	fileFlag(cluster, &file, "the cluster file, for a cluster that is not in Slipway's state")
	a.changeFlags(cluster)
	removalFlag(cluster, &allowRemoval)
	cluster.Flags().BoolVar(&forget, "forget", false, "remove the cluster from Slipway's state even if hosts cannot be reset")
	cmd.AddCommand(cluster, a.deleteNodesCmd())
	return cmd
}

func (a *app) initCmd() *cobra.Command {
	cmd := program.Parent("init", "Prepare hosts")
	var file string
	prepareOS := &cobra.Command{
		Use:   "os [-f FILE] [NAME]",
		Short: "Prepare the operating system of hosts",
		Long: `Prepares the hosts of FILE for Kubernetes without installing it: kernel, swap,
time and host names. Without a file, prepares this machine.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.wanted(cmd.Context(), file, "", args)
			if err != nil {
				return err
			}
			return a.operate(cmd.Context(), operation{prepare: a.prepare(a.described(lifecycle.InitOS, d)), file: file})
		},
	}
	fileFlag(prepareOS, &file, "the cluster file; - is standard input")
	a.changeFlags(prepareOS)
	cmd.AddCommand(prepareOS, a.initRegistryCmd())
	return cmd
}

func (a *app) initRegistryCmd() *cobra.Command {
	var file, bundle string
	cmd := &cobra.Command{
		Use:   "registry -f FILE [NAME]",
		Short: "Set up a registry host",
		Long: `Sets up a registry on the host with the role registry: with TLS, credentials, and
the images of the bundle. Other hosts are not changed. When you create the cluster
or apply the file, its nodes are configured for the registry automatically.

Run the command again to apply changes. For another bundle, it pushes the images
that the registry does not have.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.wanted(cmd.Context(), file, "", args)
			if err != nil {
				return err
			}
			if bundle != "" {
				if d.Cluster.Spec.Bundle, err = bundlePath(bundle); err != nil {
					return err
				}
			}
			return a.operate(cmd.Context(), operation{prepare: a.prepare(a.described(lifecycle.InitRegistry, d)), file: file})
		},
	}
	fileFlag(cmd, &file, "the cluster file; - is standard input")
	a.changeFlags(cmd)
	cmd.Flags().StringVar(&bundle, "bundle", "", "push the images of this `bundle`: a file, a directory or a registry reference")
	return cmd
}
