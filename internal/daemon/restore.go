package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/serverbackup"
)

// A restoreCommand has the flags of `slipwayd restore`.
type restoreCommand struct {
	*program
	options                      serverbackup.RestoreOptions
	signedBy                     []string
	identities                   []string
	from, config                 string
	replace, unverified, keyOnly bool
}

func newRestoreCommand(p *program) *cobra.Command {
	r := &restoreCommand{program: p}
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Restore a server from a backup", Args: cobra.ExactArgs(1),
		Long: `Makes a data directory from a backup. The server must not be running. The whole
backup is verified before anything is changed.

The restored server starts with its controllers on hold, because its objects are
older than the real clusters. Compare them, and then run 'slipwayd release'.

Existing data is refused. With --replace, the existing directory is kept under
another name; after a failure, it has its name again.`,
		Example: `  slipwayd restore server.tar --signed-by ed25519:…
  slipwayd restore server.tar --replace
  slipwayd restore slipwayd_….tar.age --from nas --backup-config backup.yaml --identity key.txt`,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args[0]) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&r.replace, "replace", false, "replace existing data, which is kept under another name; its key is trusted")
	f.StringArrayVar(&r.signedBy, "signed-by", nil, "public `key` that 'slipwayd backup' printed; can be repeated")
	f.BoolVar(&r.unverified, "unverified", false,
		"accept a backup without a trusted signature; its author then decides all objects, users and keys of the server")
	f.StringArrayVar(&r.identities, "identity", nil, "age identity `file` that decrypts the backup; can be repeated")
	f.BoolVar(&r.keyOnly, "keys-only", false, "restore only certificates and keys, for a server with external etcd")
	f.StringVar(&r.from, "from", "", "copy target of the backup configuration, by `name`; FILE is then a name there")
	f.StringVar(&r.config, "backup-config", "", "`file` with the targets of backups")
	return cmd
}

func (r *restoreCommand) run(ctx context.Context, file string) (err error) {
	r.options = serverbackup.RestoreOptions{
		File: file, Unverified: r.unverified, KeysOnly: r.keyOnly,
		Kubernetes: controlplane.KubernetesVersion(), RestoreEtcd: controlplane.RestoreSnapshot,
	}
	for _, key := range r.signedBy {
		if err := r.options.TrustKey(key); err != nil {
			return err
		}
	}
	if r.options.Identities, err = serverbackup.ReadIdentities(r.identities); err != nil {
		return err
	}
	kept, err := r.options.UseDataDir(r.dataDir, r.replace)
	if err != nil {
		return err
	}
	if r.from != "" {
		dir, err := os.MkdirTemp("", "slipwayd-restore-")
		if err != nil {
			return fmt.Errorf("creating a temporary directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		if r.options.File, err = r.fetch(ctx, filepath.Join(dir, filepath.Base(file)), file); err != nil {
			return err
		}
	}
	h, err := serverbackup.Restore(ctx, r.options)
	if err != nil {
		return err
	}
	return r.printResult(h, kept())
}

// fetch fetches a backup from a copy target to a file.
func (r *restoreCommand) fetch(ctx context.Context, to, name string) (string, error) {
	target, err := readTarget(r.config, r.from)
	if err != nil {
		return "", err
	}
	from, err := target.Open(ctx)
	if err != nil {
		return "", fmt.Errorf("opening target %s: %w", r.from, err)
	}
	defer from.Close()
	return serverbackup.Fetch(ctx, from, name, to)
}

// printResult prints what was restored and the next step.
func (r *restoreCommand) printResult(h *serverbackup.Header, kept string) error {
	what := "data, certificates and keys"
	if r.keyOnly {
		what = "certificates and keys"
	}
	taken := h.Taken.Local().Format("2006-01-02 15:04:05 MST")
	fmt.Fprintf(r.Out, "Restored %s of server %s, taken at %s, to %s\n", what, h.ServerID, taken, r.dataDir)
	if kept != "" {
		fmt.Fprintf(r.Out, "The previous data is in %s\n", kept)
	}
	if r.keyOnly {
		_, err := fmt.Fprintln(r.Out, "Next: start the server with --etcd-servers")
		return err
	}
	fmt.Fprintln(r.Out, "The controllers are on hold.")
	_, err := fmt.Fprintln(r.Out, "Next: start the server, compare its objects with the real clusters, and run 'slipwayd release'")
	return err
}
