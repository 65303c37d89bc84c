package op

// Facts returns the facts of the host as JSON (type HostFacts) in Result.Output. It never
// changes anything.
type Facts struct {
	// Ports lists ports to check for listeners, TCP and UDP. Paths lists paths whose
	// presence is reported; a glob is present if it matches anything.
	Ports []int    `json:"ports,omitempty"`
	Paths []string `json:"paths,omitempty"`
	// Dirs lists directories (existing or not) whose free space is reported.
	Dirs []string `json:"dirs,omitempty"`
	// Names lists names to find in the hosts file.
	Names []string `json:"names,omitempty"`
	// Contents lists directories (existing or not) to check for content.
	Contents []string `json:"contents,omitempty"`
	// Units lists units whose state is reported, if they exist.
	Units []string `json:"units,omitempty"`
	// Reach lists "host:port" addresses to connect to.
	Reach []string `json:"reach,omitempty"`
}

// KindFacts is the kind of Facts.
const KindFacts Kind = "facts"

func (Facts) Kind() Kind { return KindFacts }

func (Facts) Target() string { return "facts" }

// HostFacts describes a host: the answer to Facts. Plans contain only the results of
// checks on measured values (free memory, free disk, time).
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
	Systemd           string   `json:"systemd"` // version, "" if systemd is not PID 1
	SELinux           string   `json:"selinux"` // enforcing, permissive, disabled
	// ResourceCapability reports whether the helper has CAP_SYS_RESOURCE.
	ResourceCapability bool `json:"resourceCapability"`

	Links     []string  `json:"links,omitempty"` // network links, by name
	Addresses []Address `json:"addresses"`
	Routes    []string  `json:"routes"` // destination prefixes in the main table, "default" included
	Swap      []string  `json:"swap"`   // active swap devices
	// Firewall lists what drops packets by default: active services (firewalld, ufw),
	// else nftables chains.
	Firewall  []string   `json:"firewall"`
	Listeners []Listener `json:"listeners"`
	// Present lists the existing paths of Facts.Paths. An empty file does not count,
	// because a crash can leave it.
	Present []string `json:"present"`
	Disks   []Disk   `json:"disks"` // one for each of Facts.Dirs
	// Filled lists the directories of Facts.Contents that have more than lost+found.
	Filled []string `json:"filled,omitempty"`
	// Units lists the units of Facts.Units that systemd has, or has settings for.
	Units []UnitFacts `json:"units,omitempty"`
	// KernelFeatures lists the features of a fixed list that the kernel has: overlay,
	// br_netfilter, nf_tables, ip_tables, vxlan, ipvs.
	KernelFeatures []string `json:"kernelFeatures"`
	// Named lists entries of other software in the hosts file that give one of
	// Facts.Names an address.
	Named []Named `json:"named,omitempty"`
	// Resolver is the source of DNS servers for the kubelet; nil if it is not known.
	Resolver *Resolver `json:"resolver,omitempty"`
	// Unreached lists the addresses of Facts.Reach that accept no connection.
	Unreached []string `json:"unreached,omitempty"`
	// Ledger reports whether Slipway has changed this host; Cluster is the name of the
	// cluster.
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

// UnitFacts describes a unit of systemd.
type UnitFacts struct {
	Name    string `json:"name"`
	Running bool   `json:"running,omitempty"`
	// File is the unit file, "" if there is none.
	File string `json:"file,omitempty"`
	// Commands lists drop-ins that replace the command of a unit with this name.
	Commands []string `json:"commands,omitempty"`
}

// Listener is a socket that listens on one of the requested ports.
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
	// Inodes is the total number of inodes; 0 means that the file system has no fixed
	// number.
	Inodes uint64 `json:"inodes,omitempty"`
	// Mount is the mount point of the file system: directories with the same Mount share
	// its space.
	Mount    string `json:"mount,omitempty"`
	NoExec   bool   `json:"noExec,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Named is a name and its address.
type Named struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Resolver is a file such as /etc/resolv.conf.
type Resolver struct {
	Path string `json:"path"`
	// Missing reports whether the file is missing.
	Missing bool     `json:"missing,omitempty"`
	Servers []string `json:"servers"`
}
