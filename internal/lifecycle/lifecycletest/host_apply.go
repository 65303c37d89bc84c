package lifecycletest

import (
	"encoding/base64"
	"maps"
	"path"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/remote"
)

// removeUnits removes units, directories, and images in them, as a reset does.
func (m *Host) removeUnits(o op.Reset) {
	for _, unit := range o.Units {
		delete(m.State, unit+" started")
	}
	for _, path := range o.Paths {
		delete(m.State, OperationID(op.Dir{Path: path}))
		if path == facts.DirContainerd {
			delete(m.State, OperationID(op.ImportImages{}))
			maps.DeleteFunc(m.State, func(what, _ string) bool { return strings.HasPrefix(what, pinnedImage) })
		}
	}
}

// applyOp carries out one operation.
func (m *Host) applyOp(o op.Op) *op.Error {
	m.HasLedger = true
	switch o := o.(type) {
	case op.File:
		if o.Gate != nil && !m.waitDone(*o.Gate) {
			return &op.Error{Reason: "Timeout", Message: "nothing answers at " + o.Gate.Target()}
		}
		m.Files[o.Path] = string(o.Content)
	case op.Absent:
		delete(m.Files, o.Path)
	case op.Sysctl:
		m.Files[o.File] = sysctlText(o)
	case op.HealthGate:
		if m.IsSick != nil && m.IsSick(m) {
			return &op.Error{Reason: op.ReasonUnhealthy, Message: "its kubelet did not answer"}
		}
		delete(m.State, "noted by "+o.Name)
	case op.Exec:
		m.State[OperationID(o)] = m.hashOperation(o)
		return m.keepBaseline(o, m.runProgram(o))
	case op.BaselineFile:
		m.Files[o.Path] = m.Baseline[o.Path]
	case op.RootOnly:
		clear(m.OpenKeys)
	case op.EtcdMember:
		if o.Service != nil {
			return m.API.ManagedEtcd.joinMember(m, o.Service)
		}
		if !m.API.anyVoter(o.Endpoints) {
			return &op.Error{Reason: "CommandFailed", Message: "no other member answers"}
		}
		m.State[OperationID(o.Join)] = m.hashOperation(o.Join)
		return m.keepBaseline(o.Join, m.joinEtcd(o))
	case op.EtcdRemove:
		gone, err := m.API.membersToRemove(o)
		m.API.ManagedEtcd.removeMembers(gone)
		for _, name := range gone {
			m.API.SetEtcdRole(name, "")
		}
		return err
	case op.EtcdDefrag:
		m.EtcdWaste = 0
	case op.EtcdDowngrade:
		m.API.requestDowngrade(true)
	case op.EtcdRestore:
		return m.restoreStep(o)
	case op.EtcdRecover:
		return m.recoverEtcd(o)
	case op.EtcdSnapshot:
		delete(m.Files, op.EtcdSnapshots+"/"+o.Name)
		if !o.Gone {
			m.Files[op.EtcdSnapshots+"/"+o.Name] = m.Snapshot
		}
	case op.EtcdRestoreTest: // it leaves nothing
	case op.Certificate:
		if o.Cert == module.NextCA { // its certificates are shown to clients
			m.Files[o.Cert], m.Files[o.Key] = LastingAuthority(m.API.T)
			return nil
		}
		if o.Authority { // its certificates are checked
			m.Files[o.Key], m.Files[o.Cert] = newAuthority(m.API.T, o.CommonName)
			if o.CommonName == "etcd-ca" {
				EtcdKeys.Store(m.Files[o.Key], true)
			}
			return nil
		}
		return m.makeCertificate(o)
	case op.CertificateRequest:
		_, text, err := pki.NewKey()
		if err != nil {
			return &op.Error{Reason: "Internal", Message: err.Error()}
		}
		m.Files[o.Key] = string(text)
	case op.Block:
		if o.Gate != nil && !m.waitDone(*o.Gate) {
			return &op.Error{Reason: "Timeout", Message: "nothing answers at " + o.Gate.Target()}
		}
		m.State[OperationID(o)] = m.hashOperation(o)
		if strings.HasSuffix(o.Name, " API") && m.podHosts == nil {
			m.podHosts = o.Lines // the pods have not started yet
		}
	case op.PodHosts:
		m.podHosts = []string{o.Address + " " + o.Name}
	case op.RenewCertificate:
		return m.renewCertificate(o)
	case op.KeyPair:
		private, public := NewAccountKey()
		m.Files[o.Private], m.Files[o.Public] = private, public
	case op.KubeconfigCA:
		m.Files[o.Path] = string(pki.WithKubeconfigCA([]byte(m.Files[o.Path]), o.CA))
	case op.TriggerReload:
		m.State["loaded "+o.File] = m.Files[o.File]
	case op.StaticPodRestart:
		if strings.Contains(o.Manifest, "controller-manager") && slices.Contains(o.Files, certs.AuthorityCert) {
			if m.RejectsSigner() {
				return &op.Error{Reason: op.ReasonNotServing, Message: "it does not start: what it signs with is no pair"}
			}
			m.API.PublishRootCA(m.Files[certs.AuthorityCert])
		}
		if slices.Contains(o.Files, module.EncryptionFile) {
			m.loadEncryptionKeys()
			return nil
		}
		m.State["read by "+o.Manifest] = m.HashInputs(o)
		if slices.Contains(o.Files, module.EtcdCA) {
			m.State["etcd by "+o.Manifest] = m.Files[module.EtcdCA]
		}
	case op.Wait:
		if len(o.Trusts) > 0 {
			m.ReloadTrust(o.Trusts)
			return nil
		}
		if o.Name == "etcd" && m.API.ManagedEtcd.isServing() || strings.HasPrefix(o.Name, "access to ") {
			return nil
		}
		if o.Manifest != "" {
			return &op.Error{Reason: op.ReasonNotServing, Message: "nothing answers at " + o.Target()}
		}
		if o.Path != "/run/flannel/subnet.env" || !m.API.HasObject("/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel") {
			return &op.Error{Reason: "Timeout", Message: "nothing makes " + o.Target()}
		}
		m.Files[o.Path] = "FLANNEL_NETWORK"
	case op.Unpack:
		if o.Gate != nil && !m.waitDone(*o.Gate) {
			return &op.Error{Reason: "Timeout", Message: "nothing answers at " + o.Gate.Target()}
		}
		m.State[OperationID(o)] = m.hashOperation(o)
		if o.Name == "etcd" {
			m.Files[module.EtcdPrograms().Server] = o.Digest
		}
		for _, name := range o.Members {
			m.Files[path.Join(o.Dir, name)] = o.Digest
		}
	case op.FetchBlob:
		m.State[KeptBlob+o.Name+" "+o.Digest] = "yes"
	case op.Prune:
		for _, what := range m.entriesToPrune(o) {
			delete(m.State, what)
		}
	case op.ImportImages:
		m.State[OperationID(o)] = m.hashOperation(o)
		if !o.Ahead {
			delete(m.State, OperationID(op.ImportImages{Ahead: true})) // the content was fetched ahead
		}
		for _, img := range o.Images {
			if !o.Ahead {
				m.State[pinnedImage+img.Ref] = "yes"
			}
			if _, version, ok := strings.Cut(img.Ref, "kube-proxy:"); ok {
				m.version = version // the version of the next kubelet
			}
		}
	case op.Unit:
		for _, path := range o.Forgets {
			delete(m.Files, path)
		}
		m.State[o.Name+" enabled"] = "yes"
		if m.HasFile(facts.BootstrapConf) && m.Admit != nil {
			if !m.API.knowsToken(m.Files[facts.BootstrapConf]) {
				return &op.Error{Reason: "CommandFailed", Message: "the token is not known"}
			}
			m.Admit(m)
		}
		if o.Name == "etcd.service" {
			if err := m.API.ManagedEtcd.startMember(m); err != nil {
				return err
			}
		}
		if o.Running != nil {
			m.State[o.Name+" started"] = m.HashInputs(o)
			if o.Name == "etcd.service" {
				m.State["etcd by "+o.Name] = m.Files[module.EtcdCA]
			}
			if o.Name == "kubelet.service" {
				m.API.ReportVersion(m.Name, m.version)
			}
		}
	case op.Reboot:
		m.Boots++
	case op.RevertStep:
		for _, path := range m.filesToRevert(o) {
			delete(m.Files, path)
		}
		for _, what := range m.stateToRevert(o) {
			delete(m.State, what)
		}
	case op.Reset:
		m.removeUnits(o)
	case op.RestoreHost:
		m.API.ManagedEtcd.StopMember(m.Name)
		m.writtenBy, m.madeBy, m.podHosts, m.Baseline = map[string]string{}, map[string]string{}, nil, map[string]string{}
		m.Files, m.State, m.HasLedger, m.Cluster = map[string]string{}, map[string]string{}, false, ""
		if o.EndLock {
			m.Lock = remote.LockState{}
		}
	default:
		m.State[OperationID(o)] = m.hashOperation(o)
	}
	return nil
}

