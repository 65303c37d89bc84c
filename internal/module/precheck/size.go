package precheck

import (
	"slices"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/iec"
	"slipway.dev/slipway/internal/node/op"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	// What kubeadm asks of a control plane (its NumCPU and Mem checks).
	controlPlaneCPUs   = 2
	controlPlaneMemory = 1700 * mib
	// A worker's kubelet, containerd, kube-proxy and flannel take about
	// 250 MiB, system and page cache as much again.
	workerMemory = 700 * mib
	// Kubernetes' documentation says 2 GB for any machine; one sold as that
	// has a little less.
	lowMemory = 1800 * mib
	// etcd of a small cluster takes about 100 MiB; the rest is the system's
	// and page cache, without which it reads its data from the disk.
	etcdMemory = 400 * mib
	// A registry takes some 50 MiB, and what it sends at a time.
	registryMemory = 256 * mib
)

// size judges processors and memory.
func (r *report) size() {
	f := r.host.Facts
	role, memory := "worker", uint64(workerMemory)
	if !r.node() {
		role, memory = "host with etcd alone", etcdMemory
		if !facts.RunsEtcd(r.cluster, r.host.Spec.Roles) {
			role, memory = "registry", registryMemory
		}
	}
	if r.controlPlane() {
		role, memory = "control plane", controlPlaneMemory
		if f.CPUs < controlPlaneCPUs {
			r.fail(idCPU, "give it more, or another role", "has %d CPU; a control plane needs %d", f.CPUs, controlPlaneCPUs)
		}
	}
	switch {
	case f.MemoryBytes < memory:
		r.fail(idMemory, "give it more, or another role", "has %d MiB of memory; a %s needs %d MiB", f.MemoryBytes/mib, role, memory/mib)
	case f.MemoryBytes < lowMemory && r.node():
		r.warn(idMemoryLow, "give it 2 GiB or more if it is to run much", "has %d MiB of memory; that leaves little room for pods", f.MemoryBytes/mib)
	}
}

const (
	// usualBundle is what a control plane receives, packed: programs 130
	// MiB, images 170.
	usualBundle = 300 * mib
	// unpacked is how much larger content becomes: containerd keeps the
	// packed layers beside the unpacked ones, Docker while it loads them.
	unpacked = 4
	// etcdPrograms is what a host with etcd alone receives, packed.
	etcdPrograms = 64 * mib
	// leastFree is below which a node that runs already stops working.
	leastFree = 256 * mib
	// leastInodes suffice for the bundle's images, the kubelet and little
	// more; lowInodes is where larger images begin to fail.
	leastInodes = 10_000
	lowInodes   = 100_000
)

// room is what a new node needs in each place, in bytes.
func (r *report) room() map[string]uint64 {
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
	if !r.node() {
		need = map[string]uint64{facts.DirBlobs: etcdPrograms, facts.DirPrograms: unpacked * etcdPrograms}
	}
	if facts.RunsEtcd(r.cluster, r.host.Spec.Roles) {
		need[facts.DirEtcd] = gib
	}
	if p := r.cluster.Spec.Registry.Private; p != nil && r.registry() {
		need[facts.DirBlobs] += bundle // on its way
		need[p.Directory] = bundle + gib
	}
	if r.options.Upgrades { // its own data it has
		for _, dir := range []string{facts.DirKubelet, facts.DirEtcd} {
			if need[dir] > 0 {
				need[dir] = 0
			}
		}
	}
	return need
}

// disks judges the file systems that hold a node's data. Directories on the
// same one are taken together.
func (r *report) disks() {
	need := r.room()
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
		r.filesystem(d)
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
		if r.ours() {
			r.remaining(v.disk, list(v.dirs), v.need)
			continue
		}
		r.free(v.disk, list(v.dirs), v.need)
	}
	for _, d := range r.host.Facts.Disks {
		if d.NoExec && (d.Dir == facts.DirPrograms || d.Dir == facts.DirPlugins) {
			r.fail(idFilesystemPrograms, "mount it without noexec", "%s is on a file system mounted noexec; programs go there", d.Dir)
		}
	}
}

