package cli

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/lifecycle/access"
)

func newCreateManifestCommand(c describeCommand) *cobra.Command {
	var r access.ManifestRequest
	var out, runtime, kubeconfig string
	var fromCluster bool
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Write a bundle manifest",
		Long: `Writes a bundle manifest for "slipway bundle build --manifest": the Kubernetes
version, the architectures, the components of that version, and additional images.

With --from-cluster, writes the manifest for a running cluster, no matter how it was
created. The command reads nodes and pods from the API of the kubeconfig and changes
nothing. Images have the digests that are running.`,
		Example: `  slipway create manifest --kubernetes v1.36.4 --arch amd64,arm64 --out manifest.yaml
  slipway create manifest --from-cluster --kubeconfig admin.conf --out manifest.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Docker = runtime == "docker"
			if !r.Docker && runtime != "containerd" {
				return newProblem(idUsage, "use --runtime containerd or docker", "unknown runtime %q", runtime)
			}
			if !fromCluster && kubeconfig != "" {
				return newProblem(idUsage, "see: slipway create manifest --help", "--kubeconfig requires --from-cluster")
			}
			if fromCluster {
				conf, err := c.readKubeconfig(cmd.Context(), kubeconfig)
				if err != nil {
					return err
				}
				r.Kubeconfig = conf
			}
			svc, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			text, warnings, err := svc.Manifest(cmd.Context(), r)
			if err != nil {
				return markRefused(err)
			}
			c.printDiagnostics(warnings)
			return c.writeGeneratedFile(out, text, "slipway bundle build --manifest")
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.Kubernetes, "kubernetes", "", "Kubernetes `version` (default: see version --supported)")
	program.CompleteVersion(cmd, c.loadCatalogue)
	f.StringSliceVar(&r.Arches, "arch", nil, "`architectures`: amd64, arm64 (default: this machine's)")
	f.StringVar(&runtime, "runtime", "containerd", "the container runtime: containerd, or docker (includes containerd)")
	f.StringArrayVar(&r.Images, "image", nil, "an additional `image`, with its full name (repeatable)")
	f.StringVar(&out, "out", "", "write to this `file` instead of standard output")
	f.BoolVar(&fromCluster, "from-cluster", false, "write the manifest for a running cluster")
	f.StringVar(&kubeconfig, "kubeconfig", "", "with --from-cluster: the cluster's kubeconfig `file` (default: KUBECONFIG, or ~/.kube/config)")
	for _, flag := range []string{"kubernetes", "arch", "runtime"} {
		cmd.MarkFlagsMutuallyExclusive("from-cluster", flag)
	}
	program.CompleteFlag(cmd, "runtime", "containerd", "docker")
	return cmd
}
