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
	cmd := program.Parent("etcd", "Look after a cluster's etcd: members, health, snapshots, drills, defragmentation, restore, rescue")
	cmd.AddCommand(
		a.etcdLookCmd("members", "List the members of a cluster's etcd",
			`Lists the members of a cluster's etcd: who leads, who learns, their versions and
addresses, and whether their hosts answer.`, view.EtcdMembers),
		a.etcdLookCmd("health", "Say how a cluster's etcd is: who answers, sizes, alarms, how far behind",
			`Says how a cluster's etcd is, what is wrong, and what to type next: whether each
member and its host answer, how big its database is, how much of that is in use,
how much it may have, how far it is behind, and which alarms it has raised.

Exit codes: 0 healthy; 3 it works, and something is wrong; 1 it does not work.`, view.EtcdHealth),
		a.etcdSnapshotCmd(), a.etcdSnapshotsCmd(), a.etcdDrillCmd(), a.etcdDefragCmd(), a.etcdRestoreCmd(), a.etcdRescueCmd(),
	)
	return cmd
}

// etcdLookCmd is a command that looks at etcd and shows what it sees.
func (a *app) etcdLookCmd(use, short, long string, show func(io.Writer, *lifecycle.EtcdReport, view.Style) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " [NAME]", Short: short,
		Long: long + `

It is asked on its hosts, over SSH, and needs no API: it answers within half a
minute when the API is down, and names hosts that do not answer.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: looks(a, func(ctx context.Context, svc lifecycle.Service, name string, progress event.Sink) (*lifecycle.EtcdReport, error) {
			return svc.Etcd(ctx, name, progress)
		}, show, func(r *lifecycle.EtcdReport) error { return verdictCode(use, r) }),
	}
}

// verdictCode is the exit code of what was seen: that of a list is whether there
// is one.
func verdictCode(use string, r *lifecycle.EtcdReport) error {
	switch {
	case r.Etcd.Message != "", use == "health" && (r.Verdict == lifecycle.Down || r.Verdict == lifecycle.Absent):
		return &exitError{code: exitFailed}
	case use == "health" && r.Verdict == lifecycle.Degraded:
		return &exitError{code: exitPartial}
	}
	return nil
}

// looks is what a command does that looks at something of a cluster, shows it, and
// ends with the exit code that it comes to; code may be nil.
func looks[T any](a *app, look func(context.Context, lifecycle.Service, string, event.Sink) (*T, error), show func(io.Writer, *T, view.Style) error, code func(*T) error) func(*cobra.Command, []string) error {
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

// watched looks at something; on a terminal, it shows whom it waits for.
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
		Use: "snapshot [NAME]", Short: "Take a snapshot of a cluster's etcd, and put it into a backup set",
		Long: `Takes a snapshot on a member that is well (the one that is least behind and does
not lead, where there is one), verifies it there and again here, and writes a
backup set: the snapshot, the keys of the cluster's authorities and of its
service accounts, its encryption configuration if it has one, its description
and its versions. Nothing of the cluster changes.

The set is one file that only its owner can read. Who has it has the cluster:
encrypt it with --recipient, to a key that age-keygen has made, and keep that
key elsewhere. Without --out it goes to backups/NAME below $SLIPWAY_HOME, which
outlives the cluster; see them with: slipway etcd snapshots. What is there is
never overwritten, and what the disks have no room for is not begun.

With --copy nothing is taken: a copy that is kept elsewhere (spec.etcd.backup.copies)
is fetched as it is, encrypted. Of a directory of hosts it comes from these, else
from where it is kept: for that, neither the cluster nor its hosts need be there.
The newest is the one whose name a host of the cluster chose last; what is in it is
verified when it is tried or restored.`,
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
	cmd.Flags().StringVar(&o.Out, "out", "", "write the set to this `file`")
	_ = cmd.MarkFlagFilename("out", "tar", "age") // the flag is there
	cmd.Flags().StringArrayVar(&o.Recipients, "recipient", nil, "encrypt the set to this `key` of age's: age1… (repeatable)")
	cmd.Flags().StringVar(&o.Of, "of", "", "put a snapshot into the set that `HOST[/FILE]` has taken by itself (its newest, or that file)")
	cmd.Flags().StringVar(&o.Copy, "copy", "", "fetch a copy from where it is kept: `PLACE[/FILE]` (the newest there, or that file)")
	unverifiedFlag(cmd, &o.Unverified, "with --copy PLACE: fetch the newest copy even if no host of the cluster chose its name: anybody who can write there can have chosen it")
	cmd.MarkFlagsMutuallyExclusive("of", "copy")
	cmd.MarkFlagsMutuallyExclusive("recipient", "copy")
	return cmd
}

func (a *app) etcdSnapshotsCmd() *cobra.Command {
	var noHeaders, hosts, elsewhere bool
	copies, onHosts := a.copiesCmd(), a.scheduledCmd()
	cmd := &cobra.Command{
		Use: "snapshots [NAME]", Short: "List the backup sets that are kept on this machine, newest first",
		Long: `Lists the backup sets below $SLIPWAY_HOME, newest first: those of one cluster, or
of all, also of clusters that are gone. Of one that is encrypted no more is known
than its name tells.

With --hosts it lists those that the cluster's hosts take by themselves
(spec.etcd.backup) and keep, and says which host takes none. Exit codes then: 0 all
is well; 3 a host does not answer, or its latest snapshot is old or was not taken, or
was not copied.

With --copies it lists what lies where copies of these are kept
(spec.etcd.backup.copies). Exit codes then: 0 all could be looked at; 3 a place
could not.`,
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
					a.say("There is none. Take one: slipway etcd snapshot")
					return nil
				}
				return view.Snapshots(w, list, a.env.Now(), noHeaders)
			})
		},
	}
	headersFlag(cmd, &noHeaders)
	cmd.Flags().BoolVar(&hosts, "hosts", false, "list those that the cluster's hosts take by themselves")
	cmd.Flags().BoolVar(&elsewhere, "copies", false, "list the copies of these that are kept elsewhere")
	cmd.MarkFlagsMutuallyExclusive("hosts", "copies")
	return cmd
}

// scheduledCmd lists what hosts take by themselves.
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

// copiesCmd lists what lies where copies are kept.
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
		Use: "drill [NAME]", Short: "Try a backup set: restore it into an etcd of its own, and look at what comes of it",
		Long: `Restores a backup set (the newest one that is kept here, or that of --from) into
an etcd of its own on a host with a member: in a directory that is root's alone,
on no address, with little weight beside what runs there, and gone afterwards. The
cluster's etcd is not touched. What comes of it must be what the set says: its
integrity, its revision, how many keys it has; and a Secret must be read in it,
decrypted by the set's encryption configuration if the cluster encrypts them. A set
must be signed by the cluster's key; one that is not is tried only with --unverified.

Exit codes: 0 the set is good; 1 something is not what the set says; 2 the set
cannot be used, or there is no room or memory for it on the host: what is wrong
is said.`,
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

// setFlags are those that name a backup set, and the key that opens it.
func setFlags(cmd *cobra.Command, from, identity *string) {
	f := cmd.Flags()
	f.StringVar(from, "from", "", "the `file` of the backup set")
	f.StringVar(identity, "identity", "", "the `file` of the key that opens it, as age-keygen wrote it")
	_, _ = cmd.MarkFlagFilename("from", "tar", "age"), cmd.MarkFlagFilename("identity") // the flags are there
}

// trustFlags are those that let sets be used which the cluster's own key has not signed.
func trustFlags(cmd *cobra.Command, t *lifecycle.SetTrust) {
	f := cmd.Flags()
	f.StringVar(&t.SignedBy, "signed-by", "", "trust this public `key` as well, such as that of the manager before (ed25519:…)")
	unverifiedFlag(cmd, &t.Unverified, "use a set that no trusted key has signed: whoever wrote it becomes as good as root on all hosts")
}

func unverifiedFlag(cmd *cobra.Command, to *bool, help string) {
	cmd.Flags().BoolVar(to, "unverified", false, help)
}

func (a *app) etcdDefragCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "defrag [NAME]", Short: "Give back what the databases of a cluster's etcd have not in use",
		Long: `Defragments the members of a cluster's etcd: one at a time, the leader last, each
only while all are well, for the one serves nobody meanwhile (seconds, as a rule).
Those with less than a tenth to give back are left alone. A database that is full
(alarm NOSPACE) is compacted first, and the alarm taken back when there is room.`,
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
		Use: "restore [NAME] --from FILE", Short: "Give a cluster's etcd the data of a backup set",
		Long: `Gives all members of a cluster's etcd the data of a backup set: the cluster is
what it was when that was taken, and what was written since is lost. The set is
read through first; one that was cut off or has changed, one of another cluster,
one that is not signed by the cluster's key, and one that the cluster's programs
cannot read are refused, and nothing is touched. Whoever can write a set becomes as
good as root on all hosts when it is restored: --unverified is for sets of which you
know where they come from. Every host with a member and every control plane must answer.

The new data are made beside the old ones; then etcd and the control planes are
stopped, the old data are moved aside (they stay on the hosts), and all that has
kept what the API told is restarted: API servers, controllers, schedulers,
kubelets, kube-proxy, the network's pods, CoreDNS. It ends when the API serves
the restored revision and the nodes are ready. Cut off anywhere, it is gone on
with by: slipway resume. Keys of authorities come from the set only where a host
has lost its own. From a set that is not verified they come only with --with-keys:
whoever wrote the set may have these keys, and can sign certificates with them.

This loses data. It is confirmed by typing the cluster's name, by --yes if the
name is given, or by --allow-removal.`,
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
		"with --unverified: take lost CA and service account keys from the set, too; whoever wrote it may have them")
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
		Use: "rescue [NAME] --lost HOST,...", Short: "Make a cluster work again whose etcd has lost too many members",
		Long: `Makes an etcd of one member of what is left of one that has lost more members than
it can do without, and with it a control plane that works. The hosts that are gone
are named, and must not answer; all others with a member or a control plane must.

The data of the members that are left are read, and the one goes on whose go the
furthest: by the term of the last entry, then by its index. A log that is damaged
counts up to there, or as far as the database beside it goes; the plan says what
is lost by that. --from chooses another one. Etcd and control planes are stopped; a snapshot is made of a copy of its data, and the data that
it goes on with of that. What there was is moved aside, and stays on the hosts.
All that has kept what the API told is restarted. What the lost members have
acknowledged and is not in the chosen one's log is lost. Cut off anywhere, it
is gone on with by: slipway resume. Afterwards the lost hosts are taken off, and
others added; the end says how.

As long as more than half of the members can be brought back, do that instead:
nothing is lost then. This is confirmed by typing the cluster's name, by --yes if
the name is given, or by --allow-removal.`,
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
	cmd.Flags().StringSliceVar(&lost, "lost", nil, "the `hosts` that are gone for good")
	cmd.Flags().StringVar(&from, "from", "", "the `host` whose data etcd goes on with, instead of the one whose go the furthest")
	_ = cmd.MarkFlagRequired("lost") // the flag is there
	removalFlag(cmd, &allowRemoval)
	a.changeFlags(cmd)
	return cmd
}
