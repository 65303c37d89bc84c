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
