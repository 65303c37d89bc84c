package cli

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/safefile"
)

func (a *app) dumpCmd() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "dump [NAME]", Short: "Collect all that helps to find out what is wrong, without secrets",
		Long: `Writes a support bundle (.tar.zst): the description of the cluster, its operations
with plans and journals, what cluster-info tells, facts and logs of every host
(kubelet, containerd, the cluster's own pods), and nodes, pods and events from
the API. What cannot be reached, or not within three minutes, and what is left out
of long lists is named in missing.txt.

Passwords, keys and tokens are taken out: whatever has the name or the looks of
one, in logs too. Of pods, the values of environment variables and headers, how
programs are called, and annotations are taken out whole, but for the cluster's
own. What programs of yours write to logs may hold more: look before you send it.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			svc, name, err := a.chosen(ctx, args)
			if err != nil {
				return err
			}
			if out == "" {
				out = name + "-" + a.env.Now().UTC().Format("20060102-150405") + ".tar.zst"
			}
			return a.dump(ctx, svc, name, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write it to this `file` (default NAME-TIME.tar.zst)")
	_ = cmd.MarkFlagFilename("out") // the flag is there
	return cmd
}

// dump writes the bundle under another name until it is whole.
func (a *app) dump(ctx context.Context, svc lifecycle.Service, name, out string) (err error) {
	if _, err := os.Lstat(out); err == nil && !a.yes {
		return problem(idFile, "name another file, or overwrite it with --yes", "%s is there already", out)
	}
	f, err := safefile.CreateTemp(filepath.Dir(out), ".slipway-dump-*")
	if err != nil {
		return problem(idFile, "name a file in a directory that can be written to", "writing %s: %v", out, unwrapPath(err))
	}
	defer func() {
		if err != nil {
			_, _ = f.Close(), safefile.Remove(f.Name()) // the first error says more
		}
	}()
	var progress event.Sink
	if a.Size != nil {
		v := a.people(nil)
		defer v.Close()
		defer a.talk.through(v)()
		progress = v
	}
	if err := svc.Dump(ctx, name, f, progress); err != nil {
		return err
	}
	d, err := a.directories()
	if err == nil && d.Owner != nil {
		err = f.Chown(d.Owner.UID, d.Owner.GID)
	}
	if err != nil {
		return err
	}
	if err := safefile.Commit(f, out); err != nil {
		return err
	}
	if a.format != view.Text {
		return view.Data(a.Out, a.format, map[string]string{"cluster": name, "file": out})
	}
	a.say("Wrote %s.\nLook into it: tar --zstd -tf %s", out, out)
	return nil
}
