package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/remote"
)

// A machine is a host in memory. It keeps files and other state of operations, and plays
// kubeadm.
type machine struct {
	name, address string
	second        string // another address
	machineID     string
	api           *api

	mu      sync.Mutex
	files   map[string]string // path → content
	kept    map[string]string // path → content as a program left it
	opened  map[string]bool   // keys that others may read
	state   map[string]string // operation → as it was last applied
	runs    map[string]int    // hook → how often it ran
	by      map[string]string // path → the step that wrote it
	made    map[string]string // other state that a revert removes → the step that made it
	wanted  op.List           // operations of the same batch
	told    []string          // the API address that pods know
	started time.Time         // the start of the kubelet, if after the last report of its node
	version string            // version of the images, and of the kubelet that starts next
	boots   int               // reboots
	ledger  bool
	lost    bool // its ledger was lost
	cluster string
	lock    remote.LockState

	// down is the error of connecting, and blind the kind of operation that cannot be
	// checked. refuse returns the error of an operation. touched is called before each
	// change.
	down    error
	prints  func(argv []string, out io.Writer) error
	etcdctl func(args []string, out io.Writer) int // returns its exit code
	// snapshot is the content of a snapshot of etcd, and sent the content that arrives, if
	// it differs.
	snapshot, sent string
	// waste is how many bytes a defragmentation of etcd frees. leads reports whether its
	// etcd member is the leader.
	waste   int64
	leads   bool
	cutOff  bool   // the API name does not resolve to a reachable address
	silent  bool   // its own API server does not answer
	refused bool   // connections to its API server are refused
	hangs   bool   // it connects, but does not answer
	stalled string // a directory that does not answer
	lingers bool   // its API server does not stop
	alarm   string
	blind   op.Kind
	reaches func(*machine, string) bool // whether it reaches a URL; nil is always
	refuse  func(step string, o op.Op) *op.Error
	// spoils returns the error of an operation after its change. sick reports whether the
	// files of the machine keep its API server from answering.
	spoils  func(m *machine, step string, o op.Op) *op.Error
	sick    func(*machine) bool
	greedy  string         // the address of another machine that its kubelet requests
	moved   bool           // its kubelet's certificate is for another address
	admit   func(*machine) // plays the cluster issuing credentials to a kubelet
	touched func(what string)
	// podLogs are the names of the logs that it reports. podLog returns the content of one
	// log.
	podLogs []string
	podLog  func(name string) string
	// given is called with each operation that the manager sends, before it is checked.
	given func(op.Op)
}

func newMachine(name, address string, a *api) *machine {
	a.mu.Lock()
	a.at["https://"+address+":2379"] = name
	a.mu.Unlock()
	return &machine{
		name: name, address: address, machineID: "id-" + name, api: a, files: map[string]string{},
		kept: map[string]string{}, opened: map[string]bool{}, state: map[string]string{}, runs: map[string]int{},
		by: map[string]string{}, made: map[string]string{},
	}
}

// clone returns a copy of the machine in another world. The caller holds mu.
func (m *machine) clone(a *api) *machine {
	c := newMachine(m.name, m.address, a)
	c.files, c.state, c.runs, c.by, c.made = maps.Clone(m.files), maps.Clone(m.state), maps.Clone(m.runs), maps.Clone(m.by), maps.Clone(m.made)
	c.kept, c.opened = maps.Clone(m.kept), maps.Clone(m.opened)
	c.reaches, c.told, c.version, c.admit = m.reaches, m.told, m.version, m.admit
	c.machineID, c.second, c.boots = m.machineID, m.second, m.boots
	c.spoils, c.sick, c.greedy = m.spoils, m.sick, m.greedy
	c.snapshot, c.waste, c.leads, c.etcdctl = m.snapshot, m.waste, m.leads, m.etcdctl
	c.ledger, c.cluster, c.lock = m.ledger, m.cluster, m.lock
	return c
}

// bootID returns the ID of the current boot.
func (m *machine) bootID() string { return fmt.Sprintf("boot-%s-%d", m.name, m.boots) }

// look returns all files and state of the machine, for comparisons.
func (m *machine) look() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := maps.Clone(m.files)
	for k, v := range m.state {
		if !strings.HasPrefix(k, "exec ") { // inputs of earlier attempts are not state of the machine
			out[k] = v
		}
	}
	return out
}

