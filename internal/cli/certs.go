package cli

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
)

func (a *app) certsCmd() *cobra.Command {
	cmd := program.Parent("certs", "Look at a cluster's certificates, and renew them")
	cmd.AddCommand(a.certsCheckCmd(), a.certsRenewCmd(), a.rotateCACmd())
	return cmd
}

func (a *app) certsCheckCmd() *cobra.Command {
	var (
		file   string
		within time.Duration
	)
	cmd := &cobra.Command{
		Use: "check [NAME]", Aliases: []string{"check-expiration"},
		Short: "Say of every certificate on every host when it ends",
		Long: `Looks at every certificate on every host over SSH: of API servers and their
clients, of the front proxy, of etcd, of the authorities, in kubeconfigs, and of
kubelets; soonest first. No API is needed, and no host but those that are there.
Keys stay on the hosts.

Told of is what ends within 30 days, or in the last fifth of its time if that is
shorter, an authority within 90 days; with --within, whatever ends within that.
What a kubelet renews by itself is told of when it has not. So is what is missing
or of no use: an authority without its key, a certificate that its authority has
not signed.

Exit codes: 0 all is well; 4 something is to be done about a certificate; 3 hosts
could not be asked, and the others' certificates are fine.`,
		Example: `  slipway certs check prod
  slipway certs check prod --within 2160h -o json`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("within") && within <= 0 {
				return problem(idUsage, "720h is 30 days", "--within is %s, and must be more than nothing", within)
			}
			r, err := a.request(cmd.Context(), "", file, args)
			if err != nil {
				return err
			}
			c, err := a.lookAtCertificates(cmd.Context(), r, within)
			if err != nil {
				return err
			}
			if err := a.data(c, func(w io.Writer) error { return view.Certificates(w, c, a.env.Now(), a.outStyle()) }); err != nil {
				return err
			}
			switch c.Verdict {
			case lifecycle.CertificatesFine:
				return nil
			case lifecycle.CertificatesUnknown:
				return &exitError{code: exitPartial}
			}
			return &exitError{code: exitChanges}
		},
	}
	fileFlag(cmd, &file, "the cluster file, for a cluster that is not recorded here; - is standard input")
	cmd.Flags().DurationVar(&within, "within", 0, "tell of what ends within this `time` (default: see above)")
	return cmd
}

// lookAtCertificates looks at them; on a terminal, it shows whom it waits for.
func (a *app) lookAtCertificates(ctx context.Context, r lifecycle.Request, within time.Duration) (*lifecycle.Certificates, error) {
	svc, err := a.svc(ctx)
	if err != nil {
		return nil, err
	}
	return watched(ctx, a, func(progress event.Sink) (*lifecycle.Certificates, error) {
		return svc.Certificates(ctx, r, within, progress)
	})
}

func (a *app) certsRenewCmd() *cobra.Command {
	var how lifecycle.Renewal
	cmd := &cobra.Command{
		Use:   "renew [NAME] [CERTIFICATE...]",
		Short: "Renew a cluster's certificates, one control plane after the other",
		Long: `Renews the certificates that are in the last fifth of their time, or have
expired, on all hosts: one control plane after the other, and none before the one
before it serves. Names, purpose and keys stay, and so does the API: who serves
with a certificate reads the new one by itself; the controller manager and the
scheduler, which do not, are started anew. The admin kubeconfig that is kept here
is renewed as well.

It also works when everything has expired, and no API answers. Kubelets renew
their own; those that cannot any more are given new ones. Authorities are not
renewed.

CERTIFICATE is a name that "certs check" shows, such as apiserver or etcd-peer:
then these alone are renewed, whatever is left of their time.`,
		Example: `  slipway certs renew prod
  slipway certs renew prod --within 2160h
  slipway certs renew prod apiserver front-proxy-client`,
		ValidArgsFunction: a.certificateNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("within") && how.Within <= 0 {
				return problem(idUsage, "720h is 30 days", "--within is %s, and must be more than nothing", how.Within)
			}
			cluster, names, err := a.clusterFirst(cmd.Context(), args)
			if err != nil {
				return err
			}
			if len(names) > 0 && (how.All || how.Within > 0) {
				return problem(idUsage, "see: slipway certs renew --help", "certificates that are named are renewed whatever is left of their time: --all and --within say which others are")
			}
			how.Names = names
			r, err := a.request(cmd.Context(), lifecycle.Renew, "", cluster)
			if err != nil {
				return err
			}
			r.Renew = how
			return a.operate(cmd.Context(), operation{prepare: a.prepare(r)})
		},
	}
	cmd.Flags().BoolVar(&how.All, "all", false, "renew all, whatever is left of their time")
	cmd.Flags().DurationVar(&how.Within, "within", 0, "renew what ends within this `time` (default: what is in the last fifth of its own)")
	cmd.MarkFlagsMutuallyExclusive("all", "within")
	a.changeFlags(cmd)
	return cmd
}

// clusterFirst tells a cluster's name, which comes first if it is there, from
// those of certificates.
func (a *app) clusterFirst(ctx context.Context, args []string) (cluster, names []string, err error) {
	if len(args) == 0 {
		return nil, nil, nil
	}
	if !slices.Contains(lifecycle.CertificateNames(), args[0]) {
		return args[:1], args[1:], nil
	}
	svc, err := a.svc(ctx)
	if err != nil {
		return nil, nil, err
	}
	list, err := svc.Clusters(ctx)
	if slices.ContainsFunc(list, func(c lifecycle.ClusterSummary) bool { return c.Name == args[0] }) {
		return args[:1], args[1:], err
	}
	return nil, args, err
}

// certificateNames completes a cluster's name, then those of certificates.
func (a *app) certificateNames(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		names, how := a.clusterNames(cmd, args, word)
		return append(names, lifecycle.CertificateNames()...), how
	}
	return lifecycle.CertificateNames(), cobra.ShellCompDirectiveNoFileComp
}
