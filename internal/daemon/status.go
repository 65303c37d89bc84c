package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway.dev/slipway/internal/server/adminclient"
	"slipway.dev/slipway/internal/server/controlplane"
)

// statusTime limits the time for the answers of the server.
const statusTime = 15 * time.Second

// A serverStatus describes a running server.
type serverStatus struct {
	URL        string             `json:"url"`
	Ready      bool               `json:"ready"`
	Conditions []metav1.Condition `json:"conditions"`
}

func newStatusCommand(p *program) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of the running server", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			status, err := readStatus(cmd.Context(), p.dataDir)
			if err != nil {
				return err
			}
			if output == "json" {
				return p.writeJSON(status)
			}
			return p.printStatus(status)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "output `format`: text or json")
	return cmd
}

// readStatus asks the server for its state.
func readStatus(ctx context.Context, dataDir string) (serverStatus, error) {
	config, err := adminclient.Open(dataDir)
	if err != nil {
		return serverStatus{}, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return serverStatus{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	status := serverStatus{URL: config.Host}
	_, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	status.Ready = err == nil
	if status.Conditions, err = controlplane.ReadConditions(ctx, client); err != nil {
		return status, fmt.Errorf("reading the state of the server at %s: %w", config.Host, err)
	}
	return status, nil
}

// printStatus prints the state for people: the verdict first.
func (p *program) printStatus(s serverStatus) error {
	verdict := "ready"
	if !s.Ready {
		verdict = "not ready"
	}
	if _, err := fmt.Fprintf(p.Out, "Server %s is %s.\n", s.URL, verdict); err != nil {
		return err
	}
	for _, c := range s.Conditions {
		mark := "ok"
		if c.Status == metav1.ConditionTrue {
			mark = "ATTENTION"
		}
		line := fmt.Sprintf("  %-18s %-10s %s", c.Type, mark, escapeControls(c.Message))
		if _, err := fmt.Fprintln(p.Out, line); err != nil {
			return err
		}
	}
	return nil
}
