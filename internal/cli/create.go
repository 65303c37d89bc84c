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
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/owner"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/live"
)

func (a *app) createCmd() *cobra.Command {
	cmd := program.Parent("create", "Create a cluster, or a file that describes one")
	cmd.AddCommand(a.createClusterCmd(), a.createConfigCmd(), a.createManifestCmd())
	return cmd
}

func (a *app) createClusterCmd() *cobra.Command {
	var file, kubernetes, bundle string
	cmd := &cobra.Command{
		Use:   "cluster [-f FILE] [NAME]",
		Short: "Create a cluster: from a file, or of this machine alone",
		Long: `Creates the cluster that FILE describes. Without a file it makes a one-node
cluster of this machine, named after it.

The plan is shown and confirmed first. A cluster that is recorded already, or
whose hosts hold one, is refused.`,
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
	cmd.Flags().StringVar(&kubernetes, "kubernetes", "", "Kubernetes `version`, without a file")
	cmd.Flags().StringVar(&bundle, "bundle", "", "install from this `bundle`: a file, a directory or a registry reference")
	cmd.MarkFlagsMutuallyExclusive("file", "kubernetes")
	program.CompleteVersion(cmd, a.catalogue)
	return cmd
}

// bundlePath is a bundle from the command line: what is there is a file or a
// directory, what looks like a path is one, else it is a reference to a
// registry.
func bundlePath(name string) (string, error) {
	if _, err := os.Stat(name); err == nil || spec.IsBundlePath(name) {
		path, err := filepath.Abs(name)
		return path, refuse(err)
	}
	return name, nil
}

// wanted is the cluster of a file, or one of this machine alone.
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

// prepare asks the service to prepare a request.
func (a *app) prepare(r lifecycle.Request) prepare {
	return func(ctx context.Context, svc lifecycle.Service, progress event.Sink) (lifecycle.Prepared, error) {
		return svc.Prepare(ctx, r, progress)
	}
}

// A config is what create config is asked for.
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
		Short: "Write a complete cluster file, explained line by line, or one of a cluster that runs",
		Long: `Writes a complete cluster file, explained line by line: for the hosts of --host,
or as an example.

With --from-cluster it describes a cluster that runs, and that kubeadm made:
by Slipway, by another program or by hand. It asks the API that the kubeconfig
leads to, changes nothing, and reaches no host; what the cluster does not know
of itself, such as how to log in, is left as a TODO.`,
		Example: `  slipway create config --name prod \
      --host root@10.0.0.11=control-plane --host root@10.0.0.12=worker --out prod.yaml
  slipway create config --from-cluster --kubeconfig admin.conf --user ops --out prod.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if o.Name != "" && o.Name != args[0] {
					return problem(idNameMismatch, "give one name", "the cluster is named twice: %s and %s", args[0], o.Name)
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
	f.BoolVar(&o.fromCluster, "from-cluster", false, "describe a cluster that runs")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "with --from-cluster: the `file` that leads to it (default: KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&o.user, "user", "", "with --from-cluster: log in to its hosts as this `user`")
	f.StringVar(&o.keys, "private-key", "", "with --from-cluster: log in to its hosts with the key in this `file`")
	for _, sample := range []string{"host", "kubernetes"} {
		cmd.MarkFlagsMutuallyExclusive("from-cluster", sample)
	}
	return cmd
}

// sample is a complete file, and what to do with it.
func (a *app) sample(_ context.Context, o config) (text []byte, next string, err error) {
	if o.kubeconfig != "" || o.user != "" || o.keys != "" {
		return nil, "", problem(idUsage, "see: slipway create config --help", "--kubeconfig, --user and --private-key go with --from-cluster")
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

// notKubeconfig refuses the path of a kubeconfig where a cluster's name is meant:
// the user's own one would be read, which may lead to another cluster.
func notKubeconfig(args []string, o config) error {
	if len(args) == 0 || o.kubeconfig != "" {
		return nil
	}
	is := ""
	if info, err := os.Stat(args[0]); err == nil && info.Mode().IsRegular() {
		is = "a file"
	} else if len(spec.NameProblems(args[0])) > 0 {
		is = "no name of a cluster"
	}
	if is == "" {
		return nil
	}
	return problem(idUsage, "name a kubeconfig with --kubeconfig "+args[0]+", and a cluster with --name", "%q is %s", args[0], is)
}

// fromCluster is the file of a cluster that runs.
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

// clusterConfig is a kubeconfig: the file's, or the user's own.
func (a *app) clusterConfig(ctx context.Context, file string) (conf []byte, err error) {
	if file == "" {
		if file, _, err = a.ownKubeconfig(); err != nil {
			return nil, err
		}
	}
	conf, _, err = a.read(ctx, file)
	return conf, err
}

// writeConfig answers a file that was made, or writes it.
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

// writeNew writes a file of the user's. One that is there already is only
// overwritten with --yes; what is no file never is, nor given to the user.
func (a *app) writeNew(path string, content []byte, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return problem(idFile, "name a file; without --out it is printed", "%s is there and is no file", path)
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
		return problem(idFile, "name another file, or overwrite it with --yes", "%s is there already", path)
	case errors.As(err, new(*owner.ForeignError)):
		return problem(idFile, "name another file, or remove the link", "%v", err)
	case err != nil:
		return problem(idFile, "name a file in a directory that can be written to, where there is room", "writing %s: %v", path, unwrapPath(err))
	}
	return nil
}

// replace writes a file as a whole, or leaves the one that is there as it was.
// The user's own links are followed, but not by root on behalf of a user.
func replace(path string, content []byte, mode fs.FileMode, to *owner.Owner) error {
	if to == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
	}
	return to.ReplaceFile(path, content, mode)
}

// writeFirst writes a file that must not be there.
func writeFirst(path string, content []byte, mode fs.FileMode, to *owner.Owner) error {
	f, err := safefile.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if to != nil {
		err = errors.Join(err, f.Chown(to.UID, to.GID))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, safefile.Remove(path)) // half of it is worth nothing
	}
	return nil
}
