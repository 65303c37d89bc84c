// Command slipway is the command line: Kubernetes clusters on machines you
// have.
package main

import (
	"context"
	"log/slog"
	"os"

	"slipway.dev/slipway/internal/cli"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what libraries would say in the midst of what is shown
	streams, env := cli.OS()
	os.Exit(cli.Main(context.Background(), os.Args[1:], streams, env, cli.Lifecycle))
}
