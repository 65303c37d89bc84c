package cli

import (
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
)

func (a *app) infoCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cluster-info [NAME]", Short: "Look at a cluster: how it is, its nodes, etcd, certificates, add-ons",
		Long: `Looks at a cluster and says how it is, what is wrong, and what to type next. It
asks the API, and every host over SSH, at the same time; when the API does not
answer, or hosts do not, it tells what the others and the records know, within
half a minute. Resources are those that pods may use, of all there are.`,
		Aliases: []string{"info"}, Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			svc, name, err := a.chosen(ctx, args)
			if err != nil {
				return err
			}
			info, err := watched(ctx, a, func(progress event.Sink) (*lifecycle.Info, error) { return svc.Info(ctx, name, progress) })
			if err != nil {
				return err
			}
			return a.data(info, func(w io.Writer) error { return view.Info(w, info, a.env.Now(), a.outStyle()) })
		},
	}
}
