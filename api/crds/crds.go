// Package crds has the CustomResourceDefinitions of group slipway.dev, which `make
// generate` writes from package v1alpha1.
package crds

import _ "embed"

// Clusters defines the resource clusters.
//
//go:embed slipway.dev_clusters.yaml
var Clusters []byte

// Operations defines the resource operations.
//
//go:embed slipway.dev_operations.yaml
var Operations []byte

// OperationLogs defines the resource operationlogs.
//
//go:embed slipway.dev_operationlogs.yaml
var OperationLogs []byte
