// Command kubectl is the client of Kubernetes, for tests and for the quickstart of the
// management server on machines without a kubectl. `slipway` and `slipwayd` do not contain it.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() { os.Exit(cli.Run(cmd.NewDefaultKubectlCommand())) }
