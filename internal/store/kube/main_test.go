package kube_test

import (
	"context"
	"os"
	"testing"

	"slipway.dev/slipway/internal/server/controlplane/testserver"
)

var server *testserver.Server

func TestMain(m *testing.M) { os.Exit(testserver.Run(context.Background(), m, &server)) }
