package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/lifecycle"
)

func (a *app) createManifestCmd() *cobra.Command {
	var r lifecycle.ManifestRequest
	var out, runtime, kubeconfig string
	var fromCluster bool
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Write what a bundle is to hold: of a version, or for a cluster that runs",
		Long: `Writes the manifest of a bundle, for "slipway bundle build --manifest": the
version, the architectures, the components that go with it, and the images that it
is to have besides.

With --from-cluster these are those of a cluster that runs, however it was made:
it asks the API that the kubeconfig leads to for nodes and pods, and changes
nothing. Images are named with the digest that runs.`,
		Example: `  slipway create manifest --kubernetes v1.36.4 --arch amd64,arm64 --out manifest.yaml
  slipway create manifest --from-cluster --kubeconfig admin.conf --out manifest.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Docker = runtime == "docker"
			if !r.Docker && runtime != "containerd" {
				return problem(idUsage, "name containerd or docker", "there is no runtime %q", runtime)
			}
			if !fromCluster && kubeconfig != "" {
				return problem(idUsage, "see: slipway create manifest --help", "--kubeconfig goes with --from-cluster")
			}
			if fromCluster {
				conf, err := a.clusterConfig(cmd.Context(), kubeconfig)
				if err != nil {
					return err
				}
				r.Kubeconfig = conf
			}
			svc, err := a.svc(cmd.Context())
			if err != nil {
				return err
			}
			text, warnings, err := svc.Manifest(cmd.Context(), r)
			if err != nil {
				return refuse(err)
			}
			a.warn(warnings)
			return a.writeConfig(out, text, "slipway bundle build --manifest")
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.Kubernetes, "kubernetes", "", "Kubernetes `version` (default: see version --supported)")
	program.CompleteVersion(cmd, a.catalogue)
	f.StringSliceVar(&r.Arches, "arch", nil, "`architectures`: amd64, arm64 (default: this machine's)")
	f.StringVar(&runtime, "runtime", "containerd", "container runtime it must serve: containerd; docker adds that to it")
	f.StringArrayVar(&r.Images, "image", nil, "one more `image`, by its whole name (repeatable)")
	f.StringVar(&out, "out", "", "write to this `file` instead of standard output")
	f.BoolVar(&fromCluster, "from-cluster", false, "of a cluster that runs")
	f.StringVar(&kubeconfig, "kubeconfig", "", "with --from-cluster: the `file` that leads to it (default: KUBECONFIG, or ~/.kube/config)")
	for _, said := range []string{"kubernetes", "arch", "runtime"} {
		cmd.MarkFlagsMutuallyExclusive("from-cluster", said)
	}
	program.CompleteFlag(cmd, "runtime", "containerd", "docker")
	return cmd
}
