package precheck

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/Masterminds/semver/v3"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// checkOtherCluster reports a host that Slipway set up for another cluster.
func (r *report) checkOtherCluster() bool {
	f := r.host.Facts
	if r.host.IsManagedFor(r.cluster.Name) && !r.options.Recorded && !r.onlyRemoves() && HoldsCluster(r.host.Facts) {
		r.fail(idOtherCluster, "use the manager that created the cluster, or delete the cluster from here: slipway delete cluster -f FILE",
			"belongs to a cluster %s that this manager does not know", f.Cluster)
		return true
	}
	if !f.Ledger || f.Cluster == "" || f.Cluster == r.cluster.Name {
		return false
	}
	r.fail(idOtherCluster,
		fmt.Sprintf("remove the host from this file, or delete the other cluster first: slipway delete cluster %s", f.Cluster),
		"belongs to cluster %s; a host can be in only one cluster", f.Cluster)
	return true
}

// HoldsCluster reports whether a host was not only prepared, but has parts of a cluster.
func HoldsCluster(f *op.HostFacts) bool {
	for path := range facts.LeftoverPaths() {
		if slices.Contains(f.Present, path) {
			return true
		}
	}
	return false
}

// checkMachine checks the operating system and the architecture.
func (r *report) checkMachine() {
	f, spec := r.host.Facts, r.host.Spec
	if f.Systemd == "" {
		r.fail(idSystemd, "use a machine or virtual machine that boots with systemd",
			"process 1 is not systemd, which is needed to run the kubelet and containerd")
	}
	if !knownOS(f.OS) {
		r.warn(idOS, "continue if the system is similar to Debian, Ubuntu, RHEL or SUSE",
			"runs %s, which Slipway does not know; it knows Debian, Ubuntu, RHEL, SUSE and their derivatives", orUnknown(f.OS.Name))
	}
	if spec.Arch != "" && spec.Arch != f.Arch {
		r.fail(idArchMismatch, fmt.Sprintf("write %s at %s, or remove the field", f.Arch, r.fieldPath("arch")),
			"has architecture %s, but the cluster file says %s", f.Arch, spec.Arch)
	}
	if a := r.options.Architectures; a != nil && !slices.Contains(a, f.Arch) {
		r.fail(idArchNotInBundle, "build a bundle with this architecture: slipway bundle build --arch "+f.Arch,
			"has architecture %s, but the bundle has %s", f.Arch, joinItems(a))
	}
	if f.MachineID == "" {
		r.fail(idMachineIDMissing, "run systemd-machine-id-setup on the host", "has no machine id in /etc/machine-id; nodes are identified by it")
	}
	var missing []string
	for _, program := range facts.RequiredPrograms(r.cluster, spec.Roles) {
		if !slices.ContainsFunc(facts.ProgramDirs(), func(dir string) bool { return slices.Contains(f.Present, dir+"/"+program) }) {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		r.fail(idProgram, "install the programs with the packages of the system: util-linux, kmod, coreutils, findutils, systemd, iproute2",
			"lacks %s, which the kubelet, the container runtime or Slipway need", joinItems(missing))
	}
}

func knownOS(os op.OS) bool {
	known := []string{
		"debian", "ubuntu", "rhel", "centos", "fedora", "rocky", "almalinux", "ol", "amzn", "sles", "suse", "opensuse",
		"opensuse-leap", "opensuse-tumbleweed",
	}
	return slices.ContainsFunc(append([]string{os.ID}, os.Like...), func(id string) bool { return slices.Contains(known, id) })
}

func orUnknown(s string) string {
	if s == "" {
		return "an unnamed system"
	}
	return s
}

var kernelVersion = regexp.MustCompile(`^(\d+)\.(\d+)`)

// kernelAtLeast returns false for a kernel whose version cannot be parsed.
func kernelAtLeast(release string, major, minor int) bool {
	m := kernelVersion.FindStringSubmatch(release)
	if m == nil {
		return false
	}
	a, _ := strconv.Atoi(m[1])
	b, _ := strconv.Atoi(m[2])
	return a > major || a == major && b >= minor
}

// checkKernel checks the version and the features of the kernel. The oldest version that
// Kubernetes supports is 5.4 (system verification of kubeadm); the nftables mode of
// kube-proxy needs 5.13.
func (r *report) checkKernel() {
	f, c := r.host.Facts, r.cluster
	mode := c.Spec.Kubernetes.ProxyMode
	nft := mode == "" || mode == "nftables"
	switch {
	case !kernelAtLeast(f.Kernel, 5, 4):
		r.fail(idKernel, "install a newer kernel or operating system", "runs kernel %s; Kubernetes needs 5.4 or newer", f.Kernel)
	case nft && !kernelAtLeast(f.Kernel, 5, 13):
		r.fail(idKernel, "write proxyMode: iptables under spec.kubernetes, or install a newer kernel",
			"runs kernel %s; kube-proxy needs 5.13 or newer for proxyMode nftables", f.Kernel)
	}
	need := map[string]string{
		"overlay":      "containerd",
		"br_netfilter": "Services between pods of one node",
	}
	switch {
	case nft:
		need["nf_tables"] = "kube-proxy"
	case mode == "iptables":
		need["ip_tables"] = "kube-proxy"
	case mode == "ipvs":
		need["ip_tables"], need["ipvs"] = "kube-proxy", "kube-proxy"
	}
	if hostroles.UsesFlannelVXLAN(c) {
		need["vxlan"] = "flannel"
	}
	for _, feature := range slices.Sorted(maps.Keys(need)) {
		if !slices.Contains(f.KernelFeatures, feature) {
			r.fail(idKernelFeature, kernelRemedy(feature), "the kernel does not have %s, which is needed for %s", feature, need[feature])
		}
	}
}

func kernelRemedy(feature string) string {
	remedy := "install the package with additional kernel modules (linux-modules-extra, kernel-modules), or another kernel"
	switch feature {
	case "vxlan":
		return "write backend: host-gw under spec.network.flannel if all nodes share one network segment; otherwise " + remedy
	case "nf_tables":
		return "write proxyMode: iptables under spec.kubernetes; otherwise " + remedy
	case "ipvs":
		return "write proxyMode: nftables or iptables under spec.kubernetes; otherwise " + remedy
	}
	return remedy
}

// checkCgroups checks the cgroup hierarchy. Kubelets from 1.35 on do not start on cgroup v1
// unless failCgroupV1 is false.
func (r *report) checkCgroups() {
	f := r.host.Facts
	want := []string{"cpu", "cpuset", "memory", "pids"}
	if f.CgroupVersion == 1 {
		want = append(want, "cpuacct", "devices", "freezer")
		if refusesCgroupV1(r.cluster.Spec.Kubernetes.Version) && r.cluster.Spec.Kubernetes.Kubelet.Config["failCgroupV1"] != false {
			r.fail(idCgroupV1,
				"write failCgroupV1: false under spec.kubernetes.kubelet.config, or boot the host with cgroup v2 "+
					"(kernel argument systemd.unified_cgroup_hierarchy=1)",
				"uses cgroup v1; the kubelet of Kubernetes 1.35 and later does not start with cgroup v1 unless failCgroupV1 is false")
		}
	}
	var missing []string
	for _, name := range want {
		if !slices.Contains(f.CgroupControllers, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		r.fail(idCgroupController, "enable the controllers with kernel arguments, such as cgroup_enable=memory cgroup_enable=cpuset, and reboot",
			"lacks the cgroup controllers %s, which the kubelet needs", joinItems(missing))
	}
}

// refusesCgroupV1 also returns true for an empty version, which means the newest known
// one.
func refusesCgroupV1(kubernetes string) bool {
	v, err := semver.NewVersion(kubernetes)
	return err != nil || !v.LessThan(semver.New(1, 35, 0, "", ""))
}
