package apicheck

// The diagnostics of a Cluster object, each with an entry in docs/guide/errors.md. They
// never change.
const (
	idAbsolutePath   = "object-absolute-path"
	idDirectory      = "object-file-directory"
	idFileName       = "object-file-name"
	idFileUnreadable = "object-file-unreadable"
	idFileMissing    = "object-file-missing"
	idFileKey        = "object-file-key"
	idFilesTooLarge  = "object-files-too-large"
	idSourceMissing  = "object-source-missing"
	idSourceReserved = "object-source-reserved"
	idEnvironment    = "object-environment"
	IDAgent          = "object-ssh-agent"
	IDNoLogin        = "object-no-login"
	idLocalAddress   = "object-local-address"
	IDBundleFile     = "object-bundle-file"
)
