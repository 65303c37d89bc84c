// Package roles has the ClusterRoles for users of group slipway.dev.
package roles

import _ "embed"

// Roles defines the ClusterRoles slipway-viewer, slipway-operator and slipway-admin, and the
// ClusterRoles whose rules they collect.
//
//go:embed slipway.dev_roles.yaml
var Roles []byte
