package lifecycletest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// checkOp returns the result of checking one operation.
func (m *Host) checkOp(o op.Op) op.Result {
	if m.OnOperation != nil {
		m.OnOperation(o)
	}
	r := op.Result{Kind: o.Kind(), Target: o.Target(), Status: op.Unchanged}
	if r.Kind == m.Uncheckable {
		r.Status, r.Error = op.Failed, &op.Error{Reason: "Internal", Message: "it cannot be read"}
		return r
	}
	if m.LostLedger && (r.Kind == op.KindReset || r.Kind == op.KindRestoreHost) {
		r.Status, r.Error = op.Failed, &op.Error{Reason: op.IDLedgerLost, Message: "the ledger is missing"}
		return r
	}
	changed := false
	switch o := o.(type) {
	case op.Facts:
		f := m.hostFacts()
		// No host has the virtual address of the control planes yet.
		f.Unreached = slices.DeleteFunc(slices.Clone(o.Reach), func(at string) bool { return !strings.HasPrefix(at, VirtualAddress+":") })
		r.Output, _ = json.Marshal(f)
	case op.PodLogs:
		r.Output, _ = json.Marshal(m.PodLogs)
	case op.PodLog:
		r.Output = []byte(m.PodLog(o.Name))
	case op.UnitStarted:
		r.Output = []byte(m.KubeletStarted.Format(time.RFC3339Nano))
	case op.BaselineFile:
		was, ok := m.Baseline[o.Path]
		if changed = ok && m.Files[o.Path] != was; changed {
			r.Summary, r.Diff = "put back as kubeadm left it", was
		}
	case op.RootOnly:
		changed = len(m.OpenKeys) > 0
	case op.Query:
		r.Output = []byte(addonManifests(o.Name))
	case op.ProxyChanges:
		r.Output, _ = json.Marshal(m.API.proxyCounters(m.Name))
	case op.ReadFile:
		content, ok := m.Files[o.Path]
		r.Output, r.Missing = []byte(content), !ok
	case op.InspectCertificates:
		r.Output = m.inspectCertificates(o)
	case op.RenewCertificate:
		r.Summary, r.Error = m.renewalReason(o)
		if changed = r.Summary != ""; r.Error != nil {
			r.Status = op.Failed
			return r
		}
	case op.StaticPodRestart:
		changed = m.podOutdated(o)
	case op.TriggerReload:
		changed = m.State["loaded "+o.File] != m.Files[o.File]
	case op.KeyPair:
		changed = !m.HasFile(o.Private) || !m.HasFile(o.Public)
	case op.KubeconfigCA:
		has, err := pki.KubeconfigCA([]byte(m.Files[o.Path]))
		changed = err == nil && len(has) > 0 && string(has) != string(o.CA)
	case op.File:
		content, ok := m.Files[o.Path]
		if changed = !m.isServing(o.UnlessServes) && (!ok || content != string(o.Content)); changed && !o.Secret {
			r.Diff = string(o.Content)
		}
	case op.Absent:
		_, changed = m.Files[o.Path]
	case op.Exec:
		changed = m.needsRun(o)
	case op.Wait:
		changed = !m.waitDone(o)
	case op.Certificate:
		cert, key := m.Files[o.Cert], m.Files[o.Key]
		if o.Authority && cert != "" && key == "" {
			r.Status, r.Error = op.Failed, &op.Error{Reason: "AuthorityKeyLost", Message: o.Key + " is not there"}
			return r
		}
		changed = cert == "" || key == "" || len(o.CA) > 0 && m.certOutdated(o) || !o.Authority && o.CAKey == "" && m.needsSigning(o)
	case op.CertificateRequest:
		if changed = !m.HasFile(o.Key); !changed && m.needsSigning(o.Certificate) {
			r.Output = m.makeRequest(o)
		}
	case op.Unit:
		changed = m.State[o.Name+" enabled"] == "" ||
			o.Running != nil && m.State[o.Name+" started"] != m.HashInputs(o) &&
				(!o.KeepRunning && !m.isServing(o.UnlessServes) || m.State[o.Name+" started"] == "")
	case op.EtcdMember:
		if o.Service != nil {
			changed = !m.API.ManagedEtcd.isMember(m)
			break
		}
		changed = m.API.EtcdRole(m.Name) != EtcdVoter || len(o.Join.Inputs) > 0 && m.State[OperationID(o.Join)] != m.hashOperation(o.Join) ||
			!m.API.anyVoter(o.Endpoints)
	case op.EtcdRemove:
		gone, err := m.API.membersToRemove(o)
		if changed = len(gone) > 0; err != nil {
			r.Status, r.Error = op.Failed, err
			return r
		}
	case op.EtcdDefrag:
		wins := o.Do == op.DefragAny || o.Do == op.DefragFollower && !m.LeadsEtcd
		if changed = wins && m.EtcdWaste > 0; m.API.EtcdProblem != "" {
			r.Status, r.Error = op.Failed, &op.Error{Reason: op.IDEtcdUnhealthy, Message: m.API.EtcdProblem}
			return r
		}
	case op.EtcdDowngrade:
		changed = m.API.requestDowngrade(false)
	case op.EtcdRestore:
		changed = !m.API.stepDone(m.Name, o)
	case op.EtcdRecover:
		var made bool
		r.Output, made = m.recoveryReport(o)
		changed = !made
	case op.EtcdGet:
		r.Output = m.API.countValues(o)
	case op.ListBackupCopies:
		r.Output = m.listDir(o.Directory)
	case op.EtcdSnapshot:
		changed = m.HasFile(op.EtcdSnapshots+"/"+o.Name) == o.Gone
	case op.Reset:
		if changed = m.HasLedger; !changed && o.KeepUnmanaged && m.HasFile("/etc/kubernetes/kubelet.conf") {
			r.Status, r.Error = op.Failed, &op.Error{Reason: op.IDUnmanaged, Message: "this host has no ledger"}
			return r
		}
	case op.RestoreHost:
		changed = m.HasLedger || o.EndLock && m.Lock.Held
	case op.RevertStep:
		changed = len(m.filesToRevert(o))+len(m.stateToRevert(o)) > 0
	case op.Sysctl:
		changed = m.Files[o.File] != sysctlText(o)
	case op.HealthGate:
		changed = m.State["noted by "+o.Name] != ""
	case op.PodHosts:
		changed = len(m.podHosts) > 0 && m.podHosts[0] != o.Address+" "+o.Name
	case op.Unpack:
		changed = m.State[OperationID(o)] != m.hashOperation(o) && !m.isServing(o.UnlessServes)
	case op.FetchBlob:
		changed = m.State[KeptBlob+o.Name+" "+o.Digest] == ""
	case op.Prune:
		changed = len(m.entriesToPrune(o)) > 0
	case op.Reboot:
		changed = m.BootID() == o.Boot
	case op.ImportImages: // an import also removes the images that were fetched for it
		changed = m.State[OperationID(o)] != m.hashOperation(o) || !o.Ahead && m.State[OperationID(op.ImportImages{Ahead: true})] != ""
	default:
		changed = m.State[OperationID(o)] != m.hashOperation(o)
	}
	if changed {
		r.Status = op.Changed
	}
	return r
}