// noteChange records that health gates of the batch have to wait for a change.
func (m *Host) noteChange(ops op.List, changes op.Op) {
	if _, waits := changes.(op.HealthGate); waits {
		return
	}
	for _, o := range ops {
		if s, ok := o.(op.HealthGate); ok {
			m.State["noted by "+s.Name] = "yes"
		}
	}
}

// keepBaseline saves the files of a program that succeeded.
func (m *Host) keepBaseline(e op.Exec, failed *op.Error) *op.Error {
	for _, p := range e.Keeps {
		if content, ok := m.Files[p]; ok && failed == nil {
			m.Baseline[p] = content
		}
	}
	return failed
}

// checkDiscovery reports whether a joining node has the file with the trusted CA.
func (m *Host) checkDiscovery() *op.Error {
	if !strings.Contains(m.Files["/etc/kubernetes/slipway/discovery.conf"], base64.StdEncoding.EncodeToString(m.API.CA())) {
		return &op.Error{Reason: "CommandFailed", Message: "the CA is not known"}
	}
	return nil
}

// runProgram simulates a program.
func (m *Host) runProgram(e op.Exec) *op.Error {
	for _, c := range e.Creates {
		m.Files[c] = "made by " + e.Name
	}
	switch e.Name {
	case "kubeadm-init-certs":
		for _, c := range e.Creates {
			if strings.HasSuffix(c, ".key") {
				m.Files[c] = CanaryKey + c
			}
		}
		m.Files["/etc/kubernetes/pki/ca.crt"] = string(m.API.CA())
	case "kubeadm-upgrade-etcd", "kubeadm-mend-etcd":
		return m.startEtcd(e)
	case "kubeadm-init-etcd", "kubeadm-join-etcd": // by its own file
		m.API.SetEtcdRole(m.Name, EtcdVoter)
		m.Files[facts.EtcdData] = "data of " + m.Name
		return m.startEtcd(e)
	case "kubeadm-again-certs":
		for _, shared := range []string{"ca", "front-proxy-ca", "etcd/ca"} {
			if shared == "etcd/ca" && m.API.ManagedEtcd.isServing() {
				continue // kubeadm does not make the CA of managed etcd
			}
			if key := "/etc/kubernetes/pki/" + shared + ".key"; m.Files[key] != CanaryKey+key && !strings.HasPrefix(m.Files[key], "-----BEGIN") {
				return &op.Error{Reason: "CommandFailed", Message: key + " is not that of the cluster"}
			}
		}
	case "kubeadm-init-kubeconfig", "kubeadm-again-kubeconfig-admin":
		m.Files["/etc/kubernetes/admin.conf"] = m.API.Kubeconfig()
	case "kubeadm-init-kubelet-start":
		m.Files[module.ClientCert] = "made by the kubelet"
		m.API.RegisterNode(m.Name, m.MachineID)
		m.API.Start()
	case "kubeadm-init-control-plane":
		m.Files[module.APIServerManifest] = m.Files[SettingsFile]
		m.loadEncryptionKeys()
		if m.HasFile("/etc/kubernetes/bootstrap-kubelet.conf") { // the kubelet waits for the API server
			m.Files[module.ClientCert] = "made by the kubelet"
			m.API.RegisterNode(m.Name, m.MachineID)
		}
	case "kubeadm-init-upload-config":
		m.API.Settings = m.Files[SettingsFile]
		m.API.uploadConfig()
		m.API.grantAdmin()
	case "kubeadm-init-addon-dns":
		m.API.installDNS()
	case "kubeadm-init-addon-proxy":
		m.API.configureProxy(m.Files[SettingsFile])
		m.API.installAddon("proxy")
	case "kubeadm-join-preflight":
		delete(m.Files, "/var/lib/kubelet/pki/kubelet-client-current.pem") // the phase only checks the file
		return m.checkDiscovery()
	case "kubeadm-join-kubelet-start":
		if failed := m.checkDiscovery(); failed != nil {
			return failed
		}
		m.Files["/var/lib/kubelet/config.yaml"] = "made by " + e.Name
		if !m.API.knowsToken(string(e.Stdin)) {
			delete(m.Files, "/var/lib/kubelet/pki/kubelet-client-current.pem")
			return &op.Error{Reason: "CommandFailed", Message: "the token is not known"}
		}
		m.Files["/etc/kubernetes/bootstrap-kubelet.conf"] = string(e.Stdin)
		m.Files["/etc/kubernetes/kubelet.conf"] = "names the certificate"
		if m.HasFile("/etc/kubernetes/admin.conf") {
			delete(m.Files, module.ClientCert) // the kubelet has to ask the API server of its host, which has not started
			return nil
		}
		m.API.RegisterNode(m.Name, m.MachineID)
	case "kubeadm-join-mark-control-plane":
		if !m.API.HasObject("/api/v1/nodes/" + m.Name) {
			return &op.Error{Reason: "CommandFailed", Message: "the node to mark does not exist"}
		}
	}
	if strings.HasPrefix(e.Name, "hook-") {
		m.HookRuns[e.Name]++
	}
	return nil
}

