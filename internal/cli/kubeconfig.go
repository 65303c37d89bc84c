package cli

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/kubeconfig"
)

// kubeconfigCommand holds what "kubeconfig" needs.
type kubeconfigCommand struct {
	*workspace
	clusters *clusterChooser
	open     opener[clusterAccess]
}

func newKubeconfigCommand(c kubeconfigCommand) *cobra.Command {
	var (
		merge, use, replace, live bool
		out, called               string
	)
	cmd := &cobra.Command{
		Use:   "kubeconfig [NAME]",
		Short: "Print, write or merge the admin kubeconfig",
		Long: `Prints a cluster's admin kubeconfig. With --out, writes it to a file. With --merge,
adds it to your own kubeconfig as a context with the cluster's name or the name in
--context; other entries are not changed. "slipway delete cluster" removes the
context again.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.clusters.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !merge && (use || replace) {
				return newProblem(idUsage, "add --merge, or leave out --use and --replace", "--use and --replace require --merge")
			}
			ctx := cmd.Context()
			svc, name, err := openForCluster(ctx, c.clusters, c.open, args)
			if err != nil {
				return err
			}
			admin, warnings, err := svc.Kubeconfig(ctx, name, live)
			c.printDiagnostics(warnings)
			if err != nil {
				return err
			}
			access := kubeconfig.Access{Cluster: name, Context: called, Admin: admin}
			if err := access.CheckUsable(); err != nil {
				return err
			}
			switch {
			case merge:
				return c.mergeKubeconfig(ctx, svc, access, kubeconfig.MergeOptions{Use: use, Replace: replace})
			case out != "":
				return c.writeKubeconfig(out, access)
			case called != "":
				return newProblem(idUsage, "slipway kubeconfig "+name+" --merge --context "+called, "--context requires --merge or --out")
			}
			return c.writeDocument(admin)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&merge, "merge", false, "merge the kubeconfig into KUBECONFIG, or ~/.kube/config")
	f.BoolVar(&use, "use", false, "with --merge: make it the current context")
	f.BoolVar(&replace, "replace", false, "with --merge: replace a context of the same name that belongs to another cluster")
	f.StringVar(&called, "context", "", "with --merge or --out: the `name` of the context (default: the cluster's name)")
	f.StringVar(&out, "out", "", "write the kubeconfig to this `file`")
	f.BoolVar(&live, "live", false, "read it from a control plane instead of from Slipway's state")
	cmd.MarkFlagsMutuallyExclusive("merge", "out")
	return cmd
}

func (c kubeconfigCommand) mergeKubeconfig(ctx context.Context, svc clusterAccess, access kubeconfig.Access,
	o kubeconfig.MergeOptions,
) error {
	path, to, err := c.findOwnKubeconfig()
	if err != nil {
		return err
	}
	at, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	// Before the merge: delete cluster must find the entries also after a crash.
	if err := svc.AddMerged(access.Cluster, at); err != nil {
		return err
	}
	if err := kubeconfig.Merge(ctx, path, access, o, to); err != nil {
		return err
	}
	if c.format != view.Text {
		return view.WriteData(c.Out, c.format, map[string]string{
			"cluster": access.Cluster, "context": cmp.Or(access.Context, access.Cluster), "file": path,
		})
	}
	c.printMessage("Merged into %s.\nNext: kubectl --context %s get nodes", path, cmp.Or(access.Context, access.Cluster))
	return nil
}

func (c kubeconfigCommand) writeKubeconfig(path string, access kubeconfig.Access) error {
	if _, err := os.Lstat(path); err == nil && !c.yes {
		return newProblem(idFile, "give another file, or use --yes to overwrite it", "%s already exists", path)
	}
	d, err := c.findDirectories()
	if err != nil {
		return err
	}
	if err := kubeconfig.Write(path, access, d.Owner); err != nil {
		return err
	}
	if c.format != view.Text {
		return view.WriteData(c.Out, c.format, map[string]string{"cluster": access.Cluster, "file": path})
	}
	c.printMessage("Wrote %s.\nNext: export KUBECONFIG=%s", path, path)
	return nil
}
