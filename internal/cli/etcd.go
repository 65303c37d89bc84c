package cli

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
)

func (a *app) etcdCmd() *cobra.Command {
	cmd := program.Parent("etcd", "Manage, back up and restore a cluster's etcd")
	cmd.AddCommand(
		a.etcdLookCmd("members", "List the etcd members of a cluster",
			`Lists the etcd members of a cluster: their roles (leader, follower or learner),
versions and addresses, and whether their hosts are reachable.`, view.EtcdMembers),
		a.etcdLookCmd("health", "Show the health of a cluster's etcd",
			`Shows the health of a cluster's etcd, the problems, and the next command. For each
member it shows whether the member and its host are reachable. It also shows the size
of the database, the size in use, the quota, how far the member is behind, and its
alarms.

Exit codes:
  0  Healthy.
  1  Down.
  3  Degraded.`, view.EtcdHealth),
		a.etcdSnapshotCmd(), a.etcdSnapshotsCmd(), a.etcdDrillCmd(), a.etcdDefragCmd(), a.etcdRestoreCmd(), a.etcdRescueCmd(),
	)
	return cmd
}

// etcdLookCmd returns a command that reads the state of etcd and shows it.
func (a *app) etcdLookCmd(use, short, long string, show func(io.Writer, *lifecycle.EtcdReport, view.Style) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " [NAME]", Short: short,
		Long: long + `

The command queries etcd on its hosts over SSH and does not need the API. It ends
within 30 seconds also when the API is down, and lists unreachable hosts.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: looks(a, func(ctx context.Context, svc lifecycle.Service, name string, progress event.Sink) (*lifecycle.EtcdReport, error) {
			return svc.Etcd(ctx, name, progress)
		}, show, func(r *lifecycle.EtcdReport) error { return verdictCode(use, r) }),
	}
}

// verdictCode returns an exitError if the exit code for a report is not 0. For the
// command members, that is the case only if the members could not be listed.
func verdictCode(use string, r *lifecycle.EtcdReport) error {
	switch {
	case r.Etcd.Message != "", use == "health" && (r.Verdict == lifecycle.Down || r.Verdict == lifecycle.Absent):
		return &exitError{code: exitFailed}
	case use == "health" && r.Verdict == lifecycle.Degraded:
		return &exitError{code: exitPartial}
	}
	return nil
}

// looks returns the function of a command that reads something of a cluster and shows
// it. code returns the error for the exit code; it may be nil.
func looks[T any](
	a *app, look func(context.Context, lifecycle.Service, string, event.Sink) (*T, error),
	show func(io.Writer, *T, view.Style) error, code func(*T) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		svc, name, err := a.chosen(ctx, args)
		if err != nil {
			return err
		}
		seen, err := watched(ctx, a, func(progress event.Sink) (*T, error) { return look(ctx, svc, name, progress) })
		if err != nil {
			return err
		}
		err = a.data(seen, func(w io.Writer) error { return show(w, seen, a.outStyle()) })
		if err != nil || code == nil {
			return err
		}
		return code(seen)
	}
}

// watched calls look. On a terminal it shows which hosts it waits for.
func watched[T any](ctx context.Context, a *app, look func(event.Sink) (*T, error)) (*T, error) {
	var progress event.Sink
	if a.Size != nil {
		v := a.people(nil)
		defer v.Close()
		defer a.talk.through(v)()
		progress = v
	}
	seen, err := look(progress)
	if err == nil && ctx.Err() != nil {
		return nil, &exitError{code: exitInterrupted}
	}
	return seen, err
}

func (a *app) etcdSnapshotCmd() *cobra.Command {
	var o lifecycle.SnapshotOptions
	cmd := &cobra.Command{
		Use: "snapshot [NAME]", Short: "Back up a cluster's etcd",
		Long: `Takes a snapshot on a healthy etcd member: if possible, on the follower that is
least behind. Slipway verifies the snapshot on the host and again on this machine,
and writes a backup set. The set contains the snapshot, the keys of the cluster's
CAs and service accounts, and the encryption configuration if there is one. It also
contains the description of the cluster and its versions. The cluster is not changed.

The set is one file that only its owner can read. Anyone who has the file controls
the cluster: encrypt it with --recipient and a key from age-keygen, and store that
key elsewhere. Without --out, the set is written to backups/NAME in $SLIPWAY_HOME,
where it remains after the cluster is deleted. To list sets: slipway etcd snapshots.
Existing files are never overwritten, and Slipway does not start a backup for which
the disks have too little space.

With --copy, Slipway takes no snapshot. It fetches an existing copy
(spec.etcd.backup.copies) without decrypting it. A copy in a directory of the hosts
is fetched from the hosts. Other copies are fetched from their target; that works
without the cluster and its hosts. The newest copy is the one whose name a host of
the cluster chose last. Its content is verified when it is tested or restored.`,
		Example: `  slipway etcd snapshot prod
  slipway etcd snapshot prod --out /mnt/safe/prod.tar
  slipway etcd snapshot prod --of cp1
  slipway etcd snapshot prod --copy nas
  slipway etcd snapshot prod --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: looks(a, func(ctx context.Context, svc lifecycle.Service, name string, progress event.Sink) (*lifecycle.SnapshotInfo, error) {
			return svc.Snapshot(ctx, name, o, progress)
		}, view.Snapshot, nil),
	}
	cmd.Flags().StringVar(&o.Out, "out", "", "write the backup set to this `file`")
	_ = cmd.MarkFlagFilename("out", "tar", "age") // the flag is there
	cmd.Flags().StringArrayVar(&o.Recipients, "recipient", nil, "encrypt the set for this age `key`: age1… (repeatable)")
	cmd.Flags().StringVar(&o.Of, "of", "", "use a scheduled snapshot of `HOST[/FILE]` (its newest, or that file)")
	cmd.Flags().StringVar(&o.Copy, "copy", "", "fetch a copy from a target: `TARGET[/FILE]` (its newest, or that file)")
	unverifiedFlag(cmd, &o.Unverified,
		"with --copy TARGET: also accept a copy whose name no cluster host created "+
			"(anyone who can write to the target may have created it)")
	cmd.MarkFlagsMutuallyExclusive("of", "copy")
	cmd.MarkFlagsMutuallyExclusive("recipient", "copy")
	return cmd
}

