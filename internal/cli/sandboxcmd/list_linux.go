package sandboxcmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/sandbox"
)

// A machineInfo is a machine in the output of list as JSON or YAML.
type machineInfo struct {
	Sandbox string `json:"sandbox"`
	Machine string `json:"machine"`
	Address string `json:"address"`
	HostKey string `json:"hostKey"`
	// PrivateKeyFile is a key that can log in as root.
	PrivateKeyFile string `json:"privateKeyFile"`
	sandbox.Status
	// Problem is the reason why the sandbox is damaged, nil if it is not.
	Problem *diag.Diagnostic `json:"problem,omitempty"`
}

func newListCommand(p program.Program) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List machines and their state", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := readSandboxes(p)
			if err != nil {
				return err
			}
			return p.WriteResult(all, func(w io.Writer) error { return writeList(p, w, all) })
		},
	}
}

// writeList writes the machines, and why a sandbox is damaged.
func writeList(p program.Program, w io.Writer, all []machineInfo) error {
	if len(all) == 0 {
		fmt.Fprintln(p.Err, "No machines found. Create machines: slipway sandbox create NAME")
		return nil
	}
	if err := writeMachineTable(w, all); err != nil {
		return err
	}
	var problems diag.List
	for _, m := range all {
		if m.Problem != nil {
			problems = append(problems, *m.Problem)
		}
	}
	view.WriteDiagnostics(p.Err, problems, view.Style{})
	return nil
}

func readSandboxes(p program.Program) ([]machineInfo, error) {
	dirs, err := p.FindDirectories()
	if err != nil {
		return nil, err
	}
	sandboxes, damaged, err := sandbox.List(dirs.Home)
	if err != nil {
		return nil, err
	}
	all := []machineInfo{}
	for _, sb := range sandboxes {
		if len(sb.Machines()) == 0 {
			// Its creation was killed; delete removes it.
			all = append(all, machineInfo{Sandbox: sb.Name()})
		}
		of, err := readMachines(sb.Machines())
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	for _, d := range damaged {
		all = append(all, machineInfo{Sandbox: d.Name, Problem: &d.Problem})
	}
	return all, nil
}

// readMachines reads the status of machines.
func readMachines(machines []*sandbox.Machine) ([]machineInfo, error) {
	all := []machineInfo{}
	for _, m := range machines {
		st, err := m.Status()
		if err != nil {
			return nil, fmt.Errorf("reading the status of machine %s: %w", m.Name(), err)
		}
		sb := m.Sandbox()
		all = append(all, machineInfo{
			Sandbox: sb.Name(), Machine: m.Name(), Address: m.Address().String(),
			HostKey: m.HostKey(), PrivateKeyFile: sb.PrivateKeyFile(), Status: st,
		})
	}
	return all, nil
}

func writeMachineTable(w io.Writer, all []machineInfo) error {
	var rows [][]string
	for _, m := range all {
		state, network := "off", "up"
		switch {
		case m.Problem != nil:
			state, network = "damaged", "-"
		case m.Running && m.Supervised:
			state = "running"
		case m.Running:
			state = "running, unsupervised"
		case m.Machine == "":
			state = "incomplete"
		}
		if m.Cut {
			network = "cut"
		}
		disk := fmt.Sprintf("%.1f/%d GiB", float64(m.DiskUsed)/(1<<30), m.DiskSize>>30)
		rows = append(rows, []string{m.Sandbox, m.Machine, m.Address, state, network, disk})
	}
	return view.WriteTable(w, []string{"SANDBOX", "MACHINE", "ADDRESS", "STATE", "NETWORK", "DISK"}, rows)
}
