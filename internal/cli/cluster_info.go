package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

func newClusterInfoCommand(c inspectCommand) *cobra.Command {
	report := clusterReport[inspector, inspect.Info]{
		read: func(ctx context.Context, svc inspector, cluster string, progress event.Sink) (*inspect.Info, error) {
			return svc.Info(ctx, cluster, progress)
		},
		show: func(w io.Writer, info *inspect.Info, style view.Style) error {
			return view.WriteInfo(w, info, c.env.Now(), style)
		},
	}
	return &cobra.Command{
		Use: "cluster-info [NAME]", Short: "Show the health of a cluster",
		Long: `Shows the health of a cluster, its problems, and the next command: nodes, etcd,
certificates, add-ons and operations. The command queries the API and, over SSH, every
host at the same time. If the API or hosts are not reachable, it shows what the other
hosts and Slipway's state know. It ends within 30 seconds. Resources are shown as
allocatable of capacity.`,
		Aliases: []string{"info"}, Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: report.newRunFunc(c.console, c.clusters, c.open),
	}
}
