package messages

import "slipway.dev/slipway/api/v1alpha1"

var hostChecks = Section{
	Title: "Checks of the hosts",
	Intro: "Before every operation, Slipway checks the hosts that the operation changes. `slipway precheck` runs " +
		"only these checks. All problems of all hosts are reported at once: errors prevent the operation, " +
		"warnings do not. `--ignore-check ID` ignores an error, and the id is saved with the operation. Some " +
		"errors cannot be ignored; then the command reports [`unknown-check`](#unknown-check).",
	Messages: []Message{
		{
			ID:      "unknown-check",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`--ignore-check` names a check that does not exist or cannot be ignored.",
			Remedy:  "Use an id of this section that can be ignored, or omit the flag.",
		},
		{
			ID:      "host-facts",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The host was reached, but its facts could not be collected.",
			Remedy:  "This is a bug: run the command again with `--debug` and report it.",
		},
		{
			ID:      "systemd-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Process 1 is not systemd.",
			Cause: "The kubelet and containerd run as systemd units, so containers and systems with another init cannot be " +
				"nodes.",
			Remedy: "Remove the host from the file, or install a system with systemd on it.",
		},
		{
			ID:        "os-unknown",
			IsWarning: true,
			Summary:   "The system is not Debian, Ubuntu, RHEL, SUSE or a derivative of one of them.",
			Cause:     "Slipway needs no packages of the system, so it may work, but it is untested.",
			Remedy:    "No action is needed. Test such a system before you rely on it.",
		},
		{
			ID:      "kernel-too-old",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The kernel is too old.",
			Cause: "Kubernetes needs kernel 5.4 or newer. The nftables mode of kube-proxy, which is the default, needs " +
				"5.13.",
			Remedy: "Install a newer kernel. With a kernel older than 5.13, write `proxyMode: iptables` under " +
				"`spec.kubernetes`.",
		},
		{
			ID:      "kernel-feature-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The kernel lacks a feature, built in or as a module.",
			Cause: "containerd needs `overlay`, kube-proxy needs `nf_tables`, `ip_tables` or `ipvs`, and flannel needs " +
				"`vxlan`. Services between pods of one node need `br_netfilter`.",
			Remedy: "Install the modules. Some systems keep these modules in a separate package: `linux-modules-extra-…`, " +
				"`kernel-modules`.",
		},
		{
			ID:      "cgroup-v1",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host uses cgroup v1.",
			Cause:   "With the default settings, the kubelet of Kubernetes 1.35 and later does not start with cgroup v1.",
			Remedy: "Boot the host with cgroup v2, or write:\n\n" +
				"```yaml\n" +
				"spec:\n" +
				"  kubernetes:\n" +
				"    kubelet:\n" +
				"      config:\n" +
				"        failCgroupV1: false\n" +
				"```",
		},
		{
			ID:      "cgroup-controller-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A cgroup controller is missing.",
			Cause: "The kubelet needs the cgroup controllers `cpu`, `cpuset`, `memory` and `pids` (with cgroup v1 also " +
				"`cpuacct`, `devices` and `freezer`).",
			Remedy: "Enable the controller. Small boards often boot without `memory`: add `cgroup_enable=memory` to the " +
				"kernel arguments.",
		},
		{
			ID:      "architecture-mismatch",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file has another `arch` than the host.",
			Remedy:  "Correct the field, or remove it: Slipway then detects the architecture.",
		},
		{
			ID:      "architecture-not-in-bundle",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The bundle has no programs and images for the architecture of this host.",
			Remedy:  "Build a bundle that has them: `slipway bundle build --arch amd64,arm64`.",
		},
		{
			ID:      "program-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A program is missing on the host.",
			Cause: "The kubelet, kubeadm, the container runtime or Slipway need it: `systemctl`, `mount`, `umount`, " +
				"`losetup`, `modprobe` or `cp`. With `type: docker`, `nsenter` and `ip` are needed too, and on the " +
				"registry host `find`, `install` and `setpriv`.",
			Remedy: "Install the program. A minimal install with systemd has them, in the packages `systemd`, `mount`, " +
				"`util-linux`, `kmod`, `coreutils`, `findutils` and, for `ip`, `iproute2`.",
		},
		{
			ID:        "selinux-enforcing",
			IsWarning: true,
			Summary:   "SELinux is enforcing.",
			Cause:     "Slipway has no SELinux policy and is not tested with it.",
			Remedy: "If something does not start, `ausearch -m avc` shows what was denied. `setenforce 0` shows whether " +
				"SELinux is the cause.",
		},
		{
			ID:        "firewall-active",
			IsWarning: true,
			Summary:   "firewalld or ufw is active.",
			Remedy: "Open the ports in the message between the nodes, and allow traffic of the pod and service networks. Or " +
				"turn the firewall off.",
		},
		{
			ID:      "swap-on",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Swap is on.",
			Cause: "The kubelet does not start while swap is on. By default Slipway turns swap off; with " +
				"`system.skipConfigure` it does not.",
			Remedy: "Turn swap off, or write `failSwapOn: false` under `spec.kubernetes.kubelet.config`.",
		},
		{
			ID:      "machine-id-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`/etc/machine-id` is empty.",
			Cause:   "Nodes are identified by it.",
			Remedy:  "Create an id: `systemd-machine-id-setup`.",
		},
		{
			ID:      "machine-id-duplicate",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Two hosts have the same machine id.",
			Cause:   "One disk is a copy of the other, or both hosts were created from the same template.",
			Remedy: "Create a new id on all of them but one: `rm -f /etc/machine-id /var/lib/dbus/machine-id && " +
				"systemd-machine-id-setup && reboot`.",
		},
		{
			ID:      "same-machine",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Two hosts of the file are the same machine, reached at two addresses.",
			Remedy:  "Remove one of them.",
		},
		{
			ID:      "clock-skew",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The clock of the host differs by more than 5 seconds from the clocks of most other hosts.",
			Cause:   "Leases, certificates and logs depend on it.",
			Remedy:  "Write `ntpServers` under `spec.system`, or set the clock.",
		},
		{
			ID:        "clock-manager",
			IsWarning: true,
			Summary:   "The clock of this machine differs from the clocks of the hosts.",
			Cause: "The clocks of the hosts agree with each other, but differ from it by more than a minute. Certificates " +
				"and tokens that this machine creates may not be valid on the hosts.",
			Remedy: "Set the clock of this machine.",
		},
		{
			ID:      "internal-address-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The internal address is not on an interface of the host.",
			Cause: "Other nodes reach a host at `internalAddress` (default: `address`). It must be an address on one of " +
				"the interfaces of the host. It cannot be a name, a loopback address, or the outer address of a " +
				"translated network. Flannel uses the interface with this address, whatever the default route is. An " +
				"address that is only on `lo` does not identify an interface.",
			Remedy: "Write an address of the host at `internalAddress`. The message lists the addresses of the host.",
		},
		{
			ID:      "dual-stack-address-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host lacks an address of one IP version.",
			Cause: "With two ranges at `spec.network.podCIDR` every host needs an address of each IP version that is not " +
				"link-local, because the node is registered with both. Slipway takes the one on the interface that has " +
				"`internalAddress`. Flannel uses one interface for both: with `network.plugin: flannel` that interface " +
				"must have both addresses.",
			Remedy: "Give the host an address of each IP version, or use one range.",
		},
		{
			ID:      "address-in-use",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The address of a host, or of the API, is in use elsewhere.",
			Cause: "The address of a host is also on an interface of another host, so packets can reach the wrong host. " +
				"Or, with `mode: keepalived` or `kube-vip`, the API address belongs to a host, or something answers at " +
				"it.",
			Remedy: "Remove it from the host that it does not belong to. With `mode: keepalived` or `kube-vip`, write an " +
				"unused address at `spec.controlPlaneEndpoint.address`.",
		},
		{
			ID:      "network-overlap",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The pod or the service network overlaps with a network that the host is in or has a route to.",
			Cause: "It is an error if the other network is inside the network of the cluster: its machines could no longer " +
				"be reached. It is a warning if the network of the cluster is inside a wider network: pods cannot reach " +
				"machines in that part.",
			Remedy: "Write another network at `spec.network.podCIDR` or `spec.network.serviceCIDR`.",
		},
		{
			ID:        "default-route-missing",
			IsWarning: true,
			Summary:   "The host has neither a default route nor a route to the service network.",
			Cause: "Pods work, but programs on the host cannot connect to the address of a Service. The API server is such " +
				"a program: it calls admission webhooks and aggregated APIs through their Services. The route does not " +
				"have to lead anywhere: kube-proxy changes the destination before the packet leaves.",
			Remedy: "Add a default route on the interface with the address of the node. Put it into the network settings of " +
				"the host, so that it survives a reboot.",
		},
		{
			ID:      "hosts-file-conflict",
			Code:    v1alpha1.ErrorConflict,
			Summary: "`/etc/hosts` has another line for a name of the cluster, with a different address.",
			Cause: "The first line counts, and the lines of Slipway come last. For the API name this is an error, because " +
				"the node would connect to the wrong address. For the name of another host it is a warning.",
			Remedy: "Remove or correct the other line.",
		},
		{
			ID:      "dns-server-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Pods would receive no usable DNS server.",
			Cause: "Pods receive the DNS servers of their host. These are in `/etc/resolv.conf`, or, with " +
				"systemd-resolved, in its own file. Without the file the kubelet cannot start pods. If it has no " +
				"server, or a server on loopback, CoreDNS does not start. On a node that is already running it is a " +
				"warning.",
			Remedy: "Write `upstream` under `spec.dns`: a server, or any address on a network without DNS.",
		},
		{
			ID:      "etcd-data-lost",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The host is an etcd member, and its data is gone.",
			Cause: "A disk is not mounted or was replaced. The other members rely on what this member has acknowledged. It " +
				"must not start empty under its name, because committed changes could be lost. A cluster with a single " +
				"control plane would come up empty. Neither Slipway nor the host starts it: its `etcd.service`, or with " +
				"stacked etcd its `kubelet.service`, does not start while `/var/lib/etcd/member` is missing.\n\n" +
				"The cluster keeps working while more than half of the members are healthy. This error cannot be " +
				"ignored.",
			Remedy: "Mount the disk again: the service then starts automatically. If the data is lost, remove the node " +
				"(`slipway delete node NAME`) and add it again: it receives the data from the others.",
		},
		{
			ID:      "etcd-unreachable",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "A control plane cannot reach an external etcd at `spec.etcd.external.endpoints`.",
			Cause: "Nothing accepts the connection. It is a warning if other endpoints are reachable, and an error if none " +
				"is.",
			Remedy: "Start etcd, correct the endpoints, or allow connections from the host.",
		},
		{
			ID:      "endpoint-unreachable",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "A worker cannot reach the load balancer at `spec.controlPlaneEndpoint.address`.",
			Cause: "Nothing accepts the connection. On a node of a running cluster it is a warning. The load balancer must " +
				"accept connections before there are API servers behind it.",
			Remedy: "Start the load balancer, correct the address, or allow connections from the host. If your load " +
				"balancer cannot, use `--ignore-errors`.",
		},
		{
			ID:      "other-cluster",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The host belongs to another cluster.",
			Cause: "Or it belongs to a cluster of this name that was created by another manager (or with another " +
				"`SLIPWAY_HOME`) and is unknown here.",
			Remedy: "Remove the host from the file, or delete that cluster first: `slipway delete cluster -f FILE` also " +
				"works for a cluster that this manager does not know.",
		},
		{
			ID:      "leftovers",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The host has files of a cluster that Slipway did not create.",
			Cause: "Empty directories, such as a new disk mounted at `/var/lib/etcd` with its `lost+found`, are not " +
				"leftovers. On a host with an etcd member any other content of `/var/lib/etcd` is reported: etcd needs " +
				"an empty directory.",
			Remedy: "If that cluster is no longer needed, remove it with the tool that created it: `kubeadm reset -f`, " +
				"`k3s-uninstall.sh`. To keep that cluster, do not use the host.",
		},
		{
			ID:      "runtime-running",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Another container runtime is running on the host, or has left its files.",
			Cause: "It is containerd, Docker, CRI-O, k3s or k0s, or has left its `cri-docker.service` in " +
				"`/etc/systemd/system`. Slipway installs its own containerd, or Docker, in the same directories, and " +
				"two runtimes would stop each other's containers. Slipway uses that file to detect the runtime of a " +
				"host.",
			Remedy: "Remove the other runtime and that file from the host, or remove the host from the cluster file.",
		},
		{
			ID:      "other-network",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The host has files or interfaces of another pod network.",
			Cause: "`/etc/cni/net.d` has configuration files of another pod network. containerd uses the first file by " +
				"name. Or the host still has the interfaces of a pod network (`cni0`, `flannel.1`), which `kubeadm " +
				"reset` does not remove: the plugin rejects a `cni0` with another address. Or " +
				"`/var/lib/cni/networks/cbr0` reserves addresses for pods that no longer exist.",
			Remedy: "Remove them with the commands of the hint.",
		},
		{
			ID:      "unit-drop-in",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A systemd drop-in replaces the command of a service that Slipway installs.",
			Cause: "An example is `10-kubeadm.conf` of a kubelet package. The service would run without the settings of " +
				"Slipway, or be another program. On a node of the cluster it is a warning. Drop-ins with other " +
				"settings, such as a proxy, are not reported.",
			Remedy: "Remove the package or the file.",
		},
		{
			ID:        "directory-not-empty",
			IsWarning: true,
			Summary:   "A directory for the data of a node already has content.",
			Cause: "It is one of `/var/lib/kubelet`, `/var/lib/containerd`, `/var/lib/docker`, `/var/lib/cri-dockerd`. " +
				"When the host leaves the cluster, Slipway removes what was added directly in this directory, and the " +
				"keys and pod volumes of the node. Images inside directories that existed before remain, and the report " +
				"lists them.",
			Remedy: "To let Slipway restore the host completely, empty the directory first.",
		},
		{
			ID:        "files-replaced",
			IsWarning: true,
			Summary:   "The host has files that Slipway replaces with its own.",
			Cause: "They are programs, settings or services: `kubectl` or `containerd` in `/usr/local/bin`, " +
				"`/etc/containerd/config.toml`, a `kubelet.service`. Slipway saves them in the ledger of the host, and " +
				"`delete cluster` restores them.",
			Remedy: "Stop here if other programs on the host need them.",
		},
		{
			ID:      "port-in-use",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A process listens on a port that a component of the node needs.",
			Cause:   "The message names the process and the component.",
			Remedy:  "Stop the process, or move it to another port.",
		},
		{
			ID:      "cpu-too-few",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "A control plane needs two CPUs.",
			Cause:   "With one, the API server and etcd time out under load. kubeadm has the same requirement.",
			Remedy:  "For a test cluster, use `--ignore-check cpu-too-few`.",
		},
		{
			ID:      "memory-too-small",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "A control plane needs 1700 MiB of memory, as with kubeadm; a worker needs 700 MiB.",
			Remedy:  "Add memory, or change the role of the host.",
		},
		{
			ID:        "memory-low",
			IsWarning: true,
			Summary:   "The host has little memory for pods.",
			Cause:     "It has less than 2 GB.",
			Remedy:    "Add memory if many pods will run on the host.",
		},
		{
			ID:      "disk-too-small",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "The disk is too small for the bundle and etcd.",
			Cause: "The file systems that hold `/var/lib/containerd` (with Docker, `/var/lib/docker`), `/var/lib/kubelet`, " +
				"`/var/lib/etcd`, `/var/lib/slipway` and `/usr/local/bin` do not have enough space for the unpacked " +
				"bundle and for etcd. The needs of directories on one file system are added up. On a node that is " +
				"already running, less than 256 MiB is an error.\n\n" +
				"For an upgrade, a node needs space for the whole next bundle in addition to the current one. This is " +
				"the size of the bundle below `/var/lib/slipway` and four times that for images, which are kept packed " +
				"and unpacked. It is also 256 MiB for containerd, 512 MiB for programs, and 256 MiB that stay free. At " +
				"the end of each minor version, Slipway removes the files of earlier versions " +
				"([Upgrades](upgrade.md#what-happens)); `slipway apply` does the same. The kubelet then removes the " +
				"images when the disk fills up; with Docker they are removed at once.",
			Remedy: "Free disk space, or mount a larger file system.",
		},
		{
			ID:        "disk-low",
			IsWarning: true,
			Summary:   "Little disk space will be left.",
			Cause:     "The kubelet will delete images (below 15 %) and evict pods (below 10 %).",
			Remedy: "If the disk is small on purpose, set `imageGCHighThresholdPercent` and `evictionHard` under " +
				"`spec.kubernetes.kubelet.config`.",
		},
		{
			ID:      "inodes-too-few",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "The file system has too few free inodes.",
			Cause: "Images consist of many small files. Fewer than 10 000 free inodes is an error, fewer than 100 000 a " +
				"warning.",
			Remedy: "Delete small files, or mount a file system with more inodes.",
		},
		{
			ID:      "filesystem-unfit",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file system is not suitable.",
			Cause: "Image layers cannot be stacked on an overlay or a network file system, and etcd loses its leader on a " +
				"slow network file system.",
			Remedy: "Mount a local ext4 or xfs file system there.",
		},
		{
			ID:      "filesystem-noexec",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Programs cannot run on this file system.",
			Cause: "`/usr/local/bin` or `/opt/cni/bin` is on a file system mounted with `noexec`, but Slipway installs " +
				"programs there.",
			Remedy: "Mount it without that option.",
		},
		{
			ID:      "filesystem-read-only",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A directory that a node writes to is on a file system mounted read-only.",
			Remedy:  "Mount it writable. If the kernel made it read-only, the kernel log says why.",
		},
		{
			ID:        "filesystem-temporary",
			IsWarning: true,
			Summary:   "The data of etcd would be in memory, and the next reboot would delete it.",
			Remedy:    "Mount a disk at `/var/lib/etcd`.",
		},
	},
}
