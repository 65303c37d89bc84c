package daemon

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/server/adminclient"
	"slipway.dev/slipway/internal/server/certificates"
	"slipway.dev/slipway/internal/server/useraccess"
)

const (
	// defaultTTL is the default lifetime of a certificate: one working day.
	defaultTTL = 24 * time.Hour
	// maxKubeconfig limits the bytes of a kubeconfig.
	maxKubeconfig = 1 << 20
)

func newKubeconfigCommand(p *program) *cobra.Command {
	request := useraccess.Request{}
	var out string
	cmd := &cobra.Command{
		Use: "kubeconfig", Short: "Issue a kubeconfig for a user", Args: cobra.NoArgs,
		Long: `Issues a client certificate for a user and prints a kubeconfig with it. The user
has no rights until a role is bound:

  kubectl create clusterrolebinding jane --clusterrole slipway-viewer --user jane

A certificate cannot be revoked. Choose a short lifetime, or use a service
account, whose tokens can be revoked.`,
		Example: `  slipwayd kubeconfig --user jane --group platform --ttl 24h --out jane.kubeconfig`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := adminclient.Open(p.dataDir)
			if err != nil {
				return err
			}
			if request.Server == "" {
				if request.Server, err = readServerURL(p.dataDir); err != nil {
					return err
				}
			}
			text, err := useraccess.Issue(cmd.Context(), config, request)
			if err != nil {
				return err
			}
			if out == "" || out == "-" {
				_, err = p.Out.Write(text)
				return err
			}
			if err := safefile.WriteFile(out, text, 0o600); err != nil {
				return fmt.Errorf("writing the kubeconfig: %w", err)
			}
			_, err = fmt.Fprintf(p.Err, "Kubeconfig of %s, valid for %s: %s\nNext: kubectl --kubeconfig %[3]s auth whoami\n",
				request.User, request.TTL, out)
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&request.User, "user", "", "`name` of the user")
	f.StringSliceVar(&request.Groups, "group", nil, "`group` of the user; can be repeated")
	f.DurationVar(&request.TTL, "ttl", defaultTTL, "lifetime of the certificate")
	f.StringVar(&request.Server, "server", "", "`URL` of the server in the kubeconfig (default: as in the administrator's)")
	f.StringVar(&out, "out", "", "`file` to write (default: standard output)")
	_ = cmd.MarkFlagRequired("user") // the flag exists
	return cmd
}

// readServerURL returns the URL of the server in the administrator's kubeconfig.
func readServerURL(dataDir string) (string, error) {
	text, err := safefile.ReadFile(certificates.AdminKubeconfigIn(filepath.Join(dataDir, "pki")), maxKubeconfig)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig of the administrator: %w", err)
	}
	return cmp.Or(config.Host, "https://127.0.0.1:7443"), nil
}
