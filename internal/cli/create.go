package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/live"
)

func (a *app) createCmd() *cobra.Command {
	cmd := program.Parent("create", "Create a cluster or a file")
	cmd.AddCommand(a.createClusterCmd(), a.createConfigCmd(), a.createManifestCmd())
	return cmd
}

func (a *app) createClusterCmd() *cobra.Command {
	var file, kubernetes, bundle string
	cmd := &cobra.Command{
		Use:   "cluster [-f FILE] [NAME]",
		Short: "Create a cluster",
		Long: `Creates the cluster that FILE describes. Without a file, creates a one-node
cluster on this machine, with the name of this machine.

Slipway shows the plan first and asks for confirmation. It refuses a cluster that
is already in its state, and hosts that already belong to a cluster.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.wanted(cmd.Context(), file, kubernetes, args)
			if err != nil {
				return err
			}
			if bundle != "" {
				if d.Cluster.Spec.Bundle, err = bundlePath(bundle); err != nil {
					return err
				}
			}
			return a.operate(cmd.Context(), operation{prepare: a.prepare(a.described(lifecycle.Create, d)), file: file, brief: true})
		},
	}
	fileFlag(cmd, &file, "the cluster file; - is standard input")
	a.changeFlags(cmd)
	cmd.Flags().StringVar(&kubernetes, "kubernetes", "", "Kubernetes `version` for a cluster without a file")
	cmd.Flags().StringVar(&bundle, "bundle", "", "install from this `bundle`: a file, a directory or a registry reference")
	cmd.MarkFlagsMutuallyExclusive("file", "kubernetes")
	program.CompleteVersion(cmd, a.catalogue)
	return cmd
}

// bundlePath resolves a bundle from the command line. An existing file or
// directory, or a name that looks like a path, becomes an absolute path. Any other
// name is a registry reference and is returned unchanged.
func bundlePath(name string) (string, error) {
	if _, err := os.Stat(name); err == nil || spec.IsBundlePath(name) {
		path, err := filepath.Abs(name)
		return path, refuse(err)
	}
	return name, nil
}

// wanted returns the cluster of a file, or without a file a one-node cluster of
// this machine.
func (a *app) wanted(ctx context.Context, file, kubernetes string, args []string) (*described, error) {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	if file == "" {
		return a.thisHost(ctx, name, kubernetes)
	}
	return a.loadFile(ctx, file, name)
}

// prepare returns a function that prepares a request with the service.
func (a *app) prepare(r lifecycle.Request) prepare {
	return func(ctx context.Context, svc lifecycle.Service, progress event.Sink) (lifecycle.Prepared, error) {
		return svc.Prepare(ctx, r, progress)
	}
}

// A config holds the flags of create config.
type config struct {
	spec.SampleOptions
	hosts []string
	out   string

	fromCluster            bool
	kubeconfig, user, keys string
}

func (a *app) createConfigCmd() *cobra.Command {
	var o config
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
					return problem(idNameMismatch, "give one name", "two cluster names are given: %s and %s", args[0], o.Name)
				}
				o.Name = args[0]
			}
			write := a.sample
			if o.fromCluster {
				if err := notKubeconfig(args, o); err != nil {
					return err
				}
				write = a.fromCluster
			}
			text, next, err := write(cmd.Context(), o)
			if err != nil {
				return err
			}
			return a.writeConfig(o.out, text, next)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&o.hosts, "host", nil, "a `HOST`: [user@]address[:port]=role[,role...][,name=NAME] (repeatable)")
	f.StringVar(&o.Name, "name", "", "the cluster's name")
	f.StringVar(&o.Kubernetes, "kubernetes", "", "Kubernetes `version`")
	program.CompleteVersion(cmd, a.catalogue)
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

// sample returns a complete cluster file, and the next command to run with it.
func (a *app) sample(_ context.Context, o config) (text []byte, next string, err error) {
	if o.kubeconfig != "" || o.user != "" || o.keys != "" {
		return nil, "", problem(idUsage, "see: slipway create config --help", "--kubeconfig, --user and --private-key require --from-cluster")
	}
	for _, h := range o.hosts {
		flag, err := spec.ParseHostFlag(h)
		if err != nil {
			return nil, "", err
		}
		o.Hosts = append(o.Hosts, flag)
	}
	if o.Kubernetes == "" {
		cat, err := a.catalogue()
		if err != nil {
			return nil, "", err
		}
		o.Kubernetes = cat.Default()
	}
	o.File = o.out
	text, err = spec.Sample(o.SampleOptions)
	return text, "slipway create cluster -f", err
}

// notKubeconfig refuses the path of a kubeconfig given as the cluster's name.
// Otherwise the user's own kubeconfig would be read, which may be for another cluster.
func notKubeconfig(args []string, o config) error {
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
	return problem(idUsage, "give a kubeconfig with --kubeconfig "+args[0]+", and a cluster name with --name", "%q is %s", args[0], is)
}

// fromCluster returns the cluster file of a running cluster, and the next command
// to run with it.
func (a *app) fromCluster(ctx context.Context, o config) (text []byte, next string, err error) {
	conf, err := a.clusterConfig(ctx, o.kubeconfig)
	if err != nil {
		return nil, "", err
	}
	svc, err := a.svc(ctx)
	if err != nil {
		return nil, "", err
	}
	d, err := svc.Describe(ctx, conf, live.Options{Name: o.Name, User: o.user, PrivateKeyFile: o.keys})
	if err != nil {
		return nil, "", refuse(err)
	}
	a.warn(d.Warnings)
	return d.Text, "slipway precheck -f", nil
}

// clusterConfig returns the kubeconfig in file, or without a file the user's own.
func (a *app) clusterConfig(ctx context.Context, file string) (conf []byte, err error) {
	if file == "" {
		if file, _, err = a.ownKubeconfig(); err != nil {
			return nil, err
		}
	}
	conf, _, err = a.read(ctx, file)
	return conf, err
}

// writeConfig writes a generated file to out, or prints it if out is "".
func (a *app) writeConfig(out string, text []byte, next string) error {
	if out == "" {
		return a.document(text)
	}
	if err := a.writeNew(out, text, 0o644); err != nil {
		return err
	}
	if a.format != view.Text {
		return view.Data(a.Out, a.format, map[string]string{"file": out})
	}
	a.say("Wrote %s.\nNext: %s %s", out, next, out)
	return nil
}

// writeNew writes a file for the user. It overwrites an existing file only with
// --yes, and never anything that is not a regular file.
func (a *app) writeNew(path string, content []byte, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return problem(idFile, "give a file, or leave out --out to print the content", "%s exists and is not a regular file", path)
	}
	d, err := a.directories()
	if err != nil {
		return err
	}
	if a.yes {
		err = replace(path, content, mode, d.Owner)
	} else {
		err = writeFirst(path, content, mode, d.Owner)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return problem(idFile, "give another file, or use --yes to overwrite it", "%s already exists", path)
	case errors.As(err, new(*fileowner.ForeignError)):
		return problem(idFile, "give another file, or remove the link", "%v", err)
	case err != nil:
		return problem(idFile, "give a file in a writable directory with enough free space", "writing %s: %v", path, unwrapPath(err))
	}
	return nil
}

// replace writes a file atomically: on an error the old file is kept. It follows
// the user's own links, but not as root on behalf of a user.
func replace(path string, content []byte, mode fs.FileMode, to *fileowner.Owner) error {
	if to == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
	}
	return to.ReplaceFile(path, content, mode)
}

// writeFirst writes a file that must not exist.
func writeFirst(path string, content []byte, mode fs.FileMode, to *fileowner.Owner) error {
	f, err := safefile.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if to != nil {
		err = errors.Join(err, f.Chown(to.UID, to.GID))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, safefile.Remove(path)) // do not leave an incomplete file
	}
	return nil
}
