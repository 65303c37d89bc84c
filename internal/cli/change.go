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
		Short: "Show what would change, and touch nothing",
		Long: `Shows what applying FILE would change. Without a file: how far the hosts have
drifted from what is recorded of the cluster.

A plan saved with --out is applied with: slipway apply -f PLAN`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), lifecycle.Apply, file, args)
			if err != nil {
				return err
			}
			// The plan alone is the answer: progress is talk.
			p, err := a.ready(cmd.Context(), a.prepare(r), a.people(nil))
			if err != nil {
				return err
			}
			return errors.Join(a.showPlan(p, out, exitCode), p.Close())
		},
	}
	fileFlag(cmd, &file, "the cluster file; - is standard input")
	a.passFlags(cmd)
	cmd.Flags().StringVar(&out, "out", "", "save the plan in this `file`")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 4 when there is something to change")
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
		a.say("Saved the plan in %s.\nNext: slipway apply -f %s", out, out)
	}
	switch {
	case len(prepared.Failures()) > 0: // of them the plan says nothing
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
		Short: "Make a cluster what a file says, or carry out a saved plan",
		Long: `Changes what differs from FILE, and nothing else; a cluster that does not exist
is created. Without a file, a cluster becomes what is recorded of it again. A
saved plan is refused, with the difference, if what it would do now is not the
same.

Hosts that are new in FILE join; those that are gone from it are drained, put
back as they were, and taken off. That is confirmed by typing the host's name
(the cluster's, for several), or by --allow-removal.

Settings for which something is restarted go to control planes one by one, then to
workers; the next begins when the one before serves as it did. One that does not
has all go back to the settings before, by itself.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.applied(cmd.Context(), file, args, lifecycle.Request{Forget: forget, Removal: removal, Rollout: rollout, KeepFailed: noRevert})
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
	cmd.Flags().BoolVar(&noRevert, "no-revert", false, "leave settings with which a node does not serve, to be looked at")
	a.changeFlags(cmd)
	return cmd
}

// applied is what to do with the file of apply, a cluster or a saved plan;
// without a file, with the cluster as recorded. how says how hosts leave it.
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
			return o, problem(idNameMismatch, "", "%s is a plan for cluster %s, not %s", called(file), saved.Cluster, args[0])
		}
		o.prepare = func(ctx context.Context, svc lifecycle.Service, progress event.Sink) (lifecycle.Prepared, error) {
			return svc.PrepareSaved(ctx, saved, a.asked(how), progress)
		}
		return o, nil
	}
	if !errors.Is(err, plan.ErrNotAPlan) {
		return o, problem(idPlanChanged, "plan again", "%s: %v", called(file), err)
	}
	d, err := a.load(ctx, file, data, dir)
	if err != nil {
		return o, err
	}
	if len(args) > 0 && args[0] != d.Cluster.Name {
		return o, problem(idNameMismatch, "", "%s describes cluster %s, not %s", called(file), d.Cluster.Name, args[0])
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
		Short: "Go on with a cluster's unfinished operation",
		Long: `Goes on with the latest operation that failed or was interrupted, as it was
planned and confirmed. A file that has changed since is refused with -f, and
told of without: use it with apply.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), "", file, args) // of the kind that was begun
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
	fileFlag(cmd, &file, "the cluster file: only if it still says what was begun; - is standard input")
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
		Short: "Take a cluster's unfinished operation back",
		Long: `Takes the latest operation that failed or was interrupted back. The way back is
a plan, shown and confirmed like any other; of a cluster that was being
created, nothing is left. An upgrade goes back to the version before: workers
first, then control planes, one after the other, then what runs in the cluster;
nothing that was written is lost. One that has come to its end does not go back.`,
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
		Short: "Stop a cluster's running operation cleanly, from another terminal",
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
			a.say("Stopped.\nThen: slipway resume %s\nBack: slipway rollback %s", name, name)
			return nil
		},
	}
}

func (a *app) deleteCmd() *cobra.Command {
	cmd := program.Parent("delete", "Delete a cluster, or nodes of one", "destroy", "del")
	var (
		file                 string
		allowRemoval, forget bool
	)
	cluster := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Delete a cluster and put its hosts back as they were",
		Long: `Deletes a cluster: its hosts get back the files, units, settings, mounts, links
and packet filter rules that they had before. What others placed there in the
meantime stays, save in directories that were made for the cluster alone, such
as /var/lib/etcd, /var/lib/kubelet and /var/lib/containerd.

This removes data. It is confirmed by typing the cluster's name, by naming the
cluster with --yes, or by --allow-removal.

A cluster stays on the records as long as a host of it cannot be put back. When
hosts are gone for good, --forget takes it off all the same: what can be put
back is, and the others are named. That this machine cannot log in, for want of
a key or a password, says nothing of a host, and is refused.`,
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
	fileFlag(cluster, &file, "the cluster file, for a cluster that is not recorded here")
	a.changeFlags(cluster)
	removalFlag(cluster, &allowRemoval)
	cluster.Flags().BoolVar(&forget, "forget", false, "take the cluster off the records even if hosts cannot be put back")
	cmd.AddCommand(cluster, a.deleteNodesCmd())
	return cmd
}

func (a *app) initCmd() *cobra.Command {
	cmd := program.Parent("init", "Prepare hosts")
	var file string
	prepareOS := &cobra.Command{
		Use:   "os [-f FILE] [NAME]",
		Short: "Prepare the hosts' kernel, swap, time and names, and no more",
		Long: `Prepares the hosts of FILE for Kubernetes without installing it. Without a
file: this machine.`,
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
		Short: "Make a host a registry, and push the bundle's images to it",
		Long: `Makes the host with the role registry a registry: over TLS, with a login, and
with the images of the bundle in it. Other hosts are left alone; when the cluster
is created, or the file applied, its nodes know the registry by themselves.

Again it brings what has changed: of another bundle, the images that it lacks.`,
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
