package cli

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/safefile"
)

// dumpCommand holds what "dump" needs.
type dumpCommand struct {
	*workspace
	clusters *clusterChooser
	open     opener[inspector]
}

func newDumpCommand(c dumpCommand) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "dump [NAME]", Short: "Write a support bundle without secrets",
		Long: `Writes a support bundle (.tar.zst) that contains:
  - The description of the cluster.
  - Its operations with plans and journals.
  - The output of cluster-info.
  - Facts and logs of every host (kubelet, containerd, the cluster's own pods).
  - Nodes, pods and events from the API.
The file missing.txt in the bundle lists what could not be read within three minutes,
and what was omitted from long lists. The command warns about hosts whose data is
missing, and its exit code is 0 if the bundle was written.

Slipway removes passwords, keys and tokens: everything that has the name or the form
of a secret, also in logs. In pods it also removes the values of environment variables
and headers, command lines, and annotations. Command lines of the control plane's
static pods and well-known annotations are kept. Logs of your programs may contain other
secrets: check the bundle before you send it.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			svc, name, err := openForCluster(ctx, c.clusters, c.open, args)
			if err != nil {
				return err
			}
			if out == "" {
				out = name + "-" + c.env.Now().UTC().Format("20060102-150405") + ".tar.zst"
			}
			return c.writeDump(ctx, svc, name, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write the bundle to this `file` (default NAME-TIME.tar.zst)")
	_ = cmd.MarkFlagFilename("out") // the flag is there
	return cmd
}

// A dumpResult is the output of "dump" as JSON and YAML.
type dumpResult struct {
	Cluster  string    `json:"cluster"`
	File     string    `json:"file"`
	Warnings diag.List `json:"warnings"`
}

// writeDump writes the bundle to a temporary file, and renames it when it is complete.
func (c dumpCommand) writeDump(ctx context.Context, svc inspector, name, out string) (err error) {
	if _, err := os.Lstat(out); err == nil && !c.yes {
		return newProblem(idFile, "give another file, or use --yes to overwrite it", "%s already exists", out)
	}
	f, err := safefile.CreateTemp(filepath.Dir(out), ".slipway-dump-*")
	if err != nil {
		return newProblem(idFile, "give a file in a writable directory", "writing %s: %v", out, unwrapPath(err))
	}
	defer func() {
		if err != nil {
			_, _ = f.Close(), safefile.Remove(f.Name()) // the first error is more useful
		}
	}()
	var progress event.Sink
	if c.Size != nil {
		v := c.newHumanView(nil)
		defer v.Close()
		defer c.logs.redirect(v)()
		progress = v
	}
	warnings, err := svc.Dump(ctx, name, f, progress)
	if err != nil {
		return err
	}
	d, err := c.findDirectories()
	if err == nil && d.Owner != nil {
		err = f.Chown(d.Owner.UID, d.Owner.GID)
	}
	if err != nil {
		return err
	}
	if err := safefile.Commit(f, out); err != nil {
		return err
	}
	if c.format != view.Text {
		return view.WriteData(c.Out, c.format, dumpResult{Cluster: name, File: out, Warnings: append(diag.List{}, warnings...)})
	}
	view.WriteDiagnostics(c.Err, warnings, c.errStyle())
	c.printMessage("Wrote %s.\nNext: tar --zstd -tf %s", out, out)
	return nil
}