func (m *machine) facts() *op.HostFacts {
	const gib = 1 << 30
	f := &op.HostFacts{
		Hostname: m.name, MachineID: m.machineID, BootID: m.bootID(), Arch: "amd64", Kernel: "6.1.0", Systemd: "252",
		OS: op.OS{ID: "debian", Version: "12"}, CPUs: 2, MemoryBytes: 4 * gib, CgroupVersion: 2, ResourceCapability: true,
		CgroupControllers: []string{"cpuset", "cpu", "io", "memory", "pids"},
		Addresses:         []op.Address{{Link: "eth0", Prefix: m.address + "/24"}}, Routes: []string{"default"},
		KernelFeatures: []string{"overlay", "br_netfilter", "nf_tables", "ip_tables", "vxlan"},
		Ledger:         m.ledger, Cluster: m.cluster, TimeUnix: now().Unix(),
	}
	if m.second != "" {
		f.Addresses = append(f.Addresses, op.Address{Link: "eth1", Prefix: m.second + "/24"})
	}
	all := v1alpha1.ClusterSpec{ContainerRuntime: v1alpha1.ContainerRuntime{Type: "docker"}}
	all.Registry.Private = &v1alpha1.PrivateRegistry{}
	for _, p := range facts.RequiredPrograms(&v1alpha1.Cluster{Spec: all}, []v1alpha1.Role{v1alpha1.RoleRegistry}) {
		f.Present = append(f.Present, "/usr/bin/"+p)
	}
	f.Present = append(f.Present, slices.Collect(maps.Keys(m.files))...)
	for _, dir := range []string{
		"/", facts.DirContainerd, facts.DirDocker, facts.DirKubelet, facts.DirEtcd,
		facts.DirBlobs, facts.DirPrograms, facts.DirPlugins,
	} {
		f.Disks = append(f.Disks,
			op.Disk{Dir: dir, FS: "ext4", Mount: "/", TotalBytes: 40 * gib, FreeBytes: 30 * gib, FreeInodes: 2e6, Inodes: 2e6})
	}
	return f
}

