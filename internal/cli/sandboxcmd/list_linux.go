package sandboxcmd

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/sandbox"
)

// A listed machine is one element of what list answers as JSON.
type listed struct {
	Sandbox string `json:"sandbox"`
	Machine string `json:"machine"`
	Address string `json:"address"`
	HostKey string `json:"hostKey"`
	// PrivateKeyFile may log in as root.
	PrivateKeyFile string `json:"privateKeyFile"`
	sandbox.Status
}

func listCommand(s Streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List machines and what they do", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := collect()
			if err != nil {
				return err
			}
			switch format {
			case "text":
				return printTable(s, all)
			case "json", "yaml":
				b, err := json.MarshalIndent(all, "", "  ")
				if err == nil && format == "yaml" {
					b, err = yaml.JSONToYAML(b)
				}
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(s.Out, "%s\n", b)
				return err
			}
			return diag.List{{ID: "unknown-output-format", Severity: diag.Error, Message: fmt.Sprintf("%q is no output format", format), Hint: "name text, json or yaml"}}
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "output format: text, json or yaml")
	return cmd
}

func collect() ([]listed, error) {
	h, err := home()
	if err != nil {
		return nil, err
	}
	sandboxes, err := sandbox.List(h)
	if err != nil {
		return nil, err
	}
	all := []listed{}
	for _, sb := range sandboxes {
		if len(sb.Machines()) == 0 {
			// A creation that was killed; delete removes it.
			all = append(all, listed{Sandbox: sb.Name()})
		}
		for _, m := range sb.Machines() {
			st, err := m.Status()
			if err != nil {
				return nil, fmt.Errorf("looking at machine %s: %w", m.Name(), err)
			}
			all = append(all, listed{
				Sandbox: sb.Name(), Machine: m.Name(), Address: m.Address().String(),
				HostKey: m.HostKey(), PrivateKeyFile: sb.PrivateKeyFile(), Status: st,
			})
		}
	}
	return all, nil
}

func printTable(s Streams, all []listed) error {
	w := tabwriter.NewWriter(s.Out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SANDBOX\tMACHINE\tADDRESS\tSTATE\tNETWORK\tDISK")
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.1f/%d GiB\n", m.Sandbox, m.Machine, m.Address, state, network,
			float64(m.DiskUsed)/(1<<30), m.DiskSize>>30)
	}
	return w.Flush()
}
