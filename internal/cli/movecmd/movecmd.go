// Package movecmd is the command `slipway move`: it gives the management of a cluster to a management server or to an
// operator.
package movecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/move"
	"slipway.dev/slipway/internal/operator/api"
	"slipway.dev/slipway/internal/store/kube"
)

// A Mover moves clusters that the command line has saved.
type Mover interface {
	Move(ctx context.Context, name string, to move.Target, progress event.Sink) error
}

// Clusters finds the cluster that is moved.
type Clusters struct {
	Choose        func(ctx context.Context, args []string) (name string, err error)
	CompleteNames cobra.CompletionFunc
}

// A command has the flags of the command.
type command struct {
	program.Program
	open                           func(context.Context) (Mover, error)
	kubeconfig, context, namespace string
	bundle                         string
}

// NewCommand returns the command. open returns the mover.
func NewCommand(p program.Program, clusters Clusters, open func(context.Context) (Mover, error)) *cobra.Command {
	c := &command{Program: p, open: open}
	cmd := program.MarkTextOnly(&cobra.Command{
		Use: "move [NAME]", Short: "Move a cluster to a management server or an operator",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: clusters.CompleteNames,
		Long: `Moves the management of a cluster from this command line to an API with Cluster
objects: of a management server, or of a cluster with the operator, which can be
this cluster. The cluster runs on, and its hosts do not change.

The command creates a paused Cluster, and Secrets with the files that the cluster
file names. It waits until the controllers accept the Cluster, copies the saved
state, saves the new manager on the control planes, and resumes the Cluster. After an
interruption, run it again.

Afterwards, the control planes refuse this command line. Its saved state remains,
so that commands such as kubeconfig, ssh and cluster-info still work here. Backup
sets and the history of operations remain here too.`,
		Example: `  slipway move prod --kubeconfig server.kubeconfig --namespace team
  slipway move prod --kubeconfig operator.kubeconfig --bundle registry.example.com/slipway/bundle:v1.37.1`,
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the API (default: $KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&c.context, "context", "", "`context` of the kubeconfig (default: its current context)")
	f.StringVarP(&c.namespace, "namespace", "n", "", "`namespace` of the Cluster (default: the one of the context)")
	f.StringVar(&c.bundle, "bundle", "", "`reference` in a registry that replaces the bundle of the cluster; \"\" removes it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var bundle *string
		if cmd.Flags().Changed("bundle") {
			bundle = &c.bundle
		}
		name, err := clusters.Choose(cmd.Context(), args)
		if err != nil {
			return err
		}
		return c.run(cmd.Context(), name, bundle)
	}
	return cmd
}

func (c *command) run(ctx context.Context, name string, bundle *string) (err error) {
	config, namespace, err := api.LoadConfig(c.kubeconfig, c.context)
	if err != nil {
		return err
	}
	namespace = cmp.Or(c.namespace, namespace)
	objects, err := api.New(config, namespace)
	if err != nil {
		return err
	}
	if err := objects.Check(ctx); err != nil {
		return err
	}
	mover, err := c.open(ctx)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "slipway-move-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	saved, err := kube.New(kube.Config{Client: config, Namespace: namespace, BackupDir: temp, TempDir: temp})
	if err != nil {
		return err
	}
	to := move.Target{
		Records: saved, Objects: objects, Server: config.Host, Bundle: bundle,
		Confirm: func(ctx context.Context) error {
			return c.AskYesNo(ctx, fmt.Sprintf("Move cluster %s to namespace %s of %s?", name, namespace, config.Host))
		},
	}
	if err := mover.Move(ctx, name, to, event.SinkFunc(c.show)); err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "%s manages cluster %s. To see it: kubectl --namespace %s get cluster %s\n", config.Host, name, namespace, name)
	return nil
}

// show shows a note.
func (c *command) show(e event.Event) {
	if e.Host != "" {
		e.Message = e.Host + ": " + e.Message
	}
	fmt.Fprintln(c.Err, view.PrintableLine(e.Message))
}
