// Package endpoint has nodes find a living API server under the API's name: a
// file for each mode that needs something of its own on nodes or in the
// cluster.
package endpoint

import (
	"embed"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
)

//go:embed templates
var files embed.FS

// New is the module. It comes before nodes join: their kubelets find the API
// by it.
func New(env module.Env) engine.Module {
	return engine.Module{Name: "endpoint", Tasks: []engine.Task{haproxyTask(env)}}
}
