package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/server/serverbackup"
)

// A listCommand has the flags of `slipwayd list-backups`.
type listCommand struct {
	*program
	directory, target, config string
	signedBy, output          string
	identities                []string
}

// A backupList is the result of `slipwayd list-backups`.
type backupList struct {
	Place     string               `json:"place"`
	PublicKey string               `json:"publicKey"`
	Backups   []serverbackup.Entry `json:"backups"`
}

func newListBackupsCommand(p *program) *cobra.Command {
	l := &listCommand{program: p}
	cmd := &cobra.Command{
		Use: "list-backups", Short: "List backups of the server", Args: cobra.NoArgs,
		Long: `Lists the backups in a directory or at a copy target, newest first. The server may
be running. States:
  verified    The key of the server has signed the backup.
  named       The key has signed the name. The content is encrypted or elsewhere.
  unverified  Another key, or none, has signed it.
  damaged     It cannot be restored.`,
		Example: `  slipwayd list-backups
  slipwayd list-backups --from nas --backup-config /etc/slipwayd/backup.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&l.directory, "directory", "",
		"`directory` with backups (default: as in the backup configuration, or backups in the data directory)")
	f.StringVar(&l.target, "from", "", "copy target of the backup configuration, by `name`")
	f.StringVar(&l.config, "backup-config", "", "`file` with the targets of backups")
	f.StringVar(&l.signedBy, "signed-by", "", "public `key` that verifies the backups (default: the key in the data directory)")
	f.StringArrayVar(&l.identities, "identity", nil, "age identity `file` that decrypts backups; can be repeated")
	f.StringVarP(&l.output, "output", "o", "text", "output `format`: text or json")
	cmd.MarkFlagsMutuallyExclusive("directory", "from")
	return cmd
}

func (l *listCommand) run(ctx context.Context) error {
	if err := checkOutput(l.output); err != nil {
		return err
	}
	v, err := l.newVerifier()
	if err != nil {
		return err
	}
	list := backupList{PublicKey: v.Key.String()}
	if l.target != "" {
		list.Place, list.Backups, err = l.listTarget(ctx, v)
	} else {
		list.Place, err = l.findDirectory()
		if err == nil {
			list.Backups, err = v.ListDirectory(ctx, list.Place)
		}
	}
	if err != nil {
		return err
	}
	if l.output == "json" {
		return l.writeJSON(list)
	}
	return l.printList(list)
}

// newVerifier returns the keys that verify backups.
func (l *listCommand) newVerifier() (v serverbackup.Verifier, err error) {
	if v.Identities, err = serverbackup.ReadIdentities(l.identities); err != nil {
		return v, err
	}
	if l.signedBy != "" {
		v.Key, err = serverbackup.ParseTrustedKey(l.signedBy)
		return v, err
	}
	v.Signer, err = serverbackup.ReadSigningKey(filepath.Join(l.dataDir, "keys"))
	v.Key = v.Signer.PublicKey()
	return v, err
}

// findDirectory returns the directory to list.
func (l *listCommand) findDirectory() (string, error) {
	if l.directory != "" {
		return l.directory, nil
	}
	if l.config != "" {
		c, err := serverbackup.LoadConfig(l.config)
		if err != nil {
			return "", err
		}
		if c.Directory != "" {
			return c.Directory, nil
		}
	}
	return filepath.Join(l.dataDir, "backups"), nil
}

func (l *listCommand) listTarget(ctx context.Context, v serverbackup.Verifier) (string, []serverbackup.Entry, error) {
	target, err := readTarget(l.config, l.target)
	if err != nil {
		return "", nil, err
	}
	from, err := target.Open(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("opening target %s: %w", l.target, err)
	}
	defer from.Close()
	list, err := v.ListTarget(ctx, from)
	return "target " + l.target, list, err
}

// printList prints the backups for people.
func (l *listCommand) printList(list backupList) error {
	if len(list.Backups) == 0 {
		_, err := fmt.Fprintf(l.Out, "No backups in %s\n", list.Place)
		return err
	}
	fmt.Fprintf(l.Out, "Backups in %s\n\n", list.Place)
	w := tabwriter.NewWriter(l.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TAKEN\tSTATE\tENCRYPTED\tBYTES\tNAME")
	for _, e := range list.Backups {
		taken := e.Taken.Local().Format("2006-01-02 15:04:05")
		fmt.Fprintf(w, "%s\t%s\t%t\t%d\t%s\n", taken, e.State, e.Encrypted, e.Bytes, escapeControls(e.Name))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range list.Backups {
		if e.Problem != "" {
			fmt.Fprintln(l.Err, "warning: "+escapeControls(e.Name+": "+e.Problem))
		}
	}
	return nil
}
