// Package kubeadm turns prepared hosts into a cluster, with the phases of kubeadm, each a
// task with its own check, and the kubelet.
package kubeadm

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// ConfigFile has the settings of the phases that kubeadm runs on a control plane.
const ConfigFile = "/etc/kubernetes/slipway/kubeadm.yaml"

// Paths that kubeadm and the kubelet use.
const (
	adminConf     = "/etc/kubernetes/admin.conf"
	kubeletConf   = "/etc/kubernetes/kubelet.conf"
	bootstrapConf = facts.BootstrapConf
	caCert        = "/etc/kubernetes/pki/ca.crt"
	joinFile      = "/etc/kubernetes/slipway/join.yaml"
	discoveryFile = "/etc/kubernetes/slipway/discovery.conf"
	servingFile   = "/etc/kubernetes/slipway/serving.yaml"
	dropInDir     = "/etc/kubernetes/kubelet.conf.d"
	dropInFile    = dropInDir + "/50-slipway.conf"
	unitFile      = "/etc/systemd/system/kubelet.service"
	kubeletConfig = "/var/lib/kubelet/config.yaml"
	kubeletFlags  = "/var/lib/kubelet/kubeadm-flags.env"
	kubeletOwn    = "/var/lib/kubelet/instance-config.yaml"
	programs      = "/usr/local/bin"
	program       = programs + "/kubeadm"
)

// MarkPaths returns files whose presence shows the progress of a host; facts are collected
// for them.
func MarkPaths() []string {
	return append(sharedFiles(module.Env{Cluster: &v1alpha1.Cluster{}}), module.ClientCert, kubeletConf, adminConf,
		module.InitMark, module.LeadMark, module.EncryptionFile, module.SigningCert)
}

// InstallKubernetes is the module that installs the programs of Kubernetes and the unit
// of the kubelet on every node.
func InstallKubernetes(env module.Env) engine.Module {
	m := engine.Module{Name: "kubernetes", Tasks: []engine.Task{
		{
			ID: "kubernetes.programs", Title: "install Kubernetes", On: module.IsNode,
			Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Ops:      func(s *engine.Scope) (op.List, error) { return installPrograms(s) },
		},
		{
			ID: "kubernetes.kubelet", Title: "set up kubelet", On: module.IsNode,
			Ops: func(s *engine.Scope) (op.List, error) { return kubeletFiles(env, s.Host()) },
		},
	}}
	if env.UsesDocker() || env.NewRuntime {
		m.Tasks = append(m.Tasks, loginsTask(env))
	}
	return m
}

func installPrograms(s *engine.Scope) (op.List, error) {
	ops, err := module.FetchAndUnpack(s, "kubernetes", "usr/local/bin/", programs, "kube", "kubeadm", "kubelet", "kubectl")
	if err != nil {
		return nil, err
	}
	cni, err := module.FetchAndUnpack(s, "cni-plugins", "opt/cni/bin/", "/opt/cni/bin")
	if err != nil {
		return nil, err
	}
	return append(ops, cni...), nil
}

// InitControlPlane is the module that creates the cluster on the first control plane.
// When that host has left, the leader continues with the shared work: it uploads the
// settings, and keeps the components running with them.
func InitControlPlane(env module.Env) engine.Module {
	m := UpdateControlPlane(env)
	m.Tasks = append(m.Tasks, adminTask(env, dialLocalServer))
	return m
}

// UpdateControlPlane is the part of InitControlPlane for a cluster with an existing
// connection to its API.
func UpdateControlPlane(env module.Env) engine.Module {
	tasks := []engine.Task{configTask(env), auditTask(env), auditLogTask(env), hardeningTask(env)}
	for _, p := range initPhases(env) {
		if p.id == etcdPhase().id {
			tasks = append(tasks, repairMembersTask(env))
		}
		tasks = append(tasks, p.asTask(env))
		switch p.id {
		case "certs":
			tasks = append(tasks, servingTask(env, "kubeadm.init.serving", env.IsInitNode))
		case "etcd":
			tasks = append(tasks, memberTask(env))
		case "kubelet-start":
			// The first API server starts now. Meanwhile joining control planes run the
			// steps that need no API.
			tasks = append(append(tasks, shareTasks(env)...), prepareTasks(env)...)
		}
	}
	return engine.Module{Name: "control-plane", Tasks: tasks}
}

func configTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.config", Title: "write kubeadm configuration", On: engine.HasRole(v1alpha1.RoleControlPlane),
		Ops: func(s *engine.Scope) (op.List, error) { return initFiles(keepSigner(env, s.Host()), s.Host()) },
	}
}

// ConnectAPI is the module that connects to the API of an existing cluster, through any
// control plane that answers, because one of them may be broken.
func ConnectAPI(env module.Env) engine.Module {
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{adminTask(env, dialAnyServer)}}
}

// A phase is a phase of `kubeadm init`.
type phase struct {
	id, title string
	argv      []string // after "kubeadm init phase"
	creates   []string
	keeps     []string
	declares  []string
	inputs    []string
	// whole is for phases that create several files: kubeadm cannot continue from half of
	// them, such as a key without its certificate.
	whole  bool
	secret bool
	when   func(*v1alpha1.Cluster) bool
	// begins is for phases that run only on the host on which the cluster is created.
	begins bool
	// wait waits until the API is ready; it runs no program.
	wait bool
}

func pkiPaths(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(out, "/etc/kubernetes/pki/"+n+".crt", "/etc/kubernetes/pki/"+n+".key")
	}
	return out
}

func manifestPath(name string) string { return "/etc/kubernetes/manifests/" + name + ".yaml" }

// certPaths returns all certificates and keys that kubeadm creates on a control plane.
func certPaths(env module.Env) []string {
	out := append(pkiPaths("ca", "apiserver", "apiserver-kubelet-client", "front-proxy-ca", "front-proxy-client"),
		"/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/sa.pub")
	if env.HasStackedEtcd() {
		out = append(out, pkiPaths("etcd/ca", "etcd/server", "etcd/peer", "etcd/healthcheck-client", "apiserver-etcd-client")...)
	}
	return out
}

func componentManifests() []string {
	return []string{manifestPath("kube-apiserver"), manifestPath("kube-controller-manager"), manifestPath("kube-scheduler")}
}

func initPhases(env module.Env) []phase {
	config := []string{ConfigFile}
	etcd := etcdPhase()
	etcd.begins, etcd.when = true, func(*v1alpha1.Cluster) bool { return env.HasStackedEtcd() }
	return []phase{
		// The preflight checks are for a host without a cluster; they do not run again
		// once the CA exists.
		{id: phasePreflight, begins: true, title: "run kubeadm preflight checks", argv: []string{"preflight"}, creates: []string{caCert}},
		{id: "certs", begins: true, title: "create certificates", argv: []string{"certs", "all"}, creates: certPaths(env), whole: true},
		{id: "kubeconfig", begins: true, title: "create kubeconfigs", argv: []string{"kubeconfig", "all"}, whole: true, creates: []string{
			adminConf, "/etc/kubernetes/super-admin.conf", "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf", kubeletConf,
		}},
		etcd,
		componentsPhase(),
		{
			id: "kubelet-start", begins: true, title: "start kubelet", argv: []string{"kubelet-start"}, whole: true,
			creates: []string{kubeletConfig, kubeletFlags}, declares: []string{kubeletOwn}, keeps: kubeletBaselineFiles(),
		},
		{id: "wait", title: "wait for API server", wait: true},
		{id: "upload-config", title: "upload kubeadm configuration", argv: []string{"upload-config", "all"}, inputs: config},
		{id: "mark-control-plane", begins: true, title: "mark control plane node", argv: []string{"mark-control-plane"}, inputs: config},
		// The phase prints the token that it creates.
		{
			id: "bootstrap-token", begins: true, title: "allow nodes to join", argv: []string{"bootstrap-token"},
			inputs: []string{caCert}, secret: true,
		},
		{
			id: "kubelet-finalize", begins: true, title: "enable kubelet certificate rotation",
			argv: []string{"kubelet-finalize", "all"}, inputs: []string{caCert}, whole: true,
		},
		{id: "addon-dns", title: "install CoreDNS", argv: []string{"addon", "coredns"}, inputs: config},
		{
			id: "addon-proxy", title: "install kube-proxy", argv: []string{"addon", "kube-proxy"}, inputs: config,
			when: func(c *v1alpha1.Cluster) bool { return c.Spec.Kubernetes.ProxyMode != "none" },
		},
	}
}

