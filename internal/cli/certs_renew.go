package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// certsRenewCommand holds what "certs renew" needs.
type certsRenewCommand struct {
	operationCommand
	open opener[clusterReader]
}

func newCertsRenewCommand(c certsRenewCommand) *cobra.Command {
	var r lifecycle.RenewCertsRequest
	cmd := &cobra.Command{
		Use:   "renew [NAME] [CERTIFICATE...]",
		Short: "Renew a cluster's certificates",
		Long: `Renews expired certificates, and certificates in the last fifth of their lifetime, on
all hosts. Control planes are renewed one at a time; the next one starts when the
previous one serves again. Names, usages and keys of the certificates do not change,
and the API remains available: servers reload their certificates, and only the controller
manager and the scheduler are restarted. The admin kubeconfig in Slipway's state is also
renewed.

The command also works when all certificates have expired and the API is down. Kubelets
renew their own certificates; a kubelet that no longer can gets a new one. CAs are not
renewed.

CERTIFICATE is a name from "certs check", such as apiserver or etcd-peer. Then only the
given certificates are renewed, independent of their remaining lifetime.`,
		Example: `  slipway certs renew prod
  slipway certs renew prod --within 2160h
  slipway certs renew prod apiserver front-proxy-client`,
		ValidArgsFunction: c.completeArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("within") && r.Within <= 0 {
				return newProblem(idUsage, "use for example --within 720h (30 days)", "--within must be greater than zero, got %s", r.Within)
			}
			cluster, names, err := c.splitArguments(cmd.Context(), args)
			if err != nil {
				return err
			}
			if len(names) > 0 && (r.All || r.Within > 0) {
				return newProblem(idUsage, "leave out --all and --within, or the names of certificates",
					"--all and --within cannot be used together with names of certificates")
			}
			r.Names = names
			if r.Name, err = c.clusters.chooseCluster(cmd.Context(), cluster); err != nil {
				return err
			}
			return c.runner.runOperation(cmd.Context(), operation{prepare: prepareRequest(r)})
		},
	}
	cmd.Flags().BoolVar(&r.All, "all", false, "renew all certificates, independent of their remaining lifetime")
	cmd.Flags().DurationVar(&r.Within, "within", 0,
		"renew certificates that expire within this `time` (default: certificates in the last fifth of their lifetime)")
	cmd.MarkFlagsMutuallyExclusive("all", "within")
	addOptionFlags(cmd, &r.Options)
	return cmd
}

// splitArguments splits arguments into a cluster's name, which is first if it is given,
// and names of certificates.
func (c certsRenewCommand) splitArguments(ctx context.Context, args []string) (cluster, names []string, err error) {
	if len(args) == 0 {
		return nil, nil, nil
	}
	if !slices.Contains(lifecycle.CertificateNames(), args[0]) {
		return args[:1], args[1:], nil
	}
	svc, err := c.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	list, err := svc.Clusters(ctx)
	if slices.ContainsFunc(list, func(c savedstate.ClusterSummary) bool { return c.Name == args[0] }) {
		return args[:1], args[1:], err
	}
	return nil, args, err
}

// completeArguments completes a cluster's name, and then names of certificates.
func (c certsRenewCommand) completeArguments(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		names, how := c.clusters.completeNames(cmd, args, word)
		return append(names, lifecycle.CertificateNames()...), how
	}
	return lifecycle.CertificateNames(), cobra.ShellCompDirectiveNoFileComp
}
