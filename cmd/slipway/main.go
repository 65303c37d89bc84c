// Command slipway is the command line: Kubernetes clusters on machines you
// have.
package main

import (
	"context"
	"os"

	"slipway.dev/slipway/internal/cli"
)

func main() {
	streams, env := cli.OS()
	os.Exit(cli.Main(context.Background(), os.Args[1:], streams, env, cli.Lifecycle))
}
