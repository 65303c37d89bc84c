package lifecycletest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// VirtualAddress is the virtual address of the control planes. No host has it before an
// operation.
const VirtualAddress = "192.0.2.100"

// A Host is a simulated host. It stores files and other state of operations, and simulates
// kubeadm and the kubelet.
type Host struct {
	Name, Address string
	SecondAddress string // of another network device, if set
	MachineID     string
	API           *API

	// Mu guards the host while an operation runs.
	Mu         sync.Mutex
	Files      map[string]string // path → content
	Baseline   map[string]string // path → content that kubeadm wrote
	OpenKeys   map[string]bool   // private keys that other users can read
	State      map[string]string // operation → hash of the operation last applied
	HookRuns   map[string]int    // hook → number of runs
	Boots      int               // number of reboots
	HasLedger  bool
	LostLedger bool // the ledger file is missing
	Cluster    string
	Lock       remote.LockState
	// KubeletStarted is the start time of the kubelet, if it started after its node last
	// reported.
	KubeletStarted time.Time

	writtenBy map[string]string // path → the step that wrote the file
	madeBy    map[string]string // other state that a revert removes → the step that made it
	batch     op.List           // the operations of the current batch
	podHosts  []string          // the API address that pods resolve
	version   string            // the version of the images, and of the kubelet that starts next

	// Faults in the connection to the host.
	Down       error  // the error of a connection
	Hangs      bool   // it accepts connections and does not answer
	StalledDir string // a directory whose reads do not return
	CutOff     bool   // the API name resolves to no reachable address
	// Reaches reports whether the host reaches a URL; nil means that it reaches all.
	Reaches func(*Host, string) bool

	// Faults of operations.
	RestoreDiffers int64                                    // the difference of the revision after a restore test
	Uncheckable    op.Kind                                  // operations of this kind fail to be checked
	Refuse         func(step string, o op.Op) *op.Error     // the error of an operation before its change
	Spoil          func(*Host, string, op.Op) *op.Error     // the error of an operation after its change
	OnOperation    func(op.Op)                              // called with each operation before its check
	OnChange       func(what string)                        // called before each change
	Prints         func(argv []string, out io.Writer) error // runs a program
	Etcdctl        func(args []string, out io.Writer) int   // runs etcdctl and returns its exit code

	// Faults of the API server on the host.
	APISilent  bool             // it does not answer
	APIRefused bool             // connections to it are refused
	APILingers bool             // it does not stop
	IsSick     func(*Host) bool // whether the files of the host keep it from answering

	// The kubelet of the host.
	ExtraAddress string      // an address of another host in its certificate request
	CertMoved    bool        // its certificate is for another address
	Admit        func(*Host) // issues credentials to the kubelet, as the cluster does

	// The etcd member of the host.
	Snapshot     string // the content of a snapshot
	SentSnapshot string // the content that arrives at the manager, if it differs
	EtcdWaste    int64  // bytes that a defragmentation frees
	LeadsEtcd    bool
	EtcdAlarm    string

	PodLogs []string                 // the names of the logs that it reports
	PodLog  func(name string) string // returns the content of a log
}

// NewHost returns a host whose state is empty.
func NewHost(name, address string, a *API) *Host {
	a.Mu.Lock()
	a.endpoints["https://"+address+":2379"] = name
	a.Mu.Unlock()
	return &Host{
		Name: name, Address: address, MachineID: "id-" + name, API: a, Files: map[string]string{},
		Baseline: map[string]string{}, OpenKeys: map[string]bool{}, State: map[string]string{}, HookRuns: map[string]int{},
		writtenBy: map[string]string{}, madeBy: map[string]string{},
	}
}

