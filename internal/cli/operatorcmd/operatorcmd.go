// Package operatorcmd is the command `slipway operator`: it installs the operator in a Kubernetes cluster, upgrades and
// removes it, and makes its image.
package operatorcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/bundle/operatorimage"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/operator/install"
	"slipway.dev/slipway/internal/operator/manifests"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/version"
)

// defaultWait is the default time until the Pods of the operator must be ready.
const defaultWait = 3 * time.Minute

// A command has what the subcommands share.
type command struct {
	program.Program
	kubeconfig, context string
}

// NewCommand returns the command.
func NewCommand(p program.Program) *cobra.Command {
	c := &command{Program: p}
	cmd := program.NewParentCommand("operator", "Install the controllers in a Kubernetes cluster")
	cmd.Long = `Installs the operator: the controllers of Slipway as Pods of a Kubernetes cluster.
Clusters are then objects of this cluster. A management server (slipwayd server)
has the same controllers and needs no cluster.`
	f := cmd.PersistentFlags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: $KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&c.context, "context", "", "`context` of the kubeconfig (default: its current context)")
	cmd.AddCommand(newInstallCommand(c, false), newInstallCommand(c, true), newUninstallCommand(c), newStatusCommand(c),
		newManifestsCommand(c), newImageCommand(c))
	return cmd
}

// newInstaller returns the installer for the selected cluster. It reports what it does.
func (c *command) newInstaller() (*install.Installer, error) {
	i, err := install.Open(c.kubeconfig, c.context)
	if err != nil {
		return nil, err
	}
	i.Report = func(text string) { fmt.Fprintln(c.Err, text) }
	return i, nil
}

// addOptionFlags adds the flags of an installation.
func addOptionFlags(cmd *cobra.Command, o *manifests.Options) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.Image, "image", "", "`image` of the operator (default: "+operatorimage.RefOf("VERSION")+")")
	f.StringSliceVar(&o.PullSecrets, "pull-secret", nil,
		"`name`s of Secrets in namespace "+manifests.Namespace+" with logins of registries")
	f.Int32Var(&o.Replicas, "replicas", 0, "`number` of Pods (default 2)")
	f.StringVar(&o.Executor, "executor", "",
		"the `executor` of operations: "+manifests.ExecutorInProcess+" (the default: in a Pod of the operator), or "+
			manifests.ExecutorJob+" (one Job each)")
	f.StringVar(&o.DataClaim, "data-claim", "",
		"`name` of a PersistentVolumeClaim for bundles, backup sets and the archive (default: files are deleted with their Pod)")
	f.StringVar(&o.APIURL, "api-url", "", "`URL` of the API of this cluster for people (default: from the kubeconfig)")
}

func newInstallCommand(c *command, isUpgrade bool) *cobra.Command {
	var o manifests.Options
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "install", Short: "Install the operator", Args: cobra.NoArgs,
		Long: `Installs the definitions, the rights, and a Deployment in namespace ` + manifests.Namespace + `,
and waits until it is ready. A second run changes what differs.

The nodes need the image of the operator: in a cluster of Slipway from its bundle
(slipway bundle build --operator), in others from a registry (slipway operator image).`,
		Example: `  slipway operator install --kubeconfig prod.kubeconfig
  slipway operator install --image registry.example.com/slipwayd:v1 --pull-secret registry`,
	}
	if isUpgrade {
		cmd.Use, cmd.Short = "upgrade", "Upgrade the operator"
		cmd.Long = `Upgrades the operator to the version of this program, and waits until it is ready.
Running operations stop at a safe point, and the new version resumes them.`
		cmd.Example = ""
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Version = version.Get().Version
		if err := o.CheckValues(); err != nil {
			return err
		}
		i, err := c.newInstaller()
		if err != nil {
			return err
		}
		if err := i.Install(cmd.Context(), o, isUpgrade); err != nil {
			return err
		}
		if limit > 0 {
			if err := i.WaitUntilReady(cmd.Context(), limit); err != nil {
				return err
			}
		}
		return c.writeStatus(cmd.Context(), i)
	}
	addOptionFlags(cmd, &o)
	cmd.Flags().DurationVar(&limit, "wait", defaultWait, "how `long` to wait until the operator is ready; 0 does not wait")
	return cmd
}