// initPhase returns one of these phases.
func initPhase(env module.Env, id string) phase {
	all := initPhases(env)
	return all[slices.IndexFunc(all, func(p phase) bool { return p.id == id })]
}

// etcdPhase is the phase that writes the manifest of an etcd member without contacting
// other members.
func etcdPhase() phase {
	return phase{
		id: "etcd", title: "set up etcd", argv: []string{"etcd", "local"},
		inputs: []string{ConfigFile}, whole: true, creates: []string{manifestPath("etcd")}, keeps: []string{manifestPath("etcd")},
	}
}

// componentsPhase is the phase that writes the manifests of all components except etcd. A
// control plane that joins also runs it, with its own file: the phase of `kubeadm join`
// would read the saved configuration from the cluster, which may not answer.
func componentsPhase() phase {
	return phase{
		id: "control-plane", title: "set up control plane", argv: []string{"control-plane", "all"},
		inputs: []string{ConfigFile}, whole: true, creates: componentManifests(), keeps: componentManifests(),
	}
}

// localAPIAddress returns the address of the API server on the control plane itself.
func localAPIAddress(env module.Env) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(env.Cluster.Spec.ControlPlaneEndpoint.Port))
}

// waitLocalAPI waits for the API server of the control plane itself, with its current
// settings.
func waitLocalAPI(env module.Env) op.Wait {
	return op.Wait{HTTP: "https://" + localAPIAddress(env) + "/readyz", Manifest: module.APIServerManifest, TimeoutSeconds: 300}
}

// startCrashes is after how many exits an API server is considered unable to start. It exits a few times if etcd starts
// slowly.
const startCrashes = 4

// waitNewAPI is waitLocalAPI for an API server that may never have served.
func waitNewAPI(env module.Env) op.Wait {
	w := waitLocalAPI(env)
	w.Crashes = startCrashes
	return w
}

// mostCrashes is after how many exits a component is considered to reject its new
// settings.
const mostCrashes = 2

// waitReconfiguredAPI is waitLocalAPI for settings with which the API server may not
// start.
func waitReconfiguredAPI(env module.Env) op.Wait {
	w := waitNewAPI(env)
	if env.NewControlPlaneSettings {
		w.Crashes = mostCrashes
	}
	return w
}

// stepRepairMembers is the step in which etcd members that do not serve receive their
// settings.
const stepRepairMembers = "etcd.mend"

// repairMembersTask gives etcd members in pods that do not serve the wanted settings,
// before any member that serves receives them. Their restart harms nothing, and until
// they serve, no other member may be down. Each must run afterwards, with or without
// the others: if the settings are bad, no other member receives them.
func repairMembersTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepRepairMembers, Title: "repair etcd members", Needs: []string{"kubeadm.config"}, Timeout: 8 * time.Minute,
		On: func(h *engine.Host) bool { return env.HasStackedEtcd() && h.HasRole(v1alpha1.RoleControlPlane) },
		When: func(s *engine.Scope) bool {
			return module.IsJoined(s.Host()) && (env.NewEtcdSettings || env.Upgrade.IsRollback)
		},
		Rollout: engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Ops: func(*engine.Scope) (op.List, error) {
			e := etcdPhase().asExec()
			e.Name, e.Creates, e.Declares = "kubeadm-mend-etcd", nil, []string{manifestPath("etcd")}
			e.UnlessServes = env.WaitLocalMember("health")
			e.Again = "its etcd member does not serve" // whatever settings it has received since its last repair
			e.Then = &op.Wait{HTTP: env.LocalMemberAliveURL(), Manifest: manifestPath("etcd"), TimeoutSeconds: 180}
			if env.NewControlPlaneSettings {
				e.Then.Crashes = mostCrashes
			}
			return op.List{e}, nil
		},
	}
}

