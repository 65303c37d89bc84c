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
	cmd := program.Parent("certs", "Check, renew and rotate certificates")
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
		Short: "Show when each certificate expires",
		Long: `Reads every certificate on every reachable host over SSH, and lists the certificates
by expiry: of API servers and their clients, the front proxy, etcd, CAs, kubeconfigs,
and kubelets. The command does not need the API. Private keys stay on the hosts.

By default, warns about certificates that expire within 30 days, or that are in the
last fifth of their lifetime if that is shorter. The default for CAs is 90 days. With
--within, warns about all certificates that expire within that time. For a certificate
that the kubelet rotates, it warns only if the rotation is overdue. It also warns about
missing or unusable certificates: a CA without its key, or a certificate that its CA
has not signed.

Exit codes:
  0  No problems.
  3  Some hosts were not reachable; the other hosts have no problems.
  4  A certificate needs action.`,
		Example: `  slipway certs check prod
  slipway certs check prod --within 2160h -o json`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("within") && within <= 0 {
				return problem(idUsage, "use for example --within 720h (30 days)", "--within must be greater than zero, got %s", within)
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
	fileFlag(cmd, &file, "the cluster file, for a cluster that is not in Slipway's state; - is standard input")
	cmd.Flags().DurationVar(&within, "within", 0, "warn about certificates that expire within this `time` (default: see above)")
	return cmd
}

// lookAtCertificates reads the certificates. On a terminal it shows which hosts it waits for.
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
		ValidArgsFunction: a.certificateNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("within") && how.Within <= 0 {
				return problem(idUsage, "use for example --within 720h (30 days)", "--within must be greater than zero, got %s", how.Within)
			}
			cluster, names, err := a.clusterFirst(cmd.Context(), args)
			if err != nil {
				return err
			}
			if len(names) > 0 && (how.All || how.Within > 0) {
				return problem(idUsage, "leave out --all and --within, or the names of certificates",
					"--all and --within cannot be used together with names of certificates")
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
	cmd.Flags().BoolVar(&how.All, "all", false, "renew all certificates, independent of their remaining lifetime")
	cmd.Flags().DurationVar(&how.Within, "within", 0,
		"renew certificates that expire within this `time` (default: certificates in the last fifth of their lifetime)")
	cmd.MarkFlagsMutuallyExclusive("all", "within")
	a.changeFlags(cmd)
	return cmd
}

// clusterFirst splits arguments into a cluster's name, which is first if it is given, and
// names of certificates.
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

// certificateNames completes a cluster's name, and then names of certificates.
func (a *app) certificateNames(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		names, how := a.clusterNames(cmd, args, word)
		return append(names, lifecycle.CertificateNames()...), how
	}
	return lifecycle.CertificateNames(), cobra.ShellCompDirectiveNoFileComp
}
