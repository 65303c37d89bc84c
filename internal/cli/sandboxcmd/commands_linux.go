package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/sandbox"
)

func addCommands(cmd *cobra.Command, s Streams) {
	cmd.AddCommand(
		createCommand(s), listCommand(s), sshCommand(s), execCommand(s),
		powerCommand("start NAME|MACHINE...", "Start machines that are off",
			(*sandbox.Sandbox).Start, (*sandbox.Machine).Start),
		powerCommand("stop NAME|MACHINE...", "Power machines off in an orderly way",
			(*sandbox.Sandbox).Stop, (*sandbox.Machine).Stop),
		machineCommand("kill MACHINE...", "End machines as a pulled plug does: their peers hear nothing of it", (*sandbox.Machine).Kill),
		machineCommand("reboot MACHINE...", "Reboot machines in an orderly way", (*sandbox.Machine).Reboot),
		machineCommand("cut MACHINE...", "Pull machines' network cables", (*sandbox.Machine).Cut),
		machineCommand("heal MACHINE...", "Plug machines' network cables in again", (*sandbox.Machine).Heal),
		deleteCommand(s), superviseCommand(s), bootCommand(),
	)
}

func createCommand(s Streams) *cobra.Command {
	var o sandbox.Options
	var disk int64
	var pool string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create machines NAME-1, NAME-2, … and a cluster file for them",
		Example: `  slipway sandbox create dev --machines 3
  slipway sandbox create ha --machines 5 --control-planes 3 --kubernetes v1.37.1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Name, o.Disk = args[0], disk<<30
			if o.Home, err = home(); err != nil {
				return err
			}
			if o.Cache, err = cache(); err != nil {
				return err
			}
			o.Owner = owner()
			if pool != "" {
				if o.Pool, err = netip.ParsePrefix(pool); err != nil {
					return diag.List{{ID: "sandbox-bad-range", Severity: diag.Error, Message: err.Error(), Hint: "--range 198.18.0.0/16"}}
				}
			}
			o.Progress = func(what string) { fmt.Fprintln(s.Err, what+" …") }
			return create(cmd.Context(), s, o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Machines, "machines", 1, "how many machines")
	f.IntVar(&o.ControlPlanes, "control-planes", 1, "how many of them are control planes, in the cluster file")
	f.StringVar(&o.From, "from", "", "make the machines that this cluster file names")
	f.StringVar(&o.Kubernetes, "kubernetes", "", "Kubernetes version for the cluster file, such as v1.37.1")
	f.StringVar(&o.Dir, "dir", "", "keep the machines in this directory (default: below SLIPWAY_HOME)")
	f.StringVar(&o.Out, "out", "", "cluster file to write (default: NAME.yaml)")
	f.Int64Var(&disk, "disk", 20, "size of each machine's disk in GiB; it takes what is written to it")
	f.BoolVar(&o.Internet, "internet", false, "let the machines reach what this host reaches")
	f.StringVar(&pool, "range", "", "network to take the machines' addresses from (default: 198.18.0.0/16)")
	cmd.MarkFlagsMutuallyExclusive("from", "machines")
	cmd.MarkFlagsMutuallyExclusive("from", "control-planes")
	return cmd
}

func create(ctx context.Context, s Streams, o sandbox.Options) error {
	start := time.Now()
	sb, err := sandbox.Create(ctx, o)
	if err != nil {
		return err
	}
	out := o.Out
	if out == "" {
		out = o.Name + ".yaml"
	}
	machines := sb.Machines()
	fmt.Fprintf(s.Err, "Sandbox %s is ready: %d machines in %.1f s\n", o.Name, len(machines), time.Since(start).Seconds())
	for _, m := range machines {
		fmt.Fprintf(s.Err, "  %-20s %s\n", m.Name(), m.Address())
	}
	fmt.Fprintf(s.Err, "Next:  slipway create cluster -f %s\n       slipway sandbox ssh %s\nUndo:  slipway sandbox delete %s\n",
		out, machines[0].Name(), o.Name)
	return nil
}

// machineCommand does one thing to machines, in the order given.
func machineCommand(use, short string, do func(*sandbox.Machine, context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeMachines,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachNamed(args, func(h, name string) (func() error, error) {
				m, err := sandbox.FindMachine(h, name)
				return func() error { return do(m, cmd.Context()) }, err
			})
		},
	}
}

// powerCommand does one thing to machines, or to all of a sandbox.
func powerCommand(use, short string, all func(*sandbox.Sandbox, context.Context) error, one func(*sandbox.Machine, context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeMachines,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachNamed(args, func(h, name string) (func() error, error) {
				if sb, err := sandbox.Open(h, name); err == nil {
					return func() error { return all(sb, cmd.Context()) }, nil
				}
				m, err := sandbox.FindMachine(h, name)
				return func() error { return one(m, cmd.Context()) }, err
			})
		},
	}
}

// eachNamed finds all that is named before it does anything to the first.
func eachNamed(names []string, find func(home, name string) (func() error, error)) error {
	h, err := home()
	if err != nil {
		return err
	}
	var list diag.List
	work := make([]func() error, len(names))
	for i, name := range names {
		do, err := find(h, name)
		var problems diag.List
		if err != nil && !errors.As(err, &problems) {
			return err
		}
		list = append(list, problems...)
		work[i] = do
	}
	if err := list.Err(); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return needsRoot()
	}
	var errs []error
	for i, do := range work {
		if err := do(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", names[i], err))
		}
	}
	return errors.Join(errs...)
}

func needsRoot() error {
	return diag.List{{ID: "sandbox-needs-root", Severity: diag.Error, Message: "machines belong to root", Hint: "run it with sudo"}}
}

func execCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:               "exec MACHINE -- PROGRAM [ARGUMENT...]",
		Short:             "Run a program in a machine, as root, and end with its status",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completeMachines,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := home()
			if err != nil {
				return err
			}
			m, err := sandbox.FindMachine(h, args[0])
			if err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return needsRoot()
			}
			in, out := asTerminal(s.In), asTerminal(s.Out)
			if in != nil && out != nil {
				return handOn(m.ExecTerminal(cmd.Context(), args[1:], in))
			}
			return handOn(m.Exec(cmd.Context(), args[1:], sandbox.Stdio{In: s.In, Out: s.Out, Err: s.Err}))
		},
	}
}

// asTerminal is the terminal that a stream is, or nil.
func asTerminal(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && sandbox.IsTerminal(f) {
		return f
	}
	return nil
}

// handOn makes a program's status ours. One that a signal ended has 128 and
// the signal's number, as in a shell.
func handOn(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if code := exit.ExitCode(); code >= 0 {
		return &ExitError{Code: code}
	}
	return &ExitError{Code: 128 + signalOf(exit)}
}

func sshCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:               "ssh MACHINE [-- COMMAND...]",
		Short:             "Log in to a machine with the ssh program",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeMachines,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := home()
			if err != nil {
				return err
			}
			m, err := sandbox.FindMachine(h, args[0])
			if err != nil {
				return err
			}
			ssh, err := exec.LookPath("ssh")
			if err != nil {
				return diag.List{{ID: "sandbox-missing-program", Severity: diag.Error, Message: "ssh is not installed", Hint: "apt-get install -y openssh-client"}}
			}
			sb := m.Sandbox()
			argv := append([]string{
				"-F", "none", "-i", sb.PrivateKeyFile(), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none",
				"-o", "UserKnownHostsFile=" + sb.KnownHostsFile(), "-o", "StrictHostKeyChecking=yes",
				"-o", "LogLevel=ERROR", "root@" + m.Address().String(),
			}, args[1:]...)
			c := exec.CommandContext(cmd.Context(), ssh, argv...)
			c.Stdin, c.Stdout, c.Stderr = s.In, s.Out, s.Err
			return handOn(c.Run())
		},
	}
}

func deleteCommand(s Streams) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete NAME...", Aliases: []string{"destroy", "del"},
		Short:             "Delete sandboxes with all that is on their machines",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				if err := confirm(s, "Delete "+strings.Join(args, ", ")+" with all that is on the machines?"); err != nil {
					return err
				}
			}
			return eachNamed(args, func(h, name string) (func() error, error) {
				sb, err := sandbox.Open(h, name)
				return func() error {
					if err := sb.Delete(cmd.Context(), h); err != nil {
						return err
					}
					fmt.Fprintf(s.Err, "Sandbox %s is gone\n", name)
					return nil
				}, err
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
