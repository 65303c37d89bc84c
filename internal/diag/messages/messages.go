// Package messages holds the explanation of every message id: a summary, the cause, the
// remedy and the error code. docs/guide/errors.md and the table of package errorcode are
// generated from it:
//
//	go test ./internal/diag/messages -update
//
// No program links this package. The packages that report a problem declare its id, and a
// test compares these declarations with the table.
package messages

import "slipway.dev/slipway/api/v1alpha1"

// A Message explains one id. Its texts are Markdown, and a link is relative to docs/guide.
type Message struct {
	ID string
	// Code is the error code of an operation that ends with this message; "" for a warning.
	Code v1alpha1.ErrorCode
	// IsWarning is true if the problem never stops an operation.
	IsWarning bool
	// Summary is one sentence with the problem.
	Summary string
	// Cause is empty if the summary has it.
	Cause string
	// Remedy begins with the usual solution. Alternatives to the one action of the hint
	// belong here.
	Remedy string
}

// A Section is a group of messages under one heading of the page.
type Section struct {
	Title    string
	Intro    string // Markdown; may be empty
	Messages []Message
}

// Table returns all messages, in the order of the page.
func Table() []Section {
	return []Section{
		clusterFile, valuesInFile, kubernetesSettings, conversion, description, namedFiles,
		clusterChange, hostSelection, connection, hostChecks, upgrades, bundles,
		operations, health, certificates, etcdMaintenance, etcdBackups, scheduledBackups, etcdRescue, addons,
		kubeconfigs, savedState, commandLine, sandboxes, managementServer, operator, clusterObjects, journals, serverBackups, serverDataDirectory,
	}
}
