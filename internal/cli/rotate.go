package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/lifecycle"
)

func (a *app) rotateCACmd() *cobra.Command {
	var which []string
	cmd := &cobra.Command{
		Use:   "rotate-ca [NAME]",
		Short: "Exchange what a cluster's programs trust, while it serves",
		Long: `Exchanges keys that everything in a cluster goes by for others, on a cluster that
serves all along. --which says which: service-account is the key that signs tokens
of service accounts, cluster the authority by which API servers, kubelets and who
asks the API know one another, front-proxy the one by which the APIs that API servers
hand requests to (metrics-server) know API servers, etcd the one by which members of
etcd and API servers know each other.

All come to trust what is new, one after the other; then all sign with it; what holds
something older is made anew, or asked whether it goes by what is new; and when
nothing needs what is old any more, it is dropped. What still needs it is named: then
the exchange stops there, with both in force, until "slipway resume". Cut off
anywhere, it goes on by that, or by the same command again.`,
		Example: `  slipway certs rotate-ca prod --which service-account
  slipway certs rotate-ca prod --which cluster
  slipway certs rotate-ca prod --which front-proxy
  slipway certs rotate-ca prod --which etcd`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(which) == 0 {
				return problem(idUsage, "there are: "+strings.Join(lifecycle.RotationNames(), ", "), "say with --which what is to be exchanged")
			}
			r, err := a.request(cmd.Context(), lifecycle.RotateCA, "", args)
			if err != nil {
				return err
			}
			r.Rotate = which
			return a.operate(cmd.Context(), operation{prepare: a.prepare(r)})
		},
	}
	a.changeFlags(cmd)
	cmd.Flags().StringSliceVar(&which, "which", nil, "exchange `what`: "+strings.Join(lifecycle.RotationNames(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("which", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return lifecycle.RotationNames(), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}
