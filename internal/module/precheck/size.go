package precheck

import (
	"slices"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec/hostroles"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	// The requirements of kubeadm for a control plane (its checks NumCPU and Mem).
	controlPlaneCPUs   = 2
	controlPlaneMemory = 1700 * mib
	// The kubelet, containerd, kube-proxy and flannel of a worker take about 250 MiB; the
	// system and the page cache take the same amount.
	workerMemory = 700 * mib
	// The documentation of Kubernetes requires 2 GB for any machine; a machine sold with 2
	// GB has a little less.
	lowMemory = 1800 * mib
	// etcd of a small cluster takes about 100 MiB. The rest is for the system and the page
	// cache, without which etcd reads its data from the disk.
	etcdMemory = 400 * mib
	// A registry takes about 50 MiB, and the data it sends at a time.
	registryMemory = 256 * mib
)

// checkSize checks CPUs and memory.
func (r *report) checkSize() {
	f := r.host.Facts
	role, memory := "worker", uint64(workerMemory)
	if !r.isNode() {
		role, memory = "host with only etcd", etcdMemory
		if !hostroles.RunsEtcd(r.cluster, r.host.Spec.Roles) {
			role, memory = "registry", registryMemory
		}
	}
	if r.isControlPlane() {
		role, memory = "control plane", controlPlaneMemory
		if f.CPUs < controlPlaneCPUs {
			r.fail(idCPU, "add CPUs, or change the role of the host", "has %d CPU; a control plane needs %d", f.CPUs, controlPlaneCPUs)
		}
	}
	switch {
	case f.MemoryBytes < memory:
		r.fail(idMemory, "add memory, or change the role of the host",
			"has %d MiB of memory; a %s needs %d MiB", f.MemoryBytes/mib, role, memory/mib)
	case f.MemoryBytes < lowMemory && r.isNode():
		r.warn(idMemoryLow, "add memory (2 GiB or more) to run many pods",
			"has %d MiB of memory, which leaves little for pods", f.MemoryBytes/mib)
	}
}

const (
	// usualBundle is the content that a control plane receives, compressed: 130 MiB of
	// programs and 170 MiB of images.
	usualBundle = 300 * mib
	// unpacked is the factor by which content grows: containerd keeps the compressed
	// layers in addition to the unpacked ones, Docker only while it loads them.
	unpacked = 4
	// etcdPrograms is the content that a host with only etcd receives, compressed.
	etcdPrograms = 64 * mib
	// leastFree is the free space below which a running node stops working.
	leastFree = 256 * mib
	// leastInodes is enough for the images of the bundle, the kubelet and little more.
	// Below lowInodes, larger images begin to fail.
	leastInodes = 10_000
	lowInodes   = 100_000
)

// neededSpace returns the space that a new node needs in each directory, in bytes.
func (r *report) neededSpace() map[string]uint64 {
	bundle := uint64(usualBundle)
	if r.options.ImagesBytes > 0 {
		bundle = uint64(r.options.ImagesBytes)
	}
	need := map[string]uint64{
		facts.DirBlobs:      bundle,
		facts.DirContainerd: 256 * mib,
		facts.DirKubelet:    256 * mib,
		facts.DirPrograms:   512 * mib,
	}
	need[facts.DirImages(r.cluster)] += unpacked * bundle
	if !r.isNode() {
		need = map[string]uint64{facts.DirBlobs: etcdPrograms, facts.DirPrograms: unpacked * etcdPrograms}
	}
	if hostroles.RunsEtcd(r.cluster, r.host.Spec.Roles) {
		need[facts.DirEtcd] = gib
	}
	if p := r.cluster.Spec.Registry.Private; p != nil && r.isRegistry() {
		need[facts.DirBlobs] += bundle // while it is transferred
		need[p.Directory] = bundle + gib
	}
	if r.options.Upgrades { // the node already has its data
		for _, dir := range []string{facts.DirKubelet, facts.DirEtcd} {
			if need[dir] > 0 {
				need[dir] = 0
			}
		}
	}
	return need
}

// checkDisks checks the file systems that hold the data of a node. The needs of
// directories on one file system are added up.
func (r *report) checkDisks() {
	need := r.neededSpace()
	type volume struct {
		dirs []string
		need uint64
		disk op.Disk
	}
	var volumes []*volume
	byMount := map[string]*volume{}
	for _, d := range r.host.Facts.Disks {
		n, wanted := need[d.Dir]
		if !wanted {
			continue
		}
		r.checkFilesystem(d)
		mount := d.Mount
		if mount == "" {
			mount = d.Dir
		}
		v := byMount[mount]
		if v == nil {
			v = &volume{disk: d}
			byMount[mount] = v
			volumes = append(volumes, v)
		}
		v.dirs, v.need = append(v.dirs, d.Dir), v.need+n
	}
	for _, v := range volumes {
		slices.Sort(v.dirs)
		if r.isOwnHost() {
			r.checkRemainingSpace(v.disk, joinItems(v.dirs), v.need)
			continue
		}
		r.checkFreeSpace(v.disk, joinItems(v.dirs), v.need)
	}
	for _, d := range r.host.Facts.Disks {
		if d.NoExec && (d.Dir == facts.DirPrograms || d.Dir == facts.DirPlugins) {
			r.fail(idFilesystemPrograms, "mount this file system without noexec",
				"%s is on a file system mounted with noexec, but programs are installed there", d.Dir)
		}
	}
}