// check returns the result of checking one operation.
func (m *machine) check(o op.Op) op.Result {
	if m.given != nil {
		m.given(o)
	}
	r := op.Result{Kind: o.Kind(), Target: o.Target(), Status: op.Unchanged}
	if r.Kind == m.blind {
		r.Status, r.Error = op.Failed, &op.Error{Reason: "Internal", Message: "it cannot be read"}
		return r
	}
	if m.lost && (r.Kind == op.KindReset || r.Kind == op.KindRestoreHost) {
		r.Status, r.Error = op.Failed, &op.Error{Reason: op.IDLedgerLost, Message: "the ledger is missing"}
		return r
	}
	changed := false
	switch o := o.(type) {
	case op.Facts:
		f := m.facts()
		// No host has the virtual address of the control planes yet.
		f.Unreached = slices.DeleteFunc(slices.Clone(o.Reach), func(at string) bool { return !strings.HasPrefix(at, virtual+":") })
		r.Output, _ = json.Marshal(f)
	case op.PodLogs:
		r.Output, _ = json.Marshal(m.podLogs)
	case op.PodLog:
		r.Output = []byte(m.podLog(o.Name))
	case op.UnitStarted:
		r.Output = []byte(m.started.Format(time.RFC3339Nano))
	case op.BaselineFile:
		was, ok := m.kept[o.Path]
		if changed = ok && m.files[o.Path] != was; changed {
			r.Summary, r.Diff = "put back as kubeadm left it", was
		}
	case op.RootOnly:
		changed = len(m.opened) > 0
	case op.Query:
		r.Output = []byte(manifestsOf(o.Name))
	case op.ProxyChanges:
		r.Output, _ = json.Marshal(m.api.proxyCounters(m.name))
	case op.ReadFile:
		content, ok := m.files[o.Path]
		r.Output, r.Missing = []byte(content), !ok
	case op.InspectCertificates:
		r.Output = m.states(o)
	case op.RenewCertificate:
		r.Summary, r.Error = m.due(o)
		if changed = r.Summary != ""; r.Error != nil {
			r.Status = op.Failed
			return r
		}
	case op.StaticPodRestart:
		changed = m.outdated(o)
	case op.TriggerReload:
		changed = m.state["loaded "+o.File] != m.files[o.File]
	case op.KeyPair:
		changed = !m.has(o.Private) || !m.has(o.Public)
	case op.KubeconfigCA:
		has, err := pki.KubeconfigCA([]byte(m.files[o.Path]))
		changed = err == nil && len(has) > 0 && string(has) != string(o.CA)
	case op.File:
		content, ok := m.files[o.Path]
		if changed = !m.serving(o.UnlessServes) && (!ok || content != string(o.Content)); changed && !o.Secret {
			r.Diff = string(o.Content)
		}
	case op.Absent:
		_, changed = m.files[o.Path]
	case op.Exec:
		changed = m.wantsRun(o)
	case op.Wait:
		changed = !m.awaited(o)
	case op.Certificate:
		cert, key := m.files[o.Cert], m.files[o.Key]
		if o.Authority && cert != "" && key == "" {
			r.Status, r.Error = op.Failed, &op.Error{Reason: "AuthorityKeyLost", Message: o.Key + " is not there"}
			return r
		}
		changed = cert == "" || key == "" || len(o.CA) > 0 && m.outOfDate(o) || !o.Authority && o.CAKey == "" && m.unsigned(o)
	case op.CertificateRequest:
		if changed = !m.has(o.Key); !changed && m.unsigned(o.Certificate) {
			r.Output = m.request(o)
		}
	case op.Unit:
		changed = m.state[o.Name+" enabled"] == "" ||
			o.Running != nil && m.state[o.Name+" started"] != m.content(o) &&
				(!o.KeepRunning && !m.serving(o.UnlessServes) || m.state[o.Name+" started"] == "")
	case op.EtcdMember:
		if o.Service != nil {
			changed = !m.api.managedEtcd.is(m)
			break
		}
		changed = m.api.etcd(m.name) != etcdVotes || len(o.Join.Inputs) > 0 && m.state[id(o.Join)] != m.print(o.Join) ||
			!m.api.anyVoter(o.Endpoints)
	case op.EtcdRemove:
		gone, err := m.api.etcdGoes(o)
		if changed = len(gone) > 0; err != nil {
			r.Status, r.Error = op.Failed, err
			return r
		}
	case op.EtcdDefrag:
		wins := o.Do == op.DefragAny || o.Do == op.DefragFollower && !m.leads
		if changed = wins && m.waste > 0; m.api.unwell != "" {
			r.Status, r.Error = op.Failed, &op.Error{Reason: op.IDEtcdUnhealthy, Message: m.api.unwell}
			return r
		}
	case op.EtcdDowngrade:
		changed = m.api.downgrades(false)
	case op.EtcdRestore:
		changed = !m.api.restoring(m.name, o)
	case op.EtcdRecover:
		var made bool
		r.Output, made = m.salvaged(o)
		changed = !made
	case op.EtcdGet:
		r.Output = m.api.values(o)
	case op.ListBackupCopies:
		r.Output = m.copies(o.Directory)
	case op.EtcdSnapshot:
		changed = m.has(op.EtcdSnapshots+"/"+o.Name) == o.Gone
	case op.Reset:
		if changed = m.ledger; !changed && o.KeepUnmanaged && m.has("/etc/kubernetes/kubelet.conf") {
			r.Status, r.Error = op.Failed, &op.Error{Reason: op.IDUnmanaged, Message: "this host has no ledger"}
			return r
		}
	case op.RestoreHost:
		changed = m.ledger || o.EndLock && m.lock.Held
	case op.RevertStep:
		changed = len(m.dropped(o))+len(m.unmade(o)) > 0
	case op.Sysctl:
		changed = m.files[o.File] != parameters(o)
	case op.HealthGate:
		changed = m.state["noted by "+o.Name] != ""
	case op.PodHosts:
		changed = len(m.told) > 0 && m.told[0] != o.Address+" "+o.Name
	case op.Unpack:
		changed = m.state[id(o)] != m.print(o) && !m.serving(o.UnlessServes)
	case op.FetchBlob:
		changed = m.state[keptBlob+o.Name+" "+o.Digest] == ""
	case op.Prune:
		changed = len(m.retires(o)) > 0
	case op.Reboot:
		changed = m.bootID() == o.Boot
	case op.ImportImages: // an import also removes the images that were fetched for it
		changed = m.state[id(o)] != m.print(o) || !o.Ahead && m.state[id(op.ImportImages{Ahead: true})] != ""
	default:
		changed = m.state[id(o)] != m.print(o)
	}
	if changed {
		r.Status = op.Changed
	}
	return r
}

// serving reports whether the etcd unit runs, for operations that do nothing while a
// service runs.
func (m *machine) serving(w *op.Wait) bool {
	return w != nil && m.state[module.EtcdUnitName+" started"] != ""
}

// writes returns the files that an operation writes and that reverting its step restores.
func writes(o op.Op) []string {
	switch o := o.(type) {
	case op.File:
		return []string{o.Path}
	case op.Certificate:
		return []string{o.Cert, o.Key}
	}
	return nil
}

// dropped returns the files that a step has written and that are no longer wanted.
func (m *machine) dropped(o op.RevertStep) (paths []string) {
	for path, step := range m.by {
		wanted := slices.ContainsFunc(m.wanted, func(w op.Op) bool { return slices.Contains(writes(w), path) })
		if _, ok := m.files[path]; ok && step == o.Step && !wanted {
			paths = append(paths, path)
		}
	}
	return paths
}

// unmade returns the other state that a step has made and that is no longer wanted.
func (m *machine) unmade(o op.RevertStep) (out []string) {
	for what, step := range m.made {
		_, there := m.state[what]
		wanted := slices.ContainsFunc(m.wanted, func(w op.Op) bool { return slices.Contains(makes(w), what) })
		if there && step == o.Step && !wanted {
			out = append(out, what)
		}
	}
	return out
}

