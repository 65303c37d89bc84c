package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/carotation"
)

func newRotateCACommand(c operationCommand) *cobra.Command {
	var r lifecycle.RotateCARequest
	cmd := &cobra.Command{
		Use:   "rotate-ca [NAME]",
		Short: "Rotate a CA or the service account signing key",
		Long: `Rotates a CA or the service account signing key while the cluster keeps serving.
--which selects it:
  service-account  The key that signs tokens of service accounts.
  cluster          The CA of API servers, kubelets and API clients.
  front-proxy      The CA that extension APIs (such as metrics-server) use to
                   authenticate API servers.
  etcd             The CA of etcd members and of API servers as their clients.

First, all programs trust the new CA or key in addition to the old one. Then all
programs sign with the new one. Slipway recreates everything that holds older
tokens or certificates, or checks that it uses the new ones. When nothing needs
the old CA or key, Slipway removes it.

If something still needs the old one, Slipway names it and stops; both remain
valid. Run "slipway resume" to continue. To continue an interrupted rotation, run
"slipway resume" or the same command again.`,
		Example: `  slipway certs rotate-ca prod --which service-account
  slipway certs rotate-ca prod --which cluster
  slipway certs rotate-ca prod --which front-proxy
  slipway certs rotate-ca prod --which etcd`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(r.Names) == 0 {
				return newProblem(idUsage, "use --which with one of: "+strings.Join(carotation.Names(), ", "), "--which is required")
			}
			var err error
			if r.Name, err = c.clusters.chooseCluster(cmd.Context(), args); err != nil {
				return err
			}
			return c.runner.runOperation(cmd.Context(), operation{prepare: prepareRequest(r)})
		},
	}
	addOptionFlags(cmd, &r.Options)
	cmd.Flags().StringSliceVar(&r.Names, "which", nil, "the `name` of the CA or key to rotate: "+strings.Join(carotation.Names(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("which", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return carotation.Names(), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}
