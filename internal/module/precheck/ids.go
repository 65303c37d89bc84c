package precheck

import "slipway.dev/slipway/internal/remote"

// The ids of the findings. Each has an entry in docs/guide/errors.md. They never change,
// because scripts may depend on them.
const (
	idUnknownCheck = "unknown-check"

	// Findings about a machine.
	idHostFacts           = "host-facts"
	idSystemd             = "systemd-missing"
	idOS                  = "os-unknown"
	idKernel              = "kernel-too-old"
	idKernelFeature       = "kernel-feature-missing"
	idCgroupV1            = "cgroup-v1"
	idCgroupController    = "cgroup-controller-missing"
	idArchMismatch        = "architecture-mismatch"
	idArchNotInBundle     = "architecture-not-in-bundle"
	idProgram             = "program-missing"
	idSELinux             = "selinux-enforcing"
	idFirewall            = "firewall-active"
	idSwap                = "swap-on"
	idMachineIDMissing    = "machine-id-missing"
	idMachineIDDuplicate  = "machine-id-duplicate"
	idSameMachine         = "same-machine"
	idClockSkew           = "clock-skew"
	idClockManager        = "clock-manager"
	idInternalAddress     = "internal-address-missing"
	idDualStack           = "dual-stack-address-missing"
	idAddressInUse        = "address-in-use"
	idNetworkOverlap      = "network-overlap"
	idDefaultRoute        = "default-route-missing"
	idHostsFile           = "hosts-file-conflict"
	idResolver            = "dns-server-missing"
	idEtcdDataLost        = "etcd-data-lost"
	idEtcdUnreachable     = "etcd-unreachable"
	idEndpointUnreachable = "endpoint-unreachable"
	idOtherCluster        = "other-cluster"
	idLeftovers           = "leftovers"
	idRuntime             = "runtime-running"
	idOtherNetwork        = "other-network"
	idPort                = "port-in-use"
	idUnitDropIn          = "unit-drop-in"
	idNotEmpty            = "directory-not-empty"
	idReplaced            = "files-replaced"
	idCPU                 = "cpu-too-few"
	idMemory              = "memory-too-small"
	idMemoryLow           = "memory-low"
	idDisk                = "disk-too-small"
	idDiskLow             = "disk-low"
	idInodes              = "inodes-too-few"
	idFilesystem          = "filesystem-unfit"
	idFilesystemPrograms  = "filesystem-noexec"
	idFilesystemReadOnly  = "filesystem-read-only"
	idFilesystemTemporary = "filesystem-temporary"

	// IDBudget identifies a PodDisruptionBudget that allows no disruption. An upgrade also
	// waits for these between two minor versions.
	IDBudget = "disruption-budget"

	// Other findings before an upgrade.
	idReleaseUnknown = "release-unknown"
	idAPIUnasked     = "api-not-asked"
	idAPIRemoved     = "api-removed"
	idAPIDeprecated  = "api-deprecated"
	idWebhook        = "webhook-unanswered"
	idBundleMissing  = "bundle-missing"
	idNodeUnready    = "upgrade-node-unready"
	idCapacity       = "upgrade-capacity"
	idSkew           = "kubelet-skew"
	idEtcdUnready    = "etcd-unready"
	idCertificate    = "certificate-expires"

	// idAddons identifies an add-on that does not work with the version of the cluster. It
	// is reported when add-ons are loaded.
	idAddons = "addons"
)

// fatalIDs returns errors that cannot be ignored: the operation could not continue, or
// would destroy another cluster.
func fatalIDs() []string {
	return []string{
		idUnknownCheck, idHostFacts, idSystemd, idArchMismatch, idArchNotInBundle, idMachineIDMissing,
		idSameMachine, idInternalAddress, idDualStack, idOtherCluster, idFilesystemReadOnly,
		idEtcdDataLost, idAPIUnasked, idNodeUnready,
	}
}

// IDs returns all findings that can be ignored, for completion and for suggestions.
func IDs() []string {
	return []string{
		idOS, idKernel, idKernelFeature, idCgroupV1, idCgroupController, idProgram, idSELinux, idFirewall, idSwap,
		idMachineIDDuplicate, idClockSkew, idClockManager, idAddressInUse, idNetworkOverlap, idDefaultRoute, idHostsFile, idResolver,
		idLeftovers, idRuntime, idEtcdUnreachable, idEndpointUnreachable,
		idOtherNetwork, idPort, idUnitDropIn, idNotEmpty, idReplaced,
		idCPU, idMemory, idMemoryLow, idDisk, idDiskLow, idInodes, idFilesystem, idFilesystemPrograms,
		idFilesystemTemporary,
		idReleaseUnknown, idAPIRemoved, idAPIDeprecated, IDBudget, idWebhook, idBundleMissing, idCapacity, idSkew,
		idEtcdUnready, idCertificate, idAddons,
	}
}

// unreachableIDs returns the ids of hosts that could not be reached or used.
func unreachableIDs() []string {
	return []string{
		string(remote.Unreachable), string(remote.ConfigUnusable), string(remote.AuthFailed), string(remote.HostKeyUnknown),
		string(remote.HostKeyChanged), string(remote.KeyUnreadable), string(remote.SudoFailed),
		string(remote.SecretUnreadable), string(remote.WrongArch), string(remote.NoExec), string(remote.HelperFailed),
		string(remote.ConnectionLost), string(remote.NoShell),
	}
}
