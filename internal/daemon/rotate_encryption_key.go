package daemon

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/server/adminclient"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/keyrotation"
)

func newRotateEncryptionKeyCommand(p *program) *cobra.Command {
	var request rotateRequest
	cmd := &cobra.Command{
		Use: "rotate-encryption-key", Short: "Encrypt all Secrets with a new key", Args: cobra.NoArgs,
		Long: `Makes a new key for the encryption of Secrets in the database, encrypts all
Secrets with it, and removes the previous key. The server continues to serve.
If the command is interrupted, run it again: it continues.

Backups that were taken before contain the previous key and can still be
restored.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := adminclient.Open(p.dataDir)
			if err != nil {
				return err
			}
			body, err := adminclient.Post(cmd.Context(), config, controlplane.PathPrefix+pathRotate, request)
			if err != nil {
				return err
			}
			defer body.Close()
			var result keyrotation.Result
			if err := json.NewDecoder(body).Decode(&result); err != nil {
				return fmt.Errorf("reading the response of the server: %w", err)
			}
			_, err = fmt.Fprintf(p.Out, "Secrets encrypted with the new key %s: %d\nNext: slipwayd backup\n", result.Key, result.Secrets)
			return err
		},
	}
	cmd.Flags().BoolVar(&request.OnlyServer, "only-server", false, "confirm that no other server uses the same external etcd")
	return cmd
}
