package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
)

// kubectlCommand holds what "kubectl" needs.
type kubectlCommand struct {
	*console
	clusters *clusterChooser
	open     opener[clusterAccess]
}

func newKubectlCommand(c kubectlCommand) *cobra.Command {
	return program.MarkTextOnly(&cobra.Command{
		Use: "kubectl [NAME] -- ARGS...", Short: "Run kubectl on a cluster",
		Long:    "Runs the kubectl of the cluster's bundle with the cluster's admin kubeconfig.",
		Example: "  slipway kubectl prod -- get nodes -o wide",
		Args:    cobra.ArbitraryArgs, ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			dash := cmd.ArgsLenAtDash()
			if dash < 0 || dash > 1 {
				return newProblem(idUsage, "slipway kubectl NAME -- get nodes", "the arguments of kubectl must follow --")
			}
			svc, name, err := openForCluster(ctx, c.clusters, c.open, args[:dash])
			if err != nil {
				return err
			}
			code, err := svc.Kubectl(ctx, name, args[dash:], c.In, c.Out, c.Err)
			switch {
			case err == nil && ctx.Err() != nil: // a signal ended kubectl
				return &exitError{code: exitInterrupted}
			case err == nil && code != 0:
				return &exitError{code: code}
			}
			return err
		},
	})
}
