package sandboxcmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/sandbox"
)

// A listed is a machine in the output of list as JSON or YAML.
type listed struct {
	Sandbox string `json:"sandbox"`
	Machine string `json:"machine"`
	Address string `json:"address"`
	HostKey string `json:"hostKey"`
	// PrivateKeyFile is a key that can log in as root.
	PrivateKeyFile string `json:"privateKeyFile"`
	sandbox.Status
}

func listCommand(p program.Program) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List machines and their state", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := collect(p)
			if err != nil {
				return err
			}
			return p.Data(all, func(w io.Writer) error {
				if len(all) == 0 {
					fmt.Fprintln(p.Err, "No machines found. Create machines: slipway sandbox create NAME")
					return nil
				}
				return printTable(w, all)
			})
		},
	}
}

func collect(p program.Program) ([]listed, error) {
	dirs, err := p.Directories()
	if err != nil {
		return nil, err
	}
	sandboxes, err := sandbox.List(dirs.Home)
	if err != nil {
		return nil, err
	}
	all := []listed{}
	for _, sb := range sandboxes {
		if len(sb.Machines()) == 0 {
			// Its creation was killed; delete removes it.
			all = append(all, listed{Sandbox: sb.Name()})
		}
		of, err := listAll(sb.Machines())
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// listAll reads the status of machines.
func listAll(machines []*sandbox.Machine) ([]listed, error) {
	all := []listed{}
	for _, m := range machines {
		st, err := m.Status()
		if err != nil {
			return nil, fmt.Errorf("reading the status of machine %s: %w", m.Name(), err)
		}
		sb := m.Sandbox()
		all = append(all, listed{
			Sandbox: sb.Name(), Machine: m.Name(), Address: m.Address().String(),
			HostKey: m.HostKey(), PrivateKeyFile: sb.PrivateKeyFile(), Status: st,
		})
	}
	return all, nil
}

func printTable(w io.Writer, all []listed) error {
	var rows [][]string
	for _, m := range all {
		state, network := "off", "up"
		switch {
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
	return view.Table(w, []string{"SANDBOX", "MACHINE", "ADDRESS", "STATE", "NETWORK", "DISK"}, rows)
}
