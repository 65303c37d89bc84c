// Command slipway creates, changes, repairs and deletes Kubernetes clusters over SSH.
package main

import (
	"context"
	"log/slog"
	"os"

	"slipway.dev/slipway/internal/cli"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // logs of libraries would disturb the output
	streams, env := cli.CurrentProcess()
	os.Exit(cli.Main(context.Background(), os.Args[1:], streams, env, cli.NewLifecycleService))
}