// makes returns the other state that reverting an operation removes, by its place in the
// machine's state.
func makes(o op.Op) []string {
	switch o := o.(type) {
	case op.Dir, op.Unpack, op.InstallHelper:
		return []string{id(o)}
	case op.Unit:
		return []string{o.Name + " enabled", o.Name + " started"}
	}
	return nil
}

// ends removes units, directories, and images in them, as a reset does.
func (m *machine) ends(o op.Reset) {
	for _, unit := range o.Units {
		delete(m.state, unit+" started")
	}
	for _, path := range o.Paths {
		delete(m.state, id(op.Dir{Path: path}))
		if path == facts.DirContainerd {
			delete(m.state, id(op.ImportImages{}))
			maps.DeleteFunc(m.state, func(what, _ string) bool { return strings.HasPrefix(what, pinnedImage) })
		}
	}
}

// Prefixes of files from bundles in the machine's state. A name follows, and for a blob
// its digest.
const (
	keptBlob    = "kept blob "
	pinnedImage = "pinned image "
)

// brought returns the entries of files from bundles.
func (m *machine) brought() (out []string) {
	for what := range m.state {
		if strings.HasPrefix(what, keptBlob) || strings.HasPrefix(what, pinnedImage) {
			out = append(out, what)
		}
	}
	slices.Sort(out)
	return out
}

// retires returns the entries that a prune removes.
func (m *machine) retires(o op.Prune) []string {
	return slices.DeleteFunc(m.brought(), func(what string) bool {
		if image, ok := strings.CutPrefix(what, pinnedImage); ok {
			return slices.Contains(o.Images, image)
		}
		return slices.Contains(o.Blobs, what[strings.LastIndex(what, " ")+1:])
	})
}

func id(o op.Op) string { return string(o.Kind()) + " " + o.Target() }

