//go:build linux

// Command slipway-node is the node helper: slipway copies it to a host, where it
// checks and applies operations.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/helper"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	// Without a reader, a write must return an error and not end the process. The
	// signal is caught and not ignored, because children would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	err := helper.Main(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "slipway-node:", err)
		os.Exit(1)
	}
}
