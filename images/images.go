// Package images holds the sources of the programs in Slipway's own container
// images, to be compiled when a bundle is built.
package images

import _ "embed"

// Echo is the source of a small HTTP server and client for trying a cluster.
//
//go:embed echo/main.go
var Echo string

// Pause is the source of the program that holds a pod's namespaces.
//
//go:embed pause/main.go
var Pause string

// Probe is the source of a program that checks whether a server is alive.
//
//go:embed probe/main.go
var Probe string

var (
	//go:embed updater/main.go
	updaterMain string
	//go:embed updater/follow.go
	updaterFollow string
	//go:embed updater/probe.go
	updaterProbe string
)

// UpdaterSources returns the sources of apiserver-updater by file name.
func UpdaterSources() map[string]string {
	return map[string]string{"main.go": updaterMain, "follow.go": updaterFollow, "probe.go": updaterProbe}
}
