package op

// HostFacts is what a host says of itself: the answer to Facts. Gauges (free
// memory, free disk, time) enter a plan only as verdicts.
type HostFacts struct {
	Hostname  string `json:"hostname"`
	MachineID string `json:"machineID"`
	BootID    string `json:"bootID"`
	Arch      string `json:"arch"` // GOARCH
	Kernel    string `json:"kernel"`
	OS        OS     `json:"os"`

	CPUs        int    `json:"cpus"`
	MemoryBytes uint64 `json:"memoryBytes"`

	CgroupVersion     int      `json:"cgroupVersion"` // 1 or 2
	CgroupControllers []string `json:"cgroupControllers"`
	Systemd           string   `json:"systemd"` // version, "" if it is not pid 1
	SELinux           string   `json:"selinux"` // enforcing, permissive, disabled
	// ResourceCapability says that the helper holds CAP_SYS_RESOURCE.
	ResourceCapability bool `json:"resourceCapability"`

	Links     []string  `json:"links,omitempty"` // network links, by name
	Addresses []Address `json:"addresses"`
	Routes    []string  `json:"routes"` // destination prefixes in the main table, "default" included
	Swap      []string  `json:"swap"`   // active swap devices
	// Firewall is what drops packets by default: active services (firewalld,
	// ufw), else chains of nftables.
	Firewall  []string   `json:"firewall"`
	Listeners []Listener `json:"listeners"`
	// Present are those of Facts.Paths that exist; an empty file does not
	// count: a crash has left it.
	Present []string `json:"present"`
	Disks   []Disk   `json:"disks"` // one for each of Facts.Dirs
	// Filled are those of Facts.Contents that hold something besides lost+found.
	Filled []string `json:"filled,omitempty"`
	// Units are those of Facts.Units that systemd has, or has settings for.
	Units []UnitFacts `json:"units,omitempty"`
	// KernelFeatures are names out of a fixed list that the kernel has:
	// overlay, br_netfilter, nf_tables, ip_tables, vxlan, ipvs.
	KernelFeatures []string `json:"kernelFeatures"`
	// Named are lines of others in the hosts file that give one of
	// Facts.Names an address.
	Named []Named `json:"named,omitempty"`
	// Resolver is where the kubelet takes DNS servers from; nil is not known.
	Resolver *Resolver `json:"resolver,omitempty"`
	// Unreached are those of Facts.Reach that accept no connection.
	Unreached []string `json:"unreached,omitempty"`
	// Ledger says that Slipway has changed this host; Cluster is for whom.
	Ledger  bool   `json:"ledger"`
	Cluster string `json:"cluster,omitempty"`
	// Time is the host's clock, seconds since 1970.
	TimeUnix int64 `json:"timeUnix"`
}

// OS is from /etc/os-release.
type OS struct {
	ID      string   `json:"id"`
	Version string   `json:"version"`
	Name    string   `json:"name"` // PRETTY_NAME
	Like    []string `json:"like,omitempty"`
}

// Address is an address of a network link.
type Address struct {
	Link   string `json:"link"`
	Prefix string `json:"prefix"` // "10.0.0.11/24"
}

// UnitFacts are what systemd has of a unit.
type UnitFacts struct {
	Name    string `json:"name"`
	Running bool   `json:"running,omitempty"`
	// File is the unit's own, "" if there is none.
	File string `json:"file,omitempty"`
	// Commands are drop-ins that replace the command of a unit by this name.
	Commands []string `json:"commands,omitempty"`
}

// Listener is a socket that listens on one of the ports asked for.
type Listener struct {
	Port int `json:"port"`
	// Protocol is "udp", or "tcp" or "" for TCP.
	Protocol string `json:"protocol,omitempty"`
	Process  string `json:"process,omitempty"`
}

// Disk is the file system that holds (or would hold) Dir.
type Disk struct {
	Dir        string `json:"dir"`
	FS         string `json:"fs"`
	TotalBytes uint64 `json:"totalBytes"`
	FreeBytes  uint64 `json:"freeBytes"`
	FreeInodes uint64 `json:"freeInodes"`
	// Inodes is how many there are in all; 0 is a file system that has no
	// fixed number of them.
	Inodes uint64 `json:"inodes,omitempty"`
	// Mount is where the file system is mounted: directories with the same
	// Mount share its space.
	Mount    string `json:"mount,omitempty"`
	NoExec   bool   `json:"noExec,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Named is a name and what it stands for.
type Named struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Resolver is a file such as /etc/resolv.conf.
type Resolver struct {
	Path string `json:"path"`
	// Missing says that there is no such file.
	Missing bool     `json:"missing,omitempty"`
	Servers []string `json:"servers"`
}
