// Package policies has the admission policies of group slipway.dev: rights that RBAC cannot
// express, and the protection of Clusters.
package policies

import _ "embed"

// Clusters refuses the deletion of a Cluster that is protected against it.
//
//go:embed slipway.dev_clusters.yaml
var Clusters []byte

// Operations requires the right to an operation of each kind, and the rights to approve, cancel
// and retry it.
//
//go:embed slipway.dev_operations.yaml
var Operations []byte

// Secrets refuses deletions whose response would have the content of a Secret that the user
// must not read.
//
//go:embed slipway.dev_secrets.yaml
var Secrets []byte
