package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"slipway.dev/slipway/internal/diag"
)

// Message ids of this package.
const (
	idPortInUse      = "server-port-in-use"
	idListen         = "server-listen-failed"
	idEtcdSilent     = "server-etcd-unreachable"
	idEtcdKubernetes = "server-etcd-in-use"
	idEtcdOther      = "server-etcd-of-another-server"
	idEtcdDamaged    = "server-database-damaged"
	idAuthentication = "server-authentication-config"
	idDiskFull       = "server-disk-full"

	idDefinitionRefused = "server-definition-refused"
)

// Listen opens the port of the API, host:port. Port 0 selects a free port.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, diag.Refuse(idPortInUse, fmt.Sprintf("address %s is in use by another program", address),
			"stop that program, or select another address with --listen")
	}
	return nil, diag.Refuse(idListen, fmt.Sprintf("cannot listen on %s: %v", address, err),
		"select an address of this machine with --listen, for example "+DefaultListen)
}
