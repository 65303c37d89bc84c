package spec

import "slipway.dev/slipway/internal/spec/yamlfile"

// The diagnostics of a cluster file. Each has an entry in docs/guide/errors.md; scripts
// can depend on them, so they never change.
const (
	// Reading; package yamlfile has the ids of the YAML format.
	idMultipleDocuments = "multiple-documents"
	idUnknownKind       = "unknown-kind"
	idWrongType         = yamlfile.IDWrongType

	// Values of any field.
	idMissingField      = "missing-field"
	idInvalidName       = "invalid-name"
	idInvalidValue      = "invalid-value"
	idUnknownValue      = "unknown-value"
	idConflictingFields = "conflicting-fields"
	idDuplicateEntry    = "duplicate-entry"
	idNotSupportedYet   = "not-supported-yet"
	idInvalidPort       = "invalid-port"
	idInvalidDuration   = "invalid-duration"
	idInvalidAddress    = "invalid-address"
	idInsecureSource    = "insecure-source"
	idInvalidRecipient  = "invalid-recipient"
	idDockerMirror      = "docker-mirror"
	idDockerAuth        = "docker-credentials"
	idNoRegistryHost    = IDNoRegistryHost
	idOneRegistry       = "one-registry"

	// Hosts.
	idNoHosts          = "no-hosts"
	idNoControlPlane   = "no-control-plane"
	idNoEtcdHost       = "no-etcd-host"
	idEvenMembers      = "even-members"
	idTimeServer       = "time-server"
	idMissingRole      = "missing-role"
	idUnknownRole      = "unknown-role"
	idDuplicateName    = "duplicate-name"
	idDuplicateAddress = "duplicate-address"
	idInvalidLabel     = "invalid-label"
	idReservedLabel    = "reserved-label"
	idInvalidTaint     = "invalid-taint"
	idInlinePassword   = "inline-password"

	// Kubernetes and its network.
	idInvalidVersion     = "invalid-version"
	idUnsupportedVersion = "unsupported-version"
	idEndpointMode       = "endpoint-mode"
	idUnknownKubelet     = "unknown-kubelet-field"
	idHardeningOverruled = "hardening-overruled"
	idEncryptionCipher   = "encryption-provider"
	idEncryptionResource = "encryption-resource"
	idInvalidArgument    = "invalid-argument"
	idUnknownArgument    = "unknown-argument"
	idFeatureGate        = "feature-gate"
	idInvalidCIDR        = "invalid-cidr"
	idCIDRSize           = "cidr-size"
	idCIDROverlap        = "cidr-overlap"
	idIPFamilies         = "ip-families"

	// Files that the cluster file names.
	idKeyUnreadable    = "ssh-key-unreadable"
	idKeyEncrypted     = "ssh-key-encrypted"
	idSecretUnreadable = "secret-unreadable"
	idFilePermissions  = "file-permissions"
	idFileMissing      = "file-missing"
	idCertificate      = "certificate-unfit"
	idBundleKey        = "bundle-key-invalid" // same as in package bundle

	// Arguments about a cluster.
	idInvalidHostFlag = "invalid-host-flag"
	idHostKnown       = "host-known"
	idRolesFixed      = "roles-fixed"

	// Changes of an existing cluster.
	idImmutableField = "immutable-field"
	idEndpointChange = "endpoint-change"
	idProxyChange    = "proxy-change"
)
