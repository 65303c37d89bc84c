// Command slipwayd runs the management server of Slipway.
package main

import (
	"context"
	"os"

	"slipway.dev/slipway/internal/daemon"
)

func main() {
	os.Exit(daemon.Main(context.Background(), os.Args[1:], daemon.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
