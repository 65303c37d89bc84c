package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// certsCheckCommand holds what "certs check" needs.
type certsCheckCommand struct {
	*console
	clusters *clusterChooser
	subjects *subjectReader
	open     opener[inspector]
}

func newCertsCheckCommand(c certsCheckCommand) *cobra.Command {
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
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("within") && within <= 0 {
				return newProblem(idUsage, "use for example --within 720h (30 days)", "--within must be greater than zero, got %s", within)
			}
			subject, err := c.subjects.readSubject(cmd.Context(), file, args)
			if err != nil {
				return err
			}
			found, err := c.readCertificates(cmd.Context(), subject, within)
			if err != nil {
				return err
			}
			if err := c.writeResult(found,
				func(w io.Writer) error { return view.WriteCertificates(w, found, c.env.Now(), c.outStyle()) }); err != nil {
				return err
			}
			switch found.Verdict {
			case inspect.CertificatesFine:
				return nil
			case inspect.CertificatesUnknown:
				return &exitError{code: exitPartial}
			}
			return &exitError{code: exitChanges}
		},
	}
	addFileFlag(cmd, &file, "the cluster file, for a cluster that is not in Slipway's state; - is standard input")
	cmd.Flags().DurationVar(&within, "within", 0, "warn about certificates that expire within this `time` (default: see above)")
	return cmd
}

// readCertificates reads the certificates. On a terminal it shows which hosts it waits
// for.
func (c certsCheckCommand) readCertificates(ctx context.Context, of lifecycle.Subject,
	within time.Duration,
) (*inspect.Certificates, error) {
	svc, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return readWithProgress(ctx, c.console, func(progress event.Sink) (*inspect.Certificates, error) {
		return svc.Certificates(ctx, of, within, progress)
	})
}