// Clone returns a copy of the host for another API server. The caller holds Mu.
func (m *Host) Clone(a *API) *Host {
	c := NewHost(m.Name, m.Address, a)
	c.Files, c.State, c.HookRuns = maps.Clone(m.Files), maps.Clone(m.State), maps.Clone(m.HookRuns)
	c.writtenBy, c.madeBy = maps.Clone(m.writtenBy), maps.Clone(m.madeBy)
	c.Baseline, c.OpenKeys = maps.Clone(m.Baseline), maps.Clone(m.OpenKeys)
	c.Reaches, c.podHosts, c.version, c.Admit = m.Reaches, m.podHosts, m.version, m.Admit
	c.MachineID, c.SecondAddress, c.Boots = m.MachineID, m.SecondAddress, m.Boots
	c.Spoil, c.IsSick, c.ExtraAddress = m.Spoil, m.IsSick, m.ExtraAddress
	c.Snapshot, c.EtcdWaste, c.LeadsEtcd, c.Etcdctl = m.Snapshot, m.EtcdWaste, m.LeadsEtcd, m.Etcdctl
	c.HasLedger, c.Cluster, c.Lock = m.HasLedger, m.Cluster, m.Lock
	return c
}

// BootID returns the ID of the current boot.
func (m *Host) BootID() string { return fmt.Sprintf("boot-%s-%d", m.Name, m.Boots) }

// AllState returns all files and other state, for comparisons.
func (m *Host) AllState() map[string]string {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	out := maps.Clone(m.Files)
	for k, v := range m.State {
		if !strings.HasPrefix(k, "exec ") { // inputs of earlier attempts are not state of the host
			out[k] = v
		}
	}
	return out
}

// hostFacts returns what the helper reports about the host.
func (m *Host) hostFacts() *op.HostFacts {
	const gib = 1 << 30
	f := &op.HostFacts{
		Hostname: m.Name, MachineID: m.MachineID, BootID: m.BootID(), Arch: "amd64", Kernel: "6.1.0", Systemd: "252",
		OS: op.OS{ID: "debian", Version: "12"}, CPUs: 2, MemoryBytes: 4 * gib, CgroupVersion: 2, ResourceCapability: true,
		CgroupControllers: []string{"cpuset", "cpu", "io", "memory", "pids"},
		Addresses:         []op.Address{{Link: "eth0", Prefix: m.Address + "/24"}}, Routes: []string{"default"},
		KernelFeatures: []string{"overlay", "br_netfilter", "nf_tables", "ip_tables", "vxlan"},
		Ledger:         m.HasLedger, Cluster: m.Cluster, TimeUnix: time.Now().Unix(),
	}
	if m.SecondAddress != "" {
		f.Addresses = append(f.Addresses, op.Address{Link: "eth1", Prefix: m.SecondAddress + "/24"})
	}
	all := v1alpha1.ClusterSpec{ContainerRuntime: v1alpha1.ContainerRuntime{Type: "docker"}}
	all.Registry.Private = &v1alpha1.PrivateRegistry{}
	for _, p := range facts.RequiredPrograms(&v1alpha1.Cluster{Spec: all}, []v1alpha1.Role{v1alpha1.RoleRegistry}) {
		f.Present = append(f.Present, "/usr/bin/"+p)
	}
	f.Present = append(f.Present, slices.Collect(maps.Keys(m.Files))...)
	for _, dir := range []string{
		"/", facts.DirContainerd, facts.DirDocker, facts.DirKubelet, facts.DirEtcd,
		facts.DirBlobs, facts.DirPrograms, facts.DirPlugins,
	} {
		f.Disks = append(f.Disks,
			op.Disk{Dir: dir, FS: "ext4", Mount: "/", TotalBytes: 40 * gib, FreeBytes: 30 * gib, FreeInodes: 2e6, Inodes: 2e6})
	}
	return f
}

// EditFile changes a file as a user does; empty content removes the file.
func (m *Host) EditFile(path, content string) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if m.Files[path] = content; content == "" {
		delete(m.Files, path)
	}
}

// HasFile reports whether the host has a file.
func (m *Host) HasFile(path string) bool {
	_, ok := m.Files[path]
	return ok
}