// EtcdManifest is the path of the manifest of etcd.
const EtcdManifest = "/etc/kubernetes/manifests/etcd.yaml"

// SettingsFile is the configuration that kubeadm uses for manifests and uploads.
const SettingsFile = "/etc/kubernetes/slipway/kubeadm.yaml"

// CanaryKey is in every key of the cluster. Only hosts may have it.
const CanaryKey = "canary-key-of "

// joinEtcd simulates kubeadm and etcd, which adds one member at a time.
func (m *Host) joinEtcd(o op.EtcdMember) *op.Error {
	if _, ok := m.Files["/etc/kubernetes/bootstrap-kubelet.conf"]; !ok {
		return &op.Error{Reason: "CommandFailed", Message: "there is no kubelet to start etcd"}
	}
	if m.API.EtcdRole(m.Name) == "" && m.HasFile(facts.EtcdData) {
		return &op.Error{Reason: op.ReasonEtcdRemoved, Message: "etcd does not know " + m.Name}
	}
	if other := m.API.etcdLearner(); other != "" && other != m.Name {
		return &op.Error{Reason: "EtcdBusy", Message: "etcd takes " + other + " now"}
	}
	for _, c := range o.Join.Creates {
		m.Files[c] = "made by " + o.Join.Name
	}
	m.Files[EtcdManifest] = m.Files[SettingsFile] // the settings in the cluster are the same
	m.API.SetEtcdRole(m.Name, EtcdVoter)
	m.Files[facts.EtcdData] = "data of " + m.Name
	return nil
}
