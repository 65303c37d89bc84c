package daemon

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/internal/controller"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/controlplane"
)

// runOperationCommand is 'slipwayd run-operation'.
type runOperationCommand struct {
	operatorCommand
	name types.NamespacedName
}

func newRunOperationCommand(p *program) *cobra.Command {
	r := &runOperationCommand{operatorCommand: operatorCommand{program: p}}
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
	f.StringVar(&r.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: the ServiceAccount of the Pod)")
	f.StringVar(&r.apiURL, "api-url", "", "`URL` of the API for people (default: the URL that the process uses)")
	f.StringVar(&r.cacheDir, "cache-dir", "", "`directory` of bundles (default \"cache\" in the data directory)")
	f.StringVar(&r.archive, "archive-dir", withoutArchive, "`directory` of finished operations, or none to delete them")
	f.StringVar(&r.logFormat, "log-format", "text", "`format` of the log: text or json")
	return cmd
}

// run runs the operation. If ctx ends, the operation stops at a safe point.
func (r *runOperationCommand) run(ctx context.Context) (err error) {
	if r.name.Namespace == "" || r.name.Name == "" {
		return diag.Refuse(idOperatorFlag, "--namespace and --operation are required", "name the operation")
	}
	log, err := newLog(r.Err, r.logFormat)
	if err != nil {
		return err
	}
	controlplane.RedirectLogs(log)
	client, err := r.loadClient()
	if err != nil {
		return err
	}
	settings, err := r.newDirectories(client, log)
	if err != nil {
		return err
	}
	if files := openArchive(ctx, r.archive, "", log); files != nil {
		defer func() { err = errors.Join(err, files.Close()) }()
		settings.files = files
	}
	config, err := settings.newConfig(client)
	if err != nil {
		return err
	}
	log.Info("the operation starts", "operation", r.name)
	if err := controller.RunOperation(ctx, config, r.name); err != nil {
		return err
	}
	log.Info("the operation has ended, or waits", "operation", r.name)
	return nil
}
