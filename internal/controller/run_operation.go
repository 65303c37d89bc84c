package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/internal/controller/executor"
	"slipway.dev/slipway/internal/controller/service"
)

// RunOperation continues one operation until it has ended, or waits for an approval. Controllers elsewhere have started
// this process, and have compared the hosts of its cluster with the hosts of others. If ctx ends, the operation stops at a
// safe point.
func RunOperation(ctx context.Context, c Config, name types.NamespacedName) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	config := rest.CopyConfig(c.Client)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connecting to the API: %w", err)
	}
	ownCA, err := readCA(c.Client)
	if err != nil {
		return err
	}
	runner := executor.Runner{
		Opener: service.Opener{Client: api, OpenRecords: c.OpenRecords, Lifecycle: c.Lifecycle, FilesBases: c.FilesBases, Log: c.Log},
		Writer: api, OwnCA: ownCA,
	}
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(executor.ErrStopped) })()
	if err := runner.Run(running, running, name); err != nil {
		return err
	}
	return ctx.Err() // another attempt resumes an operation that was stopped
}