// isServing reports whether the etcd unit runs, for operations that do nothing while a
// service runs.
func (m *Host) isServing(w *op.Wait) bool {
	return w != nil && m.State[module.EtcdUnitName+" started"] != ""
}

// OperationID returns the key of an operation in the state of a host.
func OperationID(o op.Op) string { return string(o.Kind()) + " " + o.Target() }

// hashOperation returns an operation as text, with the content of the files it depends on.
func (m *Host) hashOperation(o op.Op) string {
	switch o.(type) {
	case op.Exec: // the way to call a program is not compared
		return m.HashInputs(o)
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
	return hashParts(string(raw), m.HashInputs(o))
}

// HashInputs returns a hash of the files that an operation depends on.
func (m *Host) HashInputs(o op.Op) string {
	var all []string
	for _, p := range op.DependsOn(o) {
		all = append(all, m.Files[p])
	}
	return hashParts(all...)
}

func hashParts(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

func (m *Host) needsRun(e op.Exec) bool {
	if e.UnlessServes != nil && !m.isEtcdAway() {
		return false
	}
	if e.Again != "" {
		return true
	}
	if len(e.Inputs) > 0 && m.State[OperationID(e)] != m.hashOperation(e) {
		return true
	}
	for _, c := range e.Creates {
		_, kept := m.Baseline[c]
		if !m.HasFile(c) && !kept {
			return true
		}
	}
	return len(e.Inputs) == 0 && len(e.Creates) == 0
}

func (m *Host) waitDone(w op.Wait) bool {
	if w.Name == "etcd" {
		return m.API.ManagedEtcd.isServing() || m.API.allRestored()
	}
	if w.Says != "" { // kube-proxy, which uses the settings in the cluster
		return m.API.RunsProxy(w.Says) && (m.Reaches == nil || m.Reaches(m, w.HTTP))
	}
	if strings.HasPrefix(w.Name, "access to ") { // of the registry user, to its directory
		return true
	}
	if strings.HasPrefix(w.Name, "pod kube-apiserver-") { // any API server has the pod
		return m.HasFile(module.APIServerManifest)
	}
	if len(w.Trusts) > 0 {
		return m.State["trusts"] == m.hashFiles(w.Trusts)
	}
	if answer, ok := m.certificateReady(w); ok {
		return answer
	}
	if w.Container != "" { // with the version of its manifest
		manifest := m.Files[module.APIServerManifest]
		if w.Container == "etcd" {
			manifest = m.Files[EtcdManifest]
		}
		_, tag, _ := strings.Cut(w.Image, ":")
		return w.Container == "etcd" && manifest != "" || strings.Contains(manifest, tag)
	}
	if w.HTTP != "" && strings.HasPrefix(w.HTTP, "https://127.0.0.1:102") {
		return !m.APISilent && m.HasFile(module.APIServerManifest)
	}
	if w.Ended == "kube-apiserver" {
		return !m.APILingers && !m.HasFile(module.APIServerManifest)
	}
	if w.Ended != "" { // a program runs as long as it has its configuration
		return !m.HasFile(w.Ended)
	}
	if own := strings.HasPrefix(w.HTTP, "https://127.0.0.1:6443/"); own && (m.APISilent || m.IsSick != nil && m.IsSick(m)) {
		return false
	}
	if w.HTTP != "" {
		if (w.Manifest == module.KeepalivedManifest || w.Manifest == module.KubeVIPManifest) && m.Reaches != nil && !m.Reaches(m, w.HTTP) {
			return false
		}
		_, ok := m.Files["/etc/kubernetes/manifests/kube-apiserver.yaml"]
		if !ok && m.HasFile("/var/lib/kubelet/pki/kubelet-client-current.pem") {
			return m.Reaches == nil || m.Reaches(m, w.HTTP)
		}
		return ok && (m.API.EtcdRole(m.Name) == EtcdVoter || m.API.ManagedEtcd.isServing())
	}
	_, ok := m.Files[w.Path]
	return ok
}

// sysctlText returns kernel parameters as text.
func sysctlText(o op.Sysctl) string { return fmt.Sprint(o.Values) }

// pairText returns a certificate as text.
func pairText(o op.Certificate) string {
	return "certificate of " + o.CommonName + " under " + hashParts(string(o.CA))
}