func newUninstallCommand(c *command) *cobra.Command {
	var withData bool
	cmd := program.MarkTextOnly(&cobra.Command{
		Use: "uninstall", Short: "Remove the operator", Args: cobra.NoArgs,
		Long: `Removes the operator. Its clusters run on. Clusters, operations and the namespace
` + manifests.Namespace + ` remain, so that an operator that is installed later continues.

--with-data removes them too, and is refused while there are Clusters.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := c.newInstaller()
			if err != nil {
				return err
			}
			question := "Remove the operator?"
			if withData {
				question = "Remove the operator, its finished operations, and the definitions of Clusters?"
			}
			if err := c.AskYesNo(cmd.Context(), question); err != nil {
				return err
			}
			return i.Uninstall(cmd.Context(), withData)
		},
	})
	cmd.Flags().BoolVar(&withData, "with-data", false, "also remove the definitions, the finished operations and the namespace")
	return cmd
}

func newStatusCommand(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the state of the operator", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := c.newInstaller()
			if err != nil {
				return err
			}
			return c.writeStatus(cmd.Context(), i)
		},
	}
}

// writeStatus writes the state of the operator.
func (c *command) writeStatus(ctx context.Context, i *install.Installer) error {
	s, err := i.Status(ctx)
	if err != nil {
		return err
	}
	return c.WriteResult(s, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		orNone := func(text string) string {
			if text == "" {
				return "none"
			}
			return text
		}
		webhook := "the API server verifies it"
		if !s.HasWebhook {
			webhook = "it has no certificate yet"
		}
		fmt.Fprintf(t, "Version\t%s\nImage\t%s\nPods\t%d ready, %d current, %d wanted\nProcesses\t%s\nWebhook\t%s\nClusters\t%d\n",
			s.Version, s.Image, s.Ready, s.Updated, s.Replicas, orNone(strings.Join(s.Processes, ", ")), webhook, s.Clusters)
		for _, name := range slices.Sorted(maps.Keys(s.Definitions)) {
			fmt.Fprintf(t, "Definition\t%s %s\n", name, s.Definitions[name])
		}
		for _, text := range s.Problems {
			fmt.Fprintf(t, "Problem\t%s\n", diag.EscapeControls(text, ""))
		}
		return t.Flush()
	})
}

func newManifestsCommand(c *command) *cobra.Command {
	var o manifests.Options
	cmd := program.MarkTextOnly(&cobra.Command{
		Use: "manifests", Short: "Write the objects of the operator as YAML", Args: cobra.NoArgs,
		Long: "Writes the objects that 'slipway operator install' applies, for other tools.",
		RunE: func(*cobra.Command, []string) error {
			o.Version = version.Get().Version
			text, err := manifests.Render(o)
			if err != nil {
				return err
			}
			_, err = c.Out.Write(text)
			return err
		},
	})
	addOptionFlags(cmd, &o)
	return cmd
}

func newImageCommand(c *command) *cobra.Command {
	var from, out string
	cmd := program.MarkTextOnly(&cobra.Command{
		Use: "image", Short: "Make the image of the operator", Args: cobra.NoArgs,
		Long: `Makes the container image of the operator from a slipwayd program, as an archive
that container runtimes and registry clients read.`,
		Example: `  slipway operator image --program bin/slipwayd --out slipwayd.tar
  ctr --namespace k8s.io images import slipwayd.tar`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.writeImage(cmd.Context(), from, out) },
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&from, "program", defaultProgram(), "the slipwayd `program` for Linux")
	f.StringVar(&out, "out", "slipwayd.tar", "`file` for the archive")
	return cmd
}

// defaultProgram returns the path of slipwayd in the directory of this program.
func defaultProgram() string {
	self, err := os.Executable()
	if err != nil {
		return "slipwayd"
	}
	return filepath.Join(filepath.Dir(self), "slipwayd")
}

// writeImage writes the image as an archive. It replaces the file only when the new one is complete.
func (c *command) writeImage(ctx context.Context, from, out string) (err error) {
	arch, err := operatorimage.FindArch(from)
	if err != nil {
		return err
	}
	dir, err := safefile.MkdirTemp(filepath.Dir(out), ".slipwayd-*", 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, safefile.RemoveAll(dir)) }()
	image, err := operatorimage.Make(ctx, from, arch, dir)
	if err != nil {
		return err
	}
	ref := operatorimage.RefOf(version.Get().Version)
	tmp := filepath.Join(dir, "image.tar")
	if err := errors.Join(operatorimage.WriteArchive(tmp, ref, image), os.Rename(tmp, out)); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Out, "%s\nimage %s, linux/%s, %s\n", out, ref, arch, strings.TrimSpace(digest.String()))
	return err
}