func (a *app) etcdSnapshotsCmd() *cobra.Command {
	var noHeaders, hosts, elsewhere bool
	copies, onHosts := a.copiesCmd(), a.scheduledCmd()
	cmd := &cobra.Command{
		Use: "snapshots [NAME]", Short: "List backups of etcd, newest first",
		Long: `Lists the backup sets in $SLIPWAY_HOME, newest first: of one cluster, or of all
clusters, including deleted ones. For an encrypted set, only the information in its
name is shown.

With --hosts, lists the scheduled snapshots (spec.etcd.backup) on the cluster's
hosts, and the hosts that take none. The exit code is 3 if a host is not reachable, or
if its latest snapshot is old, failed or was not copied. Otherwise it is 0.

With --copies, lists the copies of scheduled snapshots at their targets
(spec.etcd.backup.copies). The exit code is 3 if a target could not be read.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case hosts:
				return onHosts(cmd, args)
			case elsewhere:
				return copies(cmd, args)
			}
			ctx, name := cmd.Context(), ""
			if len(args) > 0 {
				if name = args[0]; named(name) != nil {
					return named(name)
				}
			}
			svc, err := a.svc(ctx)
			if err != nil {
				return err
			}
			list, err := svc.Snapshots(ctx, name)
			if err != nil {
				return err
			}
			return a.data(list, func(w io.Writer) error {
				if len(list) == 0 {
					a.say("No backup sets found. Create one: slipway etcd snapshot")
					return nil
				}
				return view.Snapshots(w, list, a.env.Now(), noHeaders)
			})
		},
	}
	headersFlag(cmd, &noHeaders)
	cmd.Flags().BoolVar(&hosts, "hosts", false, "list the scheduled snapshots on the cluster's hosts")
	cmd.Flags().BoolVar(&elsewhere, "copies", false, "list the copies of scheduled snapshots at their targets")
	cmd.MarkFlagsMutuallyExclusive("hosts", "copies")
	return cmd
}

// scheduledCmd returns the function that lists the hosts' scheduled snapshots.
func (a *app) scheduledCmd() func(*cobra.Command, []string) error {
	return looks(a, func(ctx context.Context, svc lifecycle.Service, name string, progress event.Sink) (*lifecycle.Scheduled, error) {
		return svc.Scheduled(ctx, name, progress)
	}, func(w io.Writer, s *lifecycle.Scheduled, style view.Style) error {
		return view.Scheduled(w, s, a.env.Now(), style)
	}, func(s *lifecycle.Scheduled) error {
		if !s.Good {
			return &exitError{code: exitPartial}
		}
		return nil
	})
}

// copiesCmd returns the function that lists the copies of scheduled snapshots.
func (a *app) copiesCmd() func(*cobra.Command, []string) error {
	return looks(a, func(ctx context.Context, svc lifecycle.Service, name string, progress event.Sink) (*lifecycle.CopyReport, error) {
		return svc.Copies(ctx, name, progress)
	}, func(w io.Writer, r *lifecycle.CopyReport, style view.Style) error {
		return view.Copies(w, r, a.env.Now(), style)
	}, func(r *lifecycle.CopyReport) error {
		if !r.Good {
			return &exitError{code: exitPartial}
		}
		return nil
	})
}

func (a *app) etcdDrillCmd() *cobra.Command {
	var o lifecycle.DrillOptions
	cmd := &cobra.Command{
		Use: "drill [NAME]", Short: "Test the restore of a backup set",
		Long: `Restores a backup set into a temporary etcd on a host with an etcd member. The
default is the newest set on this machine; --from selects another. The temporary
etcd uses a directory that only root can read, listens on no network address, has
low priority, and is removed afterwards. The cluster's etcd is not changed.

Slipway checks the integrity, the revision and the number of keys of the restored
data. It also reads a Secret. If the cluster encrypts Secrets, Slipway decrypts it
with the set's encryption configuration. A set that the cluster's key has not
signed needs --signed-by or --unverified.

Exit codes:
  0  The set is good.
  1  The restored data does not match the set.
  2  The set cannot be used, or the host has too little disk space or memory.`,
		Example: `  slipway etcd drill prod
  slipway etcd drill prod --from /mnt/safe/prod.tar.age --identity key.txt`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: looks(a, func(ctx context.Context, svc lifecycle.Service, name string, progress event.Sink) (*lifecycle.DrillReport, error) {
			return svc.Drill(ctx, name, o, progress)
		}, view.Drill, func(r *lifecycle.DrillReport) error {
			if !r.Good {
				return &exitError{code: exitFailed}
			}
			return nil
		}),
	}
	setFlags(cmd, &o.From, &o.Identity)
	trustFlags(cmd, &o.SetTrust)
	return cmd
}

// setFlags adds the flags for a backup set and the key that decrypts it.
func setFlags(cmd *cobra.Command, from, identity *string) {
	f := cmd.Flags()
	f.StringVar(from, "from", "", "the `file` of the backup set")
	f.StringVar(identity, "identity", "", "the `file` of the age key that decrypts it, as written by age-keygen")
	_, _ = cmd.MarkFlagFilename("from", "tar", "age"), cmd.MarkFlagFilename("identity") // the flags are there
}

// trustFlags adds the flags that allow sets that the cluster's own key has not signed.
func trustFlags(cmd *cobra.Command, t *lifecycle.SetTrust) {
	f := cmd.Flags()
	f.StringVar(&t.SignedBy, "signed-by", "", "also trust this public `key`, for example the key of a previous manager (ed25519:…)")
	unverifiedFlag(cmd, &t.Unverified, "use a set that no trusted key has signed; its author gets the power of root on all hosts")
}

func unverifiedFlag(cmd *cobra.Command, to *bool, help string) {
	cmd.Flags().BoolVar(to, "unverified", false, help)
}

func (a *app) etcdDefragCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "defrag [NAME]", Short: "Defragment the etcd databases",
		Long: `Defragments the etcd members of a cluster one at a time, the leader last, and each
only while all members are healthy. A member does not serve requests while it is
defragmented, usually for seconds. A member that would free less than a tenth is
skipped. A full database (alarm NOSPACE) is compacted first, and the alarm is
cleared when there is space again.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), lifecycle.Defrag, "", args)
			if err != nil {
				return err
			}
			return a.operate(cmd.Context(), operation{prepare: a.prepare(r)})
		},
	}
	breakFlag(cmd, &a.breakLock)
	return cmd
}

