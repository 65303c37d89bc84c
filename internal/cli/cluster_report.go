package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
)

// inspectCommand holds what commands need that show the state of a cluster.
type inspectCommand struct {
	*console
	clusters *clusterChooser
	open     opener[inspector]
}

// A clusterReport is a command that reads something of a cluster and shows it. S is the
// part of the service that it uses.
type clusterReport[S, T any] struct {
	read func(ctx context.Context, svc S, cluster string, progress event.Sink) (*T, error)
	show func(w io.Writer, report *T, style view.Style) error
	exit func(report *T) error // returns the error for the exit code; may be nil
}

// newRunFunc returns the function that runs the command.
func (r clusterReport[S, T]) newRunFunc(c *console, clusters *clusterChooser, open opener[S]) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		svc, name, err := openForCluster(ctx, clusters, open, args)
		if err != nil {
			return err
		}
		report, err := readWithProgress(ctx, c, func(progress event.Sink) (*T, error) { return r.read(ctx, svc, name, progress) })
		if err != nil {
			return err
		}
		err = c.writeResult(report, func(w io.Writer) error { return r.show(w, report, c.outStyle()) })
		if err != nil || r.exit == nil {
			return err
		}
		return r.exit(report)
	}
}

// exitUnless returns an exitError with a code unless a report is good.
func exitUnless(isGood bool, code int) error {
	if isGood {
		return nil
	}
	return &exitError{code: code}
}