// filesystem judges what kind of file system holds a directory.
func (r *report) filesystem(d op.Disk) {
	network := slices.Contains([]string{"nfs", "nfs4", "cifs", "ceph", "glusterfs", "fuse.glusterfs", "9p"}, d.FS)
	switch {
	case d.ReadOnly:
		r.fail(idFilesystemReadOnly, "mount it writable, or mount a file system of its own there", "%s is on a file system mounted read-only", d.Dir)
	case d.Dir == facts.DirImages(r.cluster) && (d.FS == "overlay" || network):
		r.fail(idFilesystem, "mount ext4 or xfs there", "%s is on %s, on which the layers of images cannot be stacked; it needs a local file system such as ext4 or xfs", d.Dir, d.FS)
	case d.Dir == facts.DirEtcd && network:
		r.fail(idFilesystem, "mount a local disk there", "%s is on %s; etcd loses its members' votes when a disk answers slowly", d.Dir, d.FS)
	case d.Dir == facts.DirEtcd && (d.FS == "tmpfs" || d.FS == "ramfs"):
		r.warn(idFilesystemTemporary, "mount a disk there", "%s is in memory (%s): the cluster's data is gone with the next reboot", d.Dir, d.FS)
	}
}

// free judges the room for a new node.
func (r *report) free(d op.Disk, dirs string, need uint64) {
	left := uint64(0)
	if d.FreeBytes > need {
		left = d.FreeBytes - need
	}
	switch {
	case d.FreeBytes < need:
		r.fail(idDisk, "make room, or mount a larger file system there",
			"has %s free for %s; this node needs %s there", iec.Bytes(d.FreeBytes), dirs, iec.Bytes(need))
	case left < d.TotalBytes/100*15 && !r.keepsImages() && r.node():
		r.warn(idDiskLow, "make room; or set imageGCHighThresholdPercent and evictionHard under spec.kubernetes.kubelet.config",
			"will have %s of %s left for %s; below 15 %% the kubelet deletes images, and then evicts pods", iec.Bytes(left), iec.Bytes(d.TotalBytes), dirs)
	}
	if d.Inodes == 0 {
		return
	}
	switch {
	case d.FreeInodes < leastInodes:
		r.fail(idInodes, "delete small files, or make the file system anew with more inodes",
			"has %d inodes free for %s; this node needs %d", d.FreeInodes, dirs, leastInodes)
	case d.FreeInodes < lowInodes:
		r.warn(idInodes, "delete small files, or make the file system anew with more inodes",
			"has %d inodes free for %s; larger images need more than %d", d.FreeInodes, dirs, lowInodes)
	}
}

// remaining judges the room on a node that runs already, and gets no more than
// is needed for another version.
func (r *report) remaining(d op.Disk, dirs string, need uint64) {
	switch {
	case r.options.Upgrades && d.FreeBytes < need+leastFree:
		r.fail(idDisk, "make room, or mount a larger file system there", "has %s free for %s; to hold another version beside this one it needs %s", iec.Bytes(d.FreeBytes), dirs, iec.Bytes(need+leastFree))
	case d.FreeBytes < leastFree:
		r.fail(idDisk, "make room: a node without it stops working", "has %s free for %s; it needs %s to go on", iec.Bytes(d.FreeBytes), dirs, iec.Bytes(leastFree))
	case d.FreeBytes < d.TotalBytes/10 && !r.keepsImages() && r.node():
		r.warn(idDiskLow, "make room, or mount a larger file system there",
			"has %s of %s left for %s; below 10 %% the kubelet evicts pods", iec.Bytes(d.FreeBytes), iec.Bytes(d.TotalBytes), dirs)
	}
}

// keepsImages says that the user has set the kubelet's own thresholds.
func (r *report) keepsImages() bool {
	conf := r.cluster.Spec.Kubernetes.Kubelet.Config
	return conf["imageGCHighThresholdPercent"] != nil && conf["evictionHard"] != nil
}