// gateMemberSettings makes the step that gives settings to a voting etcd member end
// when the member serves with them. If the settings change, it begins only when all
// members serve, so that two are never down at the same time.
func gateMemberSettings(env module.Env, h *engine.Host, e op.Exec) op.Exec {
	if !env.IsRunning || !module.IsJoined(h) {
		return e
	}
	gated := gateOnAllMembers(env, e)
	if env.NewControlPlaneSettings {
		gated.Then.Crashes = mostCrashes
	}
	if !env.NewEtcdSettings {
		gated.Gate = nil
	}
	return gated
}

// gateOnAllMembers makes a step that replaces an etcd member begin when all members
// serve, so that two are never down at the same time, and end when the member serves. A
// member that does not serve is repaired at once.
func gateOnAllMembers(env module.Env, e op.Exec) op.Exec {
	e.Gate, e.Then = env.WaitAllMembersHealthy(), env.WaitLocalMember("health")
	e.Then.Manifest = manifestPath("etcd")
	return e
}

// asTask returns a phase as a task.
func (p phase) asTask(env module.Env) engine.Task {
	t := engine.Task{
		ID: "kubeadm.init." + p.id, Title: p.title, On: env.IsFirst, Timeout: 6 * time.Minute,
		When: func(*engine.Scope) bool { return p.when == nil || p.when(env.Cluster) },
	}
	if p.begins {
		t.On = env.IsInitNode
	}
	if p.id == etcdPhase().id {
		t.Needs = []string{stepRepairMembers}
	}
	if p.wait { // it waits for several components
		t.Timeout = 10 * time.Minute
	}
	t.Ops = func(s *engine.Scope) (op.List, error) {
		switch {
		case p.id == componentsPhase().id:
			return rerunControlPlanePhase(), nil
		case p.id == etcdPhase().id:
			return op.List{gateMemberSettings(env, s.Host(), p.asExec())}, nil
		case p.id == phasePreflight:
			return op.List{preflightExec(p, s.Host())}, nil
		case !p.wait:
			return op.List{p.asExec()}, nil
		case env.HasStackedEtcd() && env.IsInitNode(s.Host()): // its etcd member has the data that it serves
			return append(op.List{waitReconfiguredAPI(env), module.MarkEtcdJoined()}, waitReconfiguredComponents(env)...), nil
		}
		return append(op.List{waitReconfiguredAPI(env)}, waitReconfiguredComponents(env)...), nil
	}
	return t
}

// phasePreflight is the phase in which kubeadm checks a host without a cluster.
const phasePreflight = "preflight"

// preflightExec runs this phase. kubeadm rejects a lost+found in the etcd directory,
// which a separate disk has. The precheck has already checked for other content.
func preflightExec(p phase, h *engine.Host) op.Exec {
	e := p.asExec()
	if h.Facts != nil && !slices.Contains(h.Facts.Filled, facts.DirEtcd) {
		e.Argv = append(e.Argv, "--ignore-preflight-errors=DirAvailable-"+strings.ReplaceAll(facts.DirEtcd, "/", "-"))
	}
	return e
}

// asExec returns the operation that runs the phase on the host with its settings.
func (p phase) asExec() op.Exec {
	return op.Exec{
		Name: "kubeadm-init-" + p.id, Argv: slices.Concat([]string{program, "init", "phase"}, p.argv, []string{"--config", ConfigFile}),
		Creates: p.creates, Keeps: p.keeps, Declares: p.declares, Inputs: p.inputs,
		Whole: p.whole, SecretOutput: p.secret, TimeoutSeconds: 300,
	}
}