func (a *app) etcdRestoreCmd() *cobra.Command {
	var (
		from, identity string
		trust          lifecycle.SetTrust
		allowRemoval   bool
	)
	cmd := &cobra.Command{
		Use: "restore [NAME] --from FILE", Short: "Restore a cluster's etcd from a backup set",
		Long: `Restores the data of a backup set to all etcd members of a cluster. The cluster
gets the state of the backup; everything written since then is lost.

Slipway reads the whole set first, and refuses it without any change if it is incomplete
or modified, or belongs to another cluster. It also refuses a set that is not signed by
the cluster's key, or that the cluster's programs cannot read. The author of a set gets
the power of root on all hosts when it is restored: use --unverified only for a set
whose origin you know. All hosts with an etcd member or a control plane must be
reachable.

Slipway creates the new data next to the old data, and stops etcd and the control
planes. It moves the old data aside; the old data remains on the hosts. Then it restarts
everything that caches data of the API: API servers, controllers, schedulers,
kubelets, kube-proxy, the network's pods, and CoreDNS. The restore ends when the API
serves the restored revision and the nodes are ready. If it is interrupted, continue
with: slipway resume.

CA and service account keys are taken from the set only on hosts that have lost
their own. From an unverified set they are taken only with --with-keys: its author
may have these keys and can sign certificates with them.

This loses data. Confirm it by typing the cluster's name, by giving the cluster's
name with --yes, or with --allow-removal.`,
		Example: `  slipway etcd restore prod --from ~/.local/share/slipway/backups/prod/prod-20261120-181502.tar
  slipway etcd restore prod --from prod.tar.age --identity key.txt`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), lifecycle.RestoreEtcd, "", args)
			if err != nil {
				return err
			}
			r.Backup, r.Identity, r.SetTrust = from, identity, trust
			return a.operate(cmd.Context(), operation{prepare: a.prepare(r), named: len(args) > 0, allowRemoval: allowRemoval})
		},
	}
	setFlags(cmd, &from, &identity)
	trustFlags(cmd, &trust)
	cmd.Flags().BoolVar(&trust.WithKeys, "with-keys", false,
		"with --unverified: also take lost CA and service account keys from the set; its author may have them")
	_ = cmd.MarkFlagRequired("from") // the flag is there
	removalFlag(cmd, &allowRemoval)
	a.changeFlags(cmd)
	return cmd
}

