package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/live"
	"slipway.dev/slipway/internal/spec/sample"
)

// describeCommand holds what "create config" and "create manifest" need.
type describeCommand struct {
	*workspace
	open opener[describer]
}

// configFlags holds the flags of create config.
type configFlags struct {
	sample.Options
	hosts []string
	out   string

	fromCluster            bool
	kubeconfig, user, keys string
}

func newCreateConfigCommand(c describeCommand) *cobra.Command {
	var o configFlags
	cmd := &cobra.Command{
		Use:   "config [NAME]",
		Short: "Write a cluster file",
		Long: `Writes a complete cluster file with a comment for each line: for the hosts of
--host, or as an example.

With --from-cluster, describes a running cluster that was created with kubeadm:
by Slipway, by another program or manually. It reads the API of the kubeconfig,
changes nothing, and does not connect to hosts. Information that the API does not
have, such as how to log in to hosts, is marked as TODO.`,
		Example: `  slipway create config --name prod \
      --host root@10.0.0.11=control-plane --host root@10.0.0.12=worker --out prod.yaml
  slipway create config --from-cluster --kubeconfig admin.conf --user ops --out prod.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if o.Name != "" && o.Name != args[0] {
					return newProblem(idNameMismatch, "give one name", "two cluster names are given: %s and %s", args[0], o.Name)
				}
				o.Name = args[0]
			}
			write := c.writeSample
			if o.fromCluster {
				if err := refuseKubeconfigAsName(args, o); err != nil {
					return err
				}
				write = c.describeCluster
			}
			text, next, err := write(cmd.Context(), o)
			if err != nil {
				return err
			}
			return c.writeGeneratedFile(o.out, text, next)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&o.hosts, "host", nil, "a `HOST`: [user@]address[:port]=role[,role...][,name=NAME] (repeatable)")
	f.StringVar(&o.Name, "name", "", "the cluster's name")
	f.StringVar(&o.Kubernetes, "kubernetes", "", "Kubernetes `version`")
	program.CompleteVersion(cmd, c.loadCatalogue)
	f.StringVar(&o.out, "out", "", "write to this `file` instead of standard output")
	f.BoolVar(&o.fromCluster, "from-cluster", false, "describe a running cluster")
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		"with --from-cluster: the cluster's kubeconfig `file` (default: KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&o.user, "user", "", "with --from-cluster: the `user` for SSH logins to the hosts")
	f.StringVar(&o.keys, "private-key", "", "with --from-cluster: the private key `file` for SSH logins to the hosts")
	for _, sample := range []string{"host", "kubernetes"} {
		cmd.MarkFlagsMutuallyExclusive("from-cluster", sample)
	}
	return cmd
}

// writeSample returns a complete cluster file, and the next command to run with it.
func (c describeCommand) writeSample(_ context.Context, o configFlags) (text []byte, next string, err error) {
	if o.kubeconfig != "" || o.user != "" || o.keys != "" {
		return nil, "", newProblem(idUsage, "see: slipway create config --help", "--kubeconfig, --user and --private-key require --from-cluster")
	}
	for _, h := range o.hosts {
		flag, err := spec.ParseHostFlag(h)
		if err != nil {
			return nil, "", err
		}
		o.Hosts = append(o.Hosts, flag)
	}
	if o.Kubernetes == "" {
		cat, err := c.loadCatalogue()
		if err != nil {
			return nil, "", err
		}
		o.Kubernetes = cat.DefaultVersion()
	}
	o.File = o.out
	text, err = sample.Write(o.Options)
	return text, "slipway create cluster -f", err
}

// refuseKubeconfigAsName refuses the path of a kubeconfig given as the cluster's name.
// Otherwise the user's own kubeconfig would be read, which may be for another cluster.
func refuseKubeconfigAsName(args []string, o configFlags) error {
	if len(args) == 0 || o.kubeconfig != "" {
		return nil
	}
	is := ""
	if info, err := os.Stat(args[0]); err == nil && info.Mode().IsRegular() {
		is = "a file"
	} else if len(spec.NameProblems(args[0])) > 0 {
		is = "not a valid cluster name"
	}
	if is == "" {
		return nil
	}
	return newProblem(idUsage, "give a kubeconfig with --kubeconfig "+args[0]+", and a cluster name with --name", "%q is %s", args[0], is)
}

// describeCluster returns the cluster file of a running cluster, and the next command
// to run with it.
func (c describeCommand) describeCluster(ctx context.Context, o configFlags) (text []byte, next string, err error) {
	conf, err := c.readKubeconfig(ctx, o.kubeconfig)
	if err != nil {
		return nil, "", err
	}
	svc, err := c.open(ctx)
	if err != nil {
		return nil, "", err
	}
	d, err := svc.Describe(ctx, conf, live.Options{Name: o.Name, User: o.user, PrivateKeyFile: o.keys})
	if err != nil {
		return nil, "", markRefused(err)
	}
	c.printDiagnostics(d.Warnings)
	return d.Text, "slipway precheck -f", nil
}

// readKubeconfig returns the kubeconfig in file, or without a file the user's own.
func (w *workspace) readKubeconfig(ctx context.Context, file string) (conf []byte, err error) {
	if file == "" {
		if file, _, err = w.findOwnKubeconfig(); err != nil {
			return nil, err
		}
	}
	conf, _, err = w.readInput(ctx, file)
	return conf, err
}
