package sandboxcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/sandbox"
)

func addCommands(cmd *cobra.Command, p program.Program) {
	cmd.AddCommand(
		newCreateCommand(p), newListCommand(p), newSSHCommand(p), newExecCommand(p),
		newPowerCommand(p, "start NAME|MACHINE...", "Start machines", "is running",
			(*sandbox.Sandbox).Start, (*sandbox.Machine).Start),
		newPowerCommand(p, "stop NAME|MACHINE...", "Shut down machines", "is off",
			(*sandbox.Sandbox).Stop, (*sandbox.Machine).Stop),
		newMachineCommand(p, "kill MACHINE...", "Power off machines without a shutdown", "is off", (*sandbox.Machine).Kill),
		newMachineCommand(p, "reboot MACHINE...", "Reboot machines", "has rebooted", (*sandbox.Machine).Reboot),
		newMachineCommand(p, "cut MACHINE...", "Disconnect machines from the network", "is disconnected", (*sandbox.Machine).CutNetwork),
		newMachineCommand(p, "heal MACHINE...", "Reconnect machines to the network", "is connected again", (*sandbox.Machine).HealNetwork),
		newDeleteCommand(p), newSuperviseCommand(p), newBootCommand(),
	)
}

func newCreateCommand(p program.Program) *cobra.Command {
	var o sandbox.Options
	var disk int64
	var pool string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create machines and a cluster file for them",
		Long:  "Creates machines with the names NAME-1, NAME-2 and so on, and a cluster file for them.",
		Example: `  slipway sandbox create dev --machines 3
  slipway sandbox create ha --machines 5 --control-planes 3 --kubernetes v1.37.1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := p.FindDirectories()
			if err != nil {
				return err
			}
			o.Home, o.Cache, o.Owner = dirs.Home, dirs.Cache, dirs.Owner
			o.Name, o.Disk = args[0], disk<<30
			if pool != "" {
				if o.Pool, err = netip.ParsePrefix(pool); err != nil {
					return diag.List{{ID: sandbox.IDBadRange, Severity: diag.Error, Message: err.Error(), Hint: "use for example --range 198.18.0.0/16"}}
				}
			}
			o.Progress = func(what string) { fmt.Fprintln(p.Err, what) }
			return createSandbox(cmd.Context(), p, o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Machines, "machines", 1, "the `number` of machines")
	f.IntVar(&o.ControlPlanes, "control-planes", 1, "the `number` of control planes in the cluster file")
	f.StringVar(&o.From, "from", "", "create the machines for the hosts of this cluster `file`")
	f.StringVar(&o.Kubernetes, "kubernetes", "", "Kubernetes `version` for the cluster file, such as v1.37.1")
	f.StringVar(&o.Dir, "dir", "", "store the machines in this `directory` (default: in SLIPWAY_HOME)")
	f.StringVar(&o.Out, "out", "", "the cluster `file` to write (default: NAME.yaml)")
	f.Int64Var(&disk, "disk", 20, "the size of each machine's disk in `GiB`; on this host a disk uses only the space of its content")
	f.BoolVar(&o.Internet, "internet", false, "allow the machines to reach the internet, but no private networks except their own")
	f.StringVar(&pool, "range", "", "the `network` for the machines' addresses, /8 to /24 (default: 198.18.0.0/16)")
	program.CompleteVersion(cmd, p.LoadReleases)
	_ = cmd.MarkFlagFilename("from", "yaml", "yml", "json") // the flags are there
	_ = cmd.MarkFlagDirname("dir")
	cmd.MarkFlagsMutuallyExclusive("from", "machines")
	cmd.MarkFlagsMutuallyExclusive("from", "control-planes")
	return cmd
}

// createResult is the result of create as JSON or YAML.
type createResult struct {
	Sandbox     string        `json:"sandbox"`
	ClusterFile string        `json:"clusterFile"`
	Machines    []machineInfo `json:"machines"`
	Seconds     float64       `json:"seconds"`
}

func createSandbox(ctx context.Context, p program.Program, o sandbox.Options) error {
	start := time.Now()
	sb, err := sandbox.Create(ctx, o)
	if err != nil {
		return err
	}
	machines, err := readMachines(sb.Machines())
	if err != nil {
		return err
	}
	out := createResult{Sandbox: o.Name, ClusterFile: cmp.Or(o.Out, o.Name+".yaml"), Machines: machines, Seconds: time.Since(start).Seconds()}
	return p.WriteResult(out, func(w io.Writer) error {
		fmt.Fprintf(w, "Sandbox %s is ready: %d machines in %.1f s\n", o.Name, len(machines), out.Seconds)
		for _, m := range machines {
			fmt.Fprintf(w, "  %-20s %s\n", m.Machine, m.Address)
		}
		_, err := fmt.Fprintf(w, "Next:  slipway create cluster -f %s\n       slipway sandbox ssh %s\nUndo:  slipway sandbox delete %s\n",
			out.ClusterFile, machines[0].Machine, o.Name)
		return err
	})
}

// newMachineCommand returns a command that calls do for machines, in the given order.
func newMachineCommand(p program.Program, use, short, now string, do func(*sandbox.Machine, context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeNames(p, listMachineNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMachines(p, args, now, func(home, name string) (machines, func() error, error) {
				m, err := sandbox.FindMachine(home, name)
				return machines{m}, func() error { return do(m, cmd.Context()) }, err
			})
		},
	}
}

// newPowerCommand returns a command that calls one for machines, or all for sandboxes.
func newPowerCommand(
	p program.Program, use, short, now string,
	all func(*sandbox.Sandbox, context.Context) error, one func(*sandbox.Machine, context.Context) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeNames(p, listSandboxName, listMachineNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMachines(p, args, now, func(home, name string) (machines, func() error, error) {
				sb, err := sandbox.Open(home, name)
				if err == nil {
					return sb.Machines(), func() error { return all(sb, cmd.Context()) }, nil
				}
				if !isUnknown(err) {
					return nil, nil, err
				}
				m, err := sandbox.FindMachine(home, name)
				return machines{m}, func() error { return one(m, cmd.Context()) }, err
			})
		},
	}
}

// isUnknown reports whether there is no sandbox, so that a name can be the name of a machine.
func isUnknown(err error) bool {
	var list diag.List
	return errors.As(err, &list) && slices.ContainsFunc(list, func(d diag.Diagnostic) bool {
		return d.ID == sandbox.IDUnknown || d.ID == sandbox.IDBadName
	})
}

type machines []*sandbox.Machine

// changeMachines calls the function that find returns for each name, and prints the new
// state of the machines.
func changeMachines(p program.Program, names []string, now string, find func(home, name string) (machines, func() error, error)) error {
	var changed machines
	err := runForEach(p, names, func(home, name string) (func() error, error) {
		found, do, err := find(home, name)
		changed = append(changed, found...)
		return do, err
	})
	if err != nil {
		return err
	}
	list, err := readMachines(changed)
	if err != nil {
		return err
	}
	return p.WriteResult(list, func(w io.Writer) error {
		for _, m := range list {
			fmt.Fprintf(w, "Machine %s %s\n", m.Machine, now)
		}
		return nil
	})
}

// runForEach looks up all names before it changes anything.
func runForEach(p program.Program, names []string, find func(home, name string) (func() error, error)) error {
	dirs, err := p.FindDirectories()
	if err != nil {
		return err
	}
	var list diag.List
	work := make([]func() error, len(names))
	for i, name := range names {
		do, err := find(dirs.Home, name)
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
		return newNeedsRootError()
	}
	var errs []error
	for i, do := range work {
		if err := do(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", names[i], err))
		}
	}
	return errors.Join(errs...)
}

func newNeedsRootError() error {
	return diag.List{{
		ID: sandbox.IDNeedsRoot, Severity: diag.Error, Message: "the machines of sandboxes require root", Hint: "run the command with sudo",
	}}
}

// newInMachineCommand returns a command that runs a program in the machine of its first
// argument. It prints only the output of the program.
func newInMachineCommand(
	p program.Program, use, short string, args cobra.PositionalArgs, run func(context.Context, *sandbox.Machine, []string) error,
) *cobra.Command {
	return program.MarkTextOnly(&cobra.Command{
		Use: use, Short: short, Args: args, ValidArgsFunction: completeMachine(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := p.FindDirectories()
			if err != nil {
				return err
			}
			m, err := sandbox.FindMachine(dirs.Home, args[0])
			if err != nil {
				return err
			}
			return convertExit(p, run(cmd.Context(), m, args[1:]))
		},
	})
}

func newExecCommand(p program.Program) *cobra.Command {
	return newInMachineCommand(p, "exec MACHINE -- PROGRAM [ARGUMENT...]", "Run a program in a machine as root", cobra.MinimumNArgs(2),
		func(ctx context.Context, m *sandbox.Machine, argv []string) error {
			if os.Geteuid() != 0 {
				return newNeedsRootError()
			}
			in, out := asTerminal(p.In), asTerminal(p.Out)
			if in != nil && out != nil {
				return m.ExecTerminal(ctx, argv, in)
			}
			return m.Exec(ctx, argv, sandbox.Stdio{In: p.In, Out: p.Out, Err: p.Err})
		})
}

func newSSHCommand(p program.Program) *cobra.Command {
	return newInMachineCommand(p, "ssh MACHINE [-- COMMAND...]", "Log in to a machine with ssh", cobra.MinimumNArgs(1),
		func(ctx context.Context, m *sandbox.Machine, command []string) error {
			ssh, err := exec.LookPath("ssh")
			if err != nil {
				return diag.List{{
					ID: sandbox.IDMissingProgram, Severity: diag.Error, Message: "ssh is not installed",
					Hint: "install it: apt-get install -y openssh-client",
				}}
			}
			sb := m.Sandbox()
			argv := append([]string{
				"-F", "none", "-i", sb.PrivateKeyFile(), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none",
				"-o", "UserKnownHostsFile=" + sb.KnownHostsFile(), "-o", "StrictHostKeyChecking=yes",
				"-o", "LogLevel=ERROR", "root@" + m.Address().String(),
			}, command...)
			c := exec.CommandContext(ctx, ssh, argv...)
			c.Stdin, c.Stdout, c.Stderr = p.In, p.Out, p.Err
			return c.Run()
		})
}

// asTerminal returns a stream as a terminal, or nil if it is not a terminal.
func asTerminal(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && sandbox.IsTerminal(f) {
		return f
	}
	return nil
}

// convertExit returns an ExitError with the status of a program, as a shell does: 128
// plus the signal's number if a signal ended it, 127 if it does not exist, and 126 if it
// cannot be started.
func convertExit(p program.Program, err error) error {
	var start *sandbox.StartError
	if errors.As(err, &start) {
		fmt.Fprintln(p.Err, start)
		if errors.Is(err, fs.ErrNotExist) {
			return &ExitError{Code: 127}
		}
		return &ExitError{Code: 126}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if code := exit.ExitCode(); code >= 0 {
		return &ExitError{Code: code}
	}
	return &ExitError{Code: 128 + findSignal(exit)}
}

func findSignal(exit *exec.ExitError) int {
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return int(ws.Signal())
	}
	return 0
}

func newDeleteCommand(p program.Program) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME...", Aliases: []string{"destroy", "del"},
		Short:             "Delete sandboxes with their machines and data",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeNames(p, listSandboxName),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.AskYesNo(cmd.Context(), "Delete "+strings.Join(args, ", ")+" with all machines and data?"); err != nil {
				return err
			}
			err := runForEach(p, args, func(home, name string) (func() error, error) {
				sb, err := sandbox.Open(home, name)
				return func() error { return sb.Delete(cmd.Context(), home) }, err
			})
			if err != nil {
				return err
			}
			return p.WriteResult(map[string][]string{"deleted": args}, func(w io.Writer) error {
				for _, name := range args {
					fmt.Fprintf(w, "Sandbox %s is deleted\n", name)
				}
				return nil
			})
		},
	}
}