// checkFilesystem checks the type of the file system of a directory.
func (r *report) checkFilesystem(d op.Disk) {
	network := slices.Contains([]string{"nfs", "nfs4", "cifs", "ceph", "glusterfs", "fuse.glusterfs", "9p"}, d.FS)
	switch {
	case d.ReadOnly:
		r.fail(idFilesystemReadOnly, "mount it writable, or mount a separate file system there",
			"%s is on a file system mounted read-only", d.Dir)
	case d.Dir == facts.DirImages(r.cluster) && (d.FS == "overlay" || network):
		r.fail(idFilesystem, "mount ext4 or xfs there",
			"%s is on %s, which cannot stack image layers; use a local file system such as ext4 or xfs", d.Dir, d.FS)
	case d.Dir == facts.DirEtcd && network:
		r.fail(idFilesystem, "mount a local disk there", "%s is on %s; etcd loses its leader when the disk is slow", d.Dir, d.FS)
	case d.Dir == facts.DirEtcd && (d.FS == "tmpfs" || d.FS == "ramfs"):
		r.warn(idFilesystemTemporary, "mount a disk there", "%s is in memory (%s): the next reboot deletes the data of the cluster", d.Dir, d.FS)
	}
}

// checkFreeSpace checks the disk space for a new node.
func (r *report) checkFreeSpace(d op.Disk, dirs string, need uint64) {
	left := uint64(0)
	if d.FreeBytes > need {
		left = d.FreeBytes - need
	}
	switch {
	case d.FreeBytes < need:
		r.fail(idDisk, "free disk space, or mount a larger file system there",
			"has %s free for %s; this node needs %s", bytesize.Format(d.FreeBytes), dirs, bytesize.Format(need))
	case left < d.TotalBytes/100*15 && !r.keepsImages() && r.isNode():
		r.warn(idDiskLow, "free disk space, or set imageGCHighThresholdPercent and evictionHard under spec.kubernetes.kubelet.config",
			"will have %s of %s left for %s; "+
				"below 15 %% the kubelet deletes images, and then evicts pods", bytesize.Format(left), bytesize.Format(d.TotalBytes), dirs)
	}
	if d.Inodes == 0 {
		return
	}
	switch {
	case d.FreeInodes < leastInodes:
		r.fail(idInodes, "delete small files, or recreate the file system with more inodes",
			"has %d inodes free for %s; this node needs %d", d.FreeInodes, dirs, leastInodes)
	case d.FreeInodes < lowInodes:
		r.warn(idInodes, "delete small files, or recreate the file system with more inodes",
			"has %d inodes free for %s; larger images need more than %d", d.FreeInodes, dirs, lowInodes)
	}
}

// checkRemainingSpace checks the disk space on a running node, which only needs space
// for another version.
func (r *report) checkRemainingSpace(d op.Disk, dirs string, need uint64) {
	switch {
	case r.options.Upgrades && d.FreeBytes < need+leastFree:
		r.fail(idDisk, "free disk space, or mount a larger file system there",
			"has %s free for %s; "+
				"it needs %s to hold another version in addition to the current one", bytesize.Format(d.FreeBytes),
			dirs, bytesize.Format(need+leastFree))
	case d.FreeBytes < leastFree:
		r.fail(idDisk, "free disk space: the node stops working without it",
			"has %s free for %s; the node needs %s to keep working", bytesize.Format(d.FreeBytes), dirs, bytesize.Format(leastFree))
	case d.FreeBytes < d.TotalBytes/10 && !r.keepsImages() && r.isNode():
		r.warn(idDiskLow, "free disk space, or mount a larger file system there",
			"has %s of %s left for %s; below 10 %% the kubelet evicts pods", bytesize.Format(d.FreeBytes), bytesize.Format(d.TotalBytes), dirs)
	}
}

// keepsImages reports whether the user has set the thresholds of the kubelet.
func (r *report) keepsImages() bool {
	conf := r.cluster.Spec.Kubernetes.Kubelet.Config
	return conf["imageGCHighThresholdPercent"] != nil && conf["evictionHard"] != nil
}
