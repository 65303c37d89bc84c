package operation

import "cmp"

// upToDate is the usual text of a plan without steps.
const upToDate = "is up to date"

// These are the answers to "Rollback:" for operations that a user cannot roll back.
const (
	notPossible  = "not possible"
	onlyByDelete = "not possible separately; deleting the cluster resets its hosts"
)

// file returns the cluster file, or a placeholder.
func (e End) file() string { return cmp.Or(e.File, "FILE") }

func noCommand(End) string { return "" }

func noNote(string) string { return "" }

func resumeCommand(e End) string { return "slipway resume " + e.Cluster }

func rollbackCommand(e End) string { return "slipway rollback " + e.Cluster }

func getNodes(e End) string { return "slipway kubectl " + e.Cluster + " -- get nodes" }

func checkCertificates(e End) string { return "slipway certs check " + e.Cluster }

func etcdHealth(e End) string { return "slipway etcd health " + e.Cluster }

// text returns a function that returns the same text for every end.
func text(s string) func(End) string { return func(End) string { return s } }
