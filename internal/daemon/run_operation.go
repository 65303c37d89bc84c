package daemon

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/internal/controller"
	"slipway.dev/slipway/internal/diag"
)

// runOperationCommand is 'slipwayd run-operation'.
type runOperationCommand struct {
	worker
	name types.NamespacedName
}

func newRunOperationCommand(p *program) *cobra.Command {
	r := &runOperationCommand{worker: worker{program: p}}
	cmd := &cobra.Command{
		Use: "run-operation", Short: "Run one operation, in a Job of the operator", Args: cobra.NoArgs,
		Long: `Plans and applies one operation, and ends when it has ended or waits for an
approval. The operator starts this command in a Job. After SIGTERM, the operation
stops at a safe point, and another attempt resumes it.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.name.Namespace, "namespace", "", "`namespace` of the operation")
	f.StringVar(&r.name.Name, "operation", "", "`name` of the operation")
	r.addFlags(cmd)
	return cmd
}

// run runs the operation. If ctx ends, the operation stops at a safe point.
func (r *runOperationCommand) run(ctx context.Context) (err error) {
	if r.name.Namespace == "" || r.name.Name == "" {
		return diag.Refuse(idOperatorFlag, "--namespace and --operation are required", "name the operation")
	}
	client, settings, closeArchive, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeArchive()) }()
	config, err := settings.newConfig(client)
	if err != nil {
		return err
	}
	settings.log.Info("the operation starts", "operation", r.name)
	if err := controller.RunOperation(ctx, config, r.name); err != nil {
		return err
	}
	settings.log.Info("the operation has ended, or waits", "operation", r.name)
	return nil
}
