package cli

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle"
)

func (a *app) kubeconfigCmd() *cobra.Command {
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
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.clusterNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !merge && (use || replace) {
				return problem(idUsage, "add --merge, or leave out --use and --replace", "--use and --replace require --merge")
			}
			ctx := cmd.Context()
			svc, name, err := a.chosen(ctx, args)
			if err != nil {
				return err
			}
			admin, warnings, err := svc.Kubeconfig(ctx, name, live)
			a.warn(warnings)
			if err != nil {
				return err
			}
			access := kubeconfig.Access{Cluster: name, Context: called, Admin: admin}
			if err := access.Check(); err != nil {
				return err
			}
			switch {
			case merge:
				return a.mergeKubeconfig(ctx, svc, access, kubeconfig.MergeOptions{Use: use, Replace: replace})
			case out != "":
				return a.writeKubeconfig(out, access)
			case called != "":
				return problem(idUsage, "slipway kubeconfig "+name+" --merge --context "+called, "--context requires --merge or --out")
			}
			return a.document(admin)
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

// ownKubeconfig returns the path of the caller's kubeconfig, and its owner.
func (a *app) ownKubeconfig() (path string, to *fileowner.Owner, err error) {
	d, err := a.directories()
	return kubeconfig.Path(d.User), d.Owner, err
}

func (a *app) mergeKubeconfig(ctx context.Context, svc lifecycle.Service, access kubeconfig.Access, o kubeconfig.MergeOptions) error {
	path, to, err := a.ownKubeconfig()
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
	if a.format != view.Text {
		return view.Data(a.Out, a.format, map[string]string{
			"cluster": access.Cluster, "context": cmp.Or(access.Context, access.Cluster), "file": path,
		})
	}
	a.say("Merged into %s.\nNext: kubectl --context %s get nodes", path, cmp.Or(access.Context, access.Cluster))
	return nil
}

func (a *app) writeKubeconfig(path string, access kubeconfig.Access) error {
	if _, err := os.Lstat(path); err == nil && !a.yes {
		return problem(idFile, "give another file, or use --yes to overwrite it", "%s already exists", path)
	}
	d, err := a.directories()
	if err != nil {
		return err
	}
	if err := kubeconfig.Write(path, access, d.Owner); err != nil {
		return err
	}
	if a.format != view.Text {
		return view.Data(a.Out, a.format, map[string]string{"cluster": access.Cluster, "file": path})
	}
	a.say("Wrote %s.\nNext: export KUBECONFIG=%s", path, path)
	return nil
}

// forget returns a function that removes a deleted cluster from all kubeconfigs that
// Slipway merged it into. forget itself looks up these files, because the delete removes
// them from the state.
func (a *app) forget(ctx context.Context, name string) func() {
	nothing := func() {}
	svc, err := a.svc(ctx)
	if err != nil {
		return nothing
	}
	admin, _, err := svc.Kubeconfig(ctx, name, false)
	if err != nil {
		return nothing // without an admin kubeconfig, nothing was merged
	}
	path, to, err := a.ownKubeconfig()
	if err != nil {
		return nothing
	}
	paths, err := svc.Merged(name)
	if err != nil {
		a.say("warning: contexts of cluster %s may remain in kubeconfigs: %v", name, err)
	}
	if at, err := filepath.Abs(path); err == nil && !slices.Contains(paths, at) { // merged by an earlier version
		paths = append(paths, at)
	}
	return func() {
		records, err := a.service.Clusters(ctx)
		if err == nil && recorded(records, name) {
			return // a rollback kept the cluster
		}
		access := kubeconfig.Access{Cluster: name, Admin: admin}
		for _, path := range paths {
			if err := kubeconfig.Remove(ctx, path, access, to); err != nil {
				a.say("warning: context %s remains in %s: %v", name, path, err)
			}
		}
	}
}

func recorded(list []lifecycle.ClusterSummary, name string) bool {
	for _, c := range list {
		if c.Name == name {
			return true
		}
	}
	return false
}
