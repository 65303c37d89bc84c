package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/adminclient"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/serverbackup"
)

// A backupCommand has the flags of `slipwayd backup`.
type backupCommand struct {
	*program
	out, target, config string
	recipients          []string
	output              string
}

func newBackupCommand(p *program) *cobra.Command {
	b := &backupCommand{program: p}
	cmd := &cobra.Command{
		Use: "backup", Short: "Back up the running server", Args: cobra.NoArgs,
		Long: `Writes a backup of the running server to a file: a snapshot of its database, its
CA and certificates, and its keys. With an external etcd, the backup has only
certificates and keys.

Anyone who can read a backup without encryption can read all Secrets and act as
administrator. With --recipient, only the owner of the age identity can read it.

The command prints the public key of the server. Save it elsewhere: a restore on
another machine needs it to verify the backup.`,
		Example: `  slipwayd backup --out /srv/backups
  slipwayd backup --out server.tar.age --recipient age1…
  slipwayd backup --to nas --backup-config /etc/slipwayd/backup.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&b.out, "out", ".", "`file` to write, or a directory for a file with a default name")
	f.StringArrayVar(&b.recipients, "recipient", nil, "age public `key` for which the backup is encrypted; can be repeated")
	f.StringVar(&b.target, "to", "", "copy target of the backup configuration, by `name`, instead of a file")
	f.StringVar(&b.config, "backup-config", "", "`file` with the targets of backups")
	f.StringVarP(&b.output, "output", "o", "text", "output `format`: text or json")
	cmd.MarkFlagsMutuallyExclusive("out", "to")
	cmd.MarkFlagsRequiredTogether("to", "backup-config")
	return cmd
}

// checkOutput refuses an output format other than text and json.
func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("invalid argument %q for --output: use text or json", output)
	}
	return nil
}

func (b *backupCommand) run(ctx context.Context) error {
	if err := checkOutput(b.output); err != nil {
		return err
	}
	if b.target != "" {
		return b.sendToTarget(ctx)
	}
	got, err := b.receive(ctx, b.out)
	if err != nil {
		return err
	}
	return b.printResult(got)
}

// receive writes a backup of the running server to a file or directory.
func (b *backupCommand) receive(ctx context.Context, out string) (serverbackup.Received, error) {
	config, err := adminclient.Open(b.dataDir)
	if err != nil {
		return serverbackup.Received{}, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return serverbackup.Received{}, err
	}
	return serverbackup.Receive(ctx, serverbackup.Call{
		Client: client, URL: config.Host + controlplane.PathPrefix + pathBackup, Recipients: b.recipients, Out: out,
	})
}

// sendToTarget sends a backup to a copy target.
func (b *backupCommand) sendToTarget(ctx context.Context) (err error) {
	config, err := serverbackup.LoadConfig(b.config)
	if err != nil {
		return err
	}
	to, err := config.Target(b.target)
	if err != nil {
		return err
	}
	if len(b.recipients) == 0 {
		b.recipients = config.Recipients
	}
	signer, err := serverbackup.ReadSigningKey(filepath.Join(b.dataDir, "keys"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "slipwayd-backup-")
	if err != nil {
		return fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	got, err := b.receive(ctx, dir)
	if err != nil {
		return err
	}
	name := filepath.Base(got.File)
	unremoved, err := serverbackup.SendFile(ctx, to, got.File, name, signer)
	if err != nil {
		return err
	}
	if unremoved != nil {
		fmt.Fprintln(b.Err, "warning: old backups were not removed: "+escapeControls(unremoved.Error()))
	}
	got.File = name
	return b.printResult(got)
}

// printResult prints the place and the public key of a backup.
func (b *backupCommand) printResult(got serverbackup.Received) error {
	if b.output == "json" {
		return b.writeJSON(got)
	}
	how := "not encrypted; it contains all keys of the server"
	if got.Encrypted {
		how = "encrypted"
	}
	_, err := fmt.Fprintf(b.Out, "Backup: %s (%d bytes, %s)\nPublic key of the server: %s\n", got.File, got.Bytes, how, got.PublicKey)
	return err
}

// readTarget returns a copy target of a backup configuration.
func readTarget(config, name string) (serverbackup.Target, error) {
	if config == "" {
		return serverbackup.Target{}, diag.Refuse(idFlag, "a copy target needs the file that describes it", "set --backup-config too")
	}
	c, err := serverbackup.LoadConfig(config)
	if err != nil {
		return serverbackup.Target{}, err
	}
	return c.Target(name)
}