func (a *app) etcdRescueCmd() *cobra.Command {
	var (
		lost         []string
		from         string
		allowRemoval bool
	)
	cmd := &cobra.Command{
		Use: "rescue [NAME] --lost HOST,...", Short: "Recover a cluster whose etcd has lost quorum",
		Long: `Recovers a cluster whose etcd has lost quorum. Slipway creates an etcd with a single
member from the data of a remaining member, and a working control plane with it.
Give the lost hosts with --lost; they must not be reachable. All other hosts with an
etcd member or a control plane must be reachable.

Slipway reads the data of the remaining members and uses the most recent data: it
compares the term of the last entry, then its index. A damaged log counts up to the
damage, or as far as the database next to it; the plan shows what is lost by that.
--from selects another host.

Slipway stops etcd and the control planes, takes a snapshot of a copy of the selected
data, and creates the new data from that snapshot. The previous data is moved aside
and remains on the hosts. Everything that caches data of the API is restarted. Writes
that the lost members acknowledged and that are not in the selected log are lost. If
the rescue is interrupted, continue with: slipway resume. Afterwards, remove the lost
hosts and add new ones; the summary at the end shows the commands.

If you can start more than half of the members again, do that instead: no data is lost
then. Confirm the rescue by typing the cluster's name, by giving the cluster's name
with --yes, or with --allow-removal.`,
		Example: `  slipway etcd rescue prod --lost cp2,cp3
  slipway etcd rescue prod --lost cp1,cp2,cp3 --from cp5`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.request(cmd.Context(), lifecycle.RescueEtcd, "", args)
			if err != nil {
				return err
			}
			r.Nodes, r.From = slices.Compact(slices.Sorted(slices.Values(lost))), from
			return a.operate(cmd.Context(), operation{prepare: a.prepare(r), named: len(args) > 0, allowRemoval: allowRemoval})
		},
	}
	cmd.Flags().StringSliceVar(&lost, "lost", nil, "the `hosts` that are permanently lost")
	cmd.Flags().StringVar(&from, "from", "", "use the data of this `host` instead of the most recent data")
	_ = cmd.MarkFlagRequired("lost") // the flag is there
	removalFlag(cmd, &allowRemoval)
	a.changeFlags(cmd)
	return cmd
}
