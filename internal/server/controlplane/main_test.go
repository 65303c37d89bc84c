package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/controlplane/testserver"
)

const (
	// serverVariable names the data directory of a server that the binary runs instead of
	// its tests, so that a test can kill a server.
	serverVariable = "SLIPWAYD_TEST_SERVER"
	// listenVariable is the address of that server. The default is a free port.
	listenVariable = "SLIPWAYD_TEST_LISTEN"
	// portInUse is the id of the refusal of that address, and portInUseCode the exit code.
	portInUse     = "server-port-in-use"
	portInUseCode = 3
)

// noIssuers is an AuthenticationConfiguration without issuers.
const noIssuers = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

// server is the server of all tests, and issuersFile its AuthenticationConfiguration.
var (
	server      *testserver.Server
	issuersFile string
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverVariable); dir != "" {
		os.Exit(runServer(dir, os.Getenv(listenVariable)))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "slipwayd-issuers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	issuersFile = filepath.Join(dir, "authentication.yaml")
	if err := os.WriteFile(issuersFile, []byte(noIssuers), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return testserver.Run(context.Background(), m, &server, func(c *controlplane.Config) { c.AuthenticationConfig = issuersFile })
}

// runServer runs a server until SIGTERM. It prints the address when the server is ready.
func runServer(dir, listen string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := serveUntil(ctx, dir, listen)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	if slices.Contains(idsOf(err), portInUse) {
		return portInUseCode
	}
	return 1
}

// serveUntil runs a server until ctx ends or the server has ended.
func serveUntil(ctx context.Context, dir, listen string) error {
	var listener net.Listener
	if listen != "" {
		var err error
		if listener, err = controlplane.Listen(ctx, listen); err != nil {
			return err
		}
	}
	var listenError error
	s, err := testserver.Open(ctx, dir, func(c *controlplane.Config) {
		if listener == nil {
			return
		}
		listenError = errors.Join(c.Listener.Close(), c.Certificates.SetServer("https://"+listen))
		c.Listener = listener
	}, changeFromEnvironment)
	if listenError != nil {
		return listenError
	}
	if err != nil {
		return err
	}
	fmt.Println(s.Address())
	ended := make(chan error, 1)
	go func() { ended <- s.Wait() }() // ends with the server
	select {
	case err := <-ended:
		return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	case <-ctx.Done():
		return s.Close(context.WithoutCancel(ctx))
	}
}