// print returns an operation as text, with the content of the files it depends on.
func (m *machine) print(o op.Op) string {
	switch o.(type) {
	case op.Exec: // the way to call a program is not compared
		return m.content(o)
	}
	switch waits := o.(type) { // the wait of an operation is not compared
	case op.Block:
		waits.Gate = nil
		o = waits
	case op.Unpack:
		waits.UnlessServes, waits.Gate = nil, nil
		o = waits
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return hash(string(raw), m.content(o))
}

// content returns a hash of the files that an operation depends on.
func (m *machine) content(o op.Op) string {
	var all []string
	for _, p := range op.DependsOn(o) {
		all = append(all, m.files[p])
	}
	return hash(all...)
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

func (m *machine) wantsRun(e op.Exec) bool {
	if e.UnlessServes != nil && !m.etcdAway() {
		return false
	}
	if e.Again != "" {
		return true
	}
	if len(e.Inputs) > 0 && m.state[id(e)] != m.print(e) {
		return true
	}
	for _, c := range e.Creates {
		_, kept := m.kept[c]
		if !m.has(c) && !kept {
			return true
		}
	}
	return len(e.Inputs) == 0 && len(e.Creates) == 0
}

func (m *machine) awaited(w op.Wait) bool {
	if w.Name == "etcd" {
		return m.api.managedEtcd.serves() || m.api.restored()
	}
	if w.Says != "" { // kube-proxy, which uses the settings in the cluster
		return m.api.runsProxy(w.Says) && (m.reaches == nil || m.reaches(m, w.HTTP))
	}
	if strings.HasPrefix(w.Name, "access to ") { // of the registry user, to its directory
		return true
	}
	if strings.HasPrefix(w.Name, "pod kube-apiserver-") { // any API server has the pod
		return m.has(module.APIServerManifest)
	}
	if len(w.Trusts) > 0 {
		return m.state["trusts"] == m.bundles(w.Trusts)
	}
	if answer, ok := m.certified(w); ok {
		return answer
	}
	if w.Container != "" { // with the version of its manifest
		manifest := m.files[module.APIServerManifest]
		if w.Container == "etcd" {
			manifest = m.files[etcdManifest]
		}
		_, tag, _ := strings.Cut(w.Image, ":")
		return w.Container == "etcd" && manifest != "" || strings.Contains(manifest, tag)
	}
	if w.HTTP != "" && strings.HasPrefix(w.HTTP, "https://127.0.0.1:102") {
		return !m.silent && m.has(module.APIServerManifest)
	}
	if w.Ended == "kube-apiserver" {
		return !m.lingers && !m.has(module.APIServerManifest)
	}
	if w.Ended != "" { // a program runs as long as it has its configuration
		return !m.has(w.Ended)
	}
	if own := strings.HasPrefix(w.HTTP, "https://127.0.0.1:6443/"); own && (m.silent || m.sick != nil && m.sick(m)) {
		return false
	}
	if w.HTTP != "" {
		if (w.Manifest == module.KeepalivedManifest || w.Manifest == module.KubeVIPManifest) && m.reaches != nil && !m.reaches(m, w.HTTP) {
			return false
		}
		_, ok := m.files["/etc/kubernetes/manifests/kube-apiserver.yaml"]
		if !ok && m.has("/var/lib/kubelet/pki/kubelet-client-current.pem") {
			return m.reaches == nil || m.reaches(m, w.HTTP)
		}
		return ok && (m.api.etcd(m.name) == etcdVotes || m.api.managedEtcd.serves())
	}
	_, ok := m.files[w.Path]
	return ok
}

// apply carries out one operation.
func (m *machine) apply(o op.Op) *op.Error {
	m.ledger = true
	switch o := o.(type) {
	case op.File:
		if o.Gate != nil && !m.awaited(*o.Gate) {
			return &op.Error{Reason: "Timeout", Message: "nothing answers at " + o.Gate.Target()}
		}
		m.files[o.Path] = string(o.Content)
	case op.Absent:
		delete(m.files, o.Path)
	case op.Sysctl:
		m.files[o.File] = parameters(o)
	case op.HealthGate:
		if m.sick != nil && m.sick(m) {
			return &op.Error{Reason: op.ReasonUnhealthy, Message: "its kubelet did not answer"}
		}
		delete(m.state, "noted by "+o.Name)
	case op.Exec:
		m.state[id(o)] = m.print(o)
		return m.left(o, m.run(o))
	case op.BaselineFile:
		m.files[o.Path] = m.kept[o.Path]
	case op.RootOnly:
		clear(m.opened)
	case op.EtcdMember:
		if o.Service != nil {
			return m.api.managedEtcd.join(m, o.Service)
		}
		if !m.api.anyVoter(o.Endpoints) {
			return &op.Error{Reason: "CommandFailed", Message: "there is no other member to ask"}
		}
		m.state[id(o.Join)] = m.print(o.Join)
		return m.left(o.Join, m.joinEtcd(o))
	case op.EtcdRemove:
		gone, err := m.api.etcdGoes(o)
		m.api.managedEtcd.without(gone)
		for _, name := range gone {
			m.api.setEtcd(name, "")
		}
		return err
	case op.EtcdDefrag:
		m.waste = 0
	case op.EtcdDowngrade:
		m.api.downgrades(true)
	case op.EtcdRestore:
		return m.restore(o)
	case op.EtcdRecover:
		return m.salvage(o)
	case op.EtcdSnapshot:
		delete(m.files, op.EtcdSnapshots+"/"+o.Name)
		if !o.Gone {
			m.files[op.EtcdSnapshots+"/"+o.Name] = m.snapshot
		}
	case op.Certificate:
		if o.Cert == module.NextCA { // its certificates are shown to clients
			m.files[o.Cert], m.files[o.Key] = lastingAuthority(m.api.t)
			return nil
		}
		if o.Authority { // its certificates are checked
			m.files[o.Key], m.files[o.Cert] = newAuthority(m.api.t, o.CommonName)
			if o.CommonName == "etcd-ca" {
				etcdKeys.Store(m.files[o.Key], true)
			}
			return nil
		}
		return m.certificate(o)
	case op.CertificateRequest:
		_, text, err := pki.NewKey()
		if err != nil {
			return &op.Error{Reason: "Internal", Message: err.Error()}
		}
		m.files[o.Key] = string(text)
	case op.Block:
		if o.Gate != nil && !m.awaited(*o.Gate) {
			return &op.Error{Reason: "Timeout", Message: "nothing answers at " + o.Gate.Target()}
		}
		m.state[id(o)] = m.print(o)
		if strings.HasSuffix(o.Name, " API") && m.told == nil {
			m.told = o.Lines // the pods have not started yet
		}
	case op.PodHosts:
		m.told = []string{o.Address + " " + o.Name}
	case op.RenewCertificate:
		return m.renew(o)
	case op.KeyPair:
		private, public := newAccountKey()
		m.files[o.Private], m.files[o.Public] = private, public
	case op.KubeconfigCA:
		m.files[o.Path] = string(pki.WithKubeconfigCA([]byte(m.files[o.Path]), o.CA))
	case op.TriggerReload:
		m.state["loaded "+o.File] = m.files[o.File]
	case op.StaticPodRestart:
		if strings.Contains(o.Manifest, "controller-manager") && slices.Contains(o.Files, certs.AuthorityCert) {
			if m.rejects() {
				return &op.Error{Reason: op.ReasonNotServing, Message: "it does not start: what it signs with is no pair"}
			}
			m.api.tell(m.files[certs.AuthorityCert])
		}
		if slices.Contains(o.Files, module.EncryptionFile) {
			m.readsKeys()
			return nil
		}
		m.state["read by "+o.Manifest] = m.content(o)
		if slices.Contains(o.Files, module.EtcdCA) {
			m.state["etcd by "+o.Manifest] = m.files[module.EtcdCA]
		}
	case op.Wait:
		if len(o.Trusts) > 0 {
			m.believes(o.Trusts)
			return nil
		}
		if o.Name == "etcd" && m.api.managedEtcd.serves() || strings.HasPrefix(o.Name, "access to ") {
			return nil
		}
		if o.Manifest != "" {
			return &op.Error{Reason: op.ReasonNotServing, Message: "nothing answers at " + o.Target()}
		}
		if o.Path != "/run/flannel/subnet.env" || !m.api.has("/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel") {
			return &op.Error{Reason: "Timeout", Message: "nothing makes " + o.Target()}
		}
		m.files[o.Path] = "FLANNEL_NETWORK"
	case op.Unpack:
		if o.Gate != nil && !m.awaited(*o.Gate) {
			return &op.Error{Reason: "Timeout", Message: "nothing answers at " + o.Gate.Target()}
		}
		m.state[id(o)] = m.print(o)
		if o.Name == "etcd" {
			m.files[module.EtcdPrograms().Server] = o.Digest
		}
		for _, name := range o.Members {
			m.files[path.Join(o.Dir, name)] = o.Digest
		}
	case op.FetchBlob:
		m.state[keptBlob+o.Name+" "+o.Digest] = "yes"
	case op.Prune:
		for _, what := range m.retires(o) {
			delete(m.state, what)
		}
	case op.ImportImages:
		m.state[id(o)] = m.print(o)
		if !o.Ahead {
			delete(m.state, id(op.ImportImages{Ahead: true})) // the content was fetched ahead
		}
		for _, img := range o.Images {
			if !o.Ahead {
				m.state[pinnedImage+img.Ref] = "yes"
			}
			if _, version, ok := strings.Cut(img.Ref, "kube-proxy:"); ok {
				m.version = version // the version of the next kubelet
			}
		}
	case op.Unit:
		for _, path := range o.Forgets {
			delete(m.files, path)
		}
		m.state[o.Name+" enabled"] = "yes"
		if m.has(facts.BootstrapConf) && m.admit != nil {
			if !m.api.knowsToken(m.files[facts.BootstrapConf]) {
				return &op.Error{Reason: "CommandFailed", Message: "the token is not known"}
			}
			m.admit(m)
		}
		if o.Name == "etcd.service" {
			if err := m.api.managedEtcd.start(m); err != nil {
				return err
			}
		}
		if o.Running != nil {
			m.state[o.Name+" started"] = m.content(o)
			if o.Name == "etcd.service" {
				m.state["etcd by "+o.Name] = m.files[module.EtcdCA]
			}
			if o.Name == "kubelet.service" {
				m.api.kubelet(m.name, m.version)
			}
		}
	case op.Reboot:
		m.boots++
	case op.RevertStep:
		for _, path := range m.dropped(o) {
			delete(m.files, path)
		}
		for _, what := range m.unmade(o) {
			delete(m.state, what)
		}
	case op.Reset:
		m.ends(o)
	case op.RestoreHost:
		m.api.managedEtcd.stop(m.name)
		m.by, m.made, m.told, m.kept = map[string]string{}, map[string]string{}, nil, map[string]string{}
		m.files, m.state, m.ledger, m.cluster = map[string]string{}, map[string]string{}, false, ""
		if o.EndLock {
			m.lock = remote.LockState{}
		}
	default:
		m.state[id(o)] = m.print(o)
	}
	return nil
}

func (m *machine) has(path string) bool {
	_, ok := m.files[path]
	return ok
}

// parameters returns kernel parameters as text.
func parameters(o op.Sysctl) string { return fmt.Sprint(o.Values) }

// notes records that health gates of the batch have to wait for a change.
func (m *machine) notes(ops op.List, changes op.Op) {
	if _, waits := changes.(op.HealthGate); waits {
		return
	}
	for _, o := range ops {
		if s, ok := o.(op.HealthGate); ok {
			m.state["noted by "+s.Name] = "yes"
		}
	}
}

// pairOf returns a certificate as text.
func pairOf(o op.Certificate) string {
	return "certificate of " + o.CommonName + " under " + hash(string(o.CA))
}

// left saves the files of a program that succeeded.
func (m *machine) left(e op.Exec, failed *op.Error) *op.Error {
	for _, p := range e.Keeps {
		if content, ok := m.files[p]; ok && failed == nil {
			m.kept[p] = content
		}
	}
	return failed
}

// discovers reports whether a joining node has the file with the trusted CA.
func (m *machine) discovers() *op.Error {
	if !strings.Contains(m.files["/etc/kubernetes/slipway/discovery.conf"], base64.StdEncoding.EncodeToString(m.api.ca())) {
		return &op.Error{Reason: "CommandFailed", Message: "the CA is not known"}
	}
	return nil
}

// run plays a program.
func (m *machine) run(e op.Exec) *op.Error {
	for _, c := range e.Creates {
		m.files[c] = "made by " + e.Name
	}
	switch e.Name {
	case "kubeadm-init-certs":
		for _, c := range e.Creates {
			if strings.HasSuffix(c, ".key") {
				m.files[c] = canaryKey + c
			}
		}
		m.files["/etc/kubernetes/pki/ca.crt"] = string(m.api.ca())
	case "kubeadm-upgrade-etcd", "kubeadm-mend-etcd":
		return m.etcdStarts(e)
	case "kubeadm-init-etcd", "kubeadm-join-etcd": // by its own file
		m.api.setEtcd(m.name, etcdVotes)
		m.files[facts.EtcdData] = "data of " + m.name
		return m.etcdStarts(e)
	case "kubeadm-again-certs":
		for _, shared := range []string{"ca", "front-proxy-ca", "etcd/ca"} {
			if shared == "etcd/ca" && m.api.managedEtcd.serves() {
				continue // kubeadm does not make the CA of managed etcd
			}
			if key := "/etc/kubernetes/pki/" + shared + ".key"; m.files[key] != canaryKey+key && !strings.HasPrefix(m.files[key], "-----BEGIN") {
				return &op.Error{Reason: "CommandFailed", Message: key + " is not that of the cluster"}
			}
		}
	case "kubeadm-init-kubeconfig", "kubeadm-again-kubeconfig-admin":
		m.files["/etc/kubernetes/admin.conf"] = m.api.kubeconfig()
	case "kubeadm-init-kubelet-start":
		m.files[module.ClientCert] = "made by the kubelet"
		m.api.register(m.name, m.machineID)
		m.api.start()
	case "kubeadm-init-control-plane":
		m.files[module.APIServerManifest] = m.files[settingsFile]
		m.readsKeys()
		if m.has("/etc/kubernetes/bootstrap-kubelet.conf") { // the kubelet waits for the API server
			m.files[module.ClientCert] = "made by the kubelet"
			m.api.register(m.name, m.machineID)
		}
	case "kubeadm-init-upload-config":
		m.api.settings = m.files[settingsFile]
		m.api.record()
		m.api.bind()
	case "kubeadm-init-addon-dns":
		m.api.installDNS()
	case "kubeadm-init-addon-proxy":
		m.api.proxies(m.files[settingsFile])
		m.api.install("proxy")
	case "kubeadm-join-preflight":
		delete(m.files, "/var/lib/kubelet/pki/kubelet-client-current.pem") // the phase only checks the file
		return m.discovers()
	case "kubeadm-join-kubelet-start":
		if failed := m.discovers(); failed != nil {
			return failed
		}
		m.files["/var/lib/kubelet/config.yaml"] = "made by " + e.Name
		if !m.api.knowsToken(string(e.Stdin)) {
			delete(m.files, "/var/lib/kubelet/pki/kubelet-client-current.pem")
			return &op.Error{Reason: "CommandFailed", Message: "the token is not known"}
		}
		m.files["/etc/kubernetes/bootstrap-kubelet.conf"] = string(e.Stdin)
		m.files["/etc/kubernetes/kubelet.conf"] = "names the certificate"
		if m.has("/etc/kubernetes/admin.conf") {
			delete(m.files, module.ClientCert) // the kubelet has to ask the API server of its host, which has not started
			return nil
		}
		m.api.register(m.name, m.machineID)
	case "kubeadm-join-mark-control-plane":
		if !m.api.has("/api/v1/nodes/" + m.name) {
			return &op.Error{Reason: "CommandFailed", Message: "there is no node to mark"}
		}
	}
	if strings.HasPrefix(e.Name, "hook-") {
		m.runs[e.Name]++
	}
	return nil
}

const etcdManifest = "/etc/kubernetes/manifests/etcd.yaml"

// settingsFile is the configuration that kubeadm uses for manifests and uploads.
const settingsFile = "/etc/kubernetes/slipway/kubeadm.yaml"

// canaryKey is in every key of the cluster. Only hosts may have it.
const canaryKey = "canary-key-of "

// joinEtcd plays kubeadm and etcd, which adds one member at a time.
func (m *machine) joinEtcd(o op.EtcdMember) *op.Error {
	if _, ok := m.files["/etc/kubernetes/bootstrap-kubelet.conf"]; !ok {
		return &op.Error{Reason: "CommandFailed", Message: "there is no kubelet to start etcd"}
	}
	if m.api.etcd(m.name) == "" && m.has(facts.EtcdData) {
		return &op.Error{Reason: op.ReasonEtcdRemoved, Message: "etcd does not know " + m.name}
	}
	if other := m.api.learner(); other != "" && other != m.name {
		return &op.Error{Reason: "EtcdBusy", Message: "etcd takes " + other + " now"}
	}
	for _, c := range o.Join.Creates {
		m.files[c] = "made by " + o.Join.Name
	}
	m.files[etcdManifest] = m.files[settingsFile] // the settings in the cluster are the same
	m.api.setEtcd(m.name, etcdVotes)
	m.files[facts.EtcdData] = "data of " + m.name
	return nil
}

// A conn is a connection to a machine.
type conn struct {
	*machine
	closed func()
}

var (
	_ remote.Host   = (*conn)(nil)
	_ remote.Locker = (*conn)(nil)
)

func (c *conn) Name() string { return c.name }

func (c *conn) Close() error {
	c.closed()
	return nil
}

func (c *conn) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	silent := c.silent || c.refused || c.lapsed()
	c.mu.Unlock()
	if address == c.address+":10250" {
		return c.kubelet()
	}
	if silent || !slices.Contains([]string{"127.0.0.1:6443", "example.com:6443"}, address) || !c.api.runs() ||
		strings.HasPrefix(address, "example.") && c.cutOff {
		return nil, fmt.Errorf("nothing listens on %s of %s", address, c.name)
	}
	return (&net.Dialer{}).DialContext(ctx, network, c.api.address())
}

func (c *conn) Check(ctx context.Context, ops op.List) ([]op.Result, error) {
	if c.hangs || slices.ContainsFunc(ops, func(o op.Op) bool { return c.stalled != "" && o.Target() == c.stalled }) {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []op.Result
	c.wanted = ops
	for _, o := range ops {
		out = append(out, c.check(o))
	}
	return out, c.down
}

func (c *conn) Apply(ctx context.Context, b remote.Batch, _ func(remote.Progress)) ([]op.Result, error) {
	var out []op.Result
	for _, o := range b.Ops {
		if gated, ok := o.(op.Block); ok && gated.Gate != nil {
			c.await(ctx, *gated.Gate)
		}
		if c.touched != nil {
			c.touched(b.Step + " " + o.Target())
		}
		if err := ctx.Err(); err != nil {
			return out, err
		}
		if w, ok := o.(op.Wait); ok && w.Name == "etcd" && !c.api.restored() {
			c.api.managedEtcd.await() // the other machines continue meanwhile
		}
		r := c.one(b, o)
		if out = append(out, r); r.Status == op.Failed {
			break
		}
	}
	return out, nil
}

// await gives the other machines time to reach the awaited state.
func (c *conn) await(ctx context.Context, w op.Wait) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		there := c.awaited(w)
		c.mu.Unlock()
		if there {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *conn) one(b remote.Batch, o op.Op) op.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = b.Ops
	r := c.check(o)
	if r.Status != op.Changed {
		return r
	}
	c.cluster = b.Cluster
	switch {
	case b.Operation == "" || b.Step == "" || b.Cluster == "":
		r.Error = &op.Error{Reason: "Internal", Message: "a batch must say for whom it is"}
	case b.Fence > 0 && b.Fence < c.lock.Highest: // an operation without a fence is never refused
		r.Error = &op.Error{Reason: "Fenced", Message: "another manager has taken the cluster over"}
	case c.refuse != nil && c.refuse(b.Step, o) != nil:
		r.Error = c.refuse(b.Step, o)
	default:
		for _, path := range writes(o) {
			c.by[path] = b.Step
		}
		for _, what := range makes(o) {
			c.made[what] = b.Step
		}
		c.notes(b.Ops, o)
		if r.Error = c.apply(o); r.Error == nil && c.spoils != nil {
			r.Error = c.spoils(c.machine, b.Step, o)
		}
		if r.Error == nil {
			r.Output = c.said(o)
		}
	}
	if r.Error != nil {
		r.Status = op.Failed
	}
	return r
}

func (c *conn) ReadLock(context.Context) (remote.LockState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lock, c.down
}

func (c *conn) TakeLock(_ context.Context, l remote.Lock, breaking bool) (remote.LockState, bool, error) {
	if c.touched != nil {
		c.touched("lock")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return c.lock, false, c.down
	}
	free := !c.lock.Held || c.lock.Stale || breaking || c.lock.Holder.Manager == l.Manager && c.lock.Holder.Process == l.Over
	l.Over = ""
	if l.Fence <= c.lock.Highest || !free {
		return c.lock, false, nil
	}
	c.lock = remote.LockState{Held: true, Holder: l, Highest: l.Fence}
	return c.lock, true, nil
}

func (c *conn) Beat(_ context.Context, l remote.Lock) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lock.Held && c.lock.Holder == l, c.down
}

func (c *conn) ReleaseLock(_ context.Context, l remote.Lock) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return c.down
	}
	if c.lock.Holder == l {
		c.lock.Held = false
	}
	return nil
}

var errDown = errors.New("no route to host")
