// Package kubeadm turns prepared hosts into a cluster: kubeadm's own phases,
// each a task with its own check, and the kubelet.
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

// MarkPaths are those whose presence tells how far a host is; facts are
// asked for them.
func MarkPaths() []string {
	return append(sharedFiles(module.Env{Cluster: &v1alpha1.Cluster{}}), module.ClientCert, kubeletConf, adminConf, module.InitMark, module.LeadMark, module.EncryptionFile, module.SigningCert)
}

// Install is the module that puts Kubernetes' programs and the kubelet's unit
// on every node.
func Install(env module.Env) engine.Module {
	m := engine.Module{Name: "kubernetes", Tasks: []engine.Task{
		{
			ID: "kubernetes.programs", Title: "install Kubernetes", On: module.IsNode,
			Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Ops:      func(s *engine.Scope) (op.List, error) { return installPrograms(s) },
		},
		{
			ID: "kubernetes.kubelet", Title: "set up the kubelet", On: module.IsNode,
			Ops: func(s *engine.Scope) (op.List, error) { return kubeletFiles(env, s.Host()) },
		},
	}}
	if env.Docker() || env.Migrates {
		m.Tasks = append(m.Tasks, loginsTask(env))
	}
	return m
}

func installPrograms(s *engine.Scope) (op.List, error) {
	ops, err := module.Programs(s, "kubernetes", "usr/local/bin/", programs, "kube", "kubeadm", "kubelet", "kubectl")
	if err != nil {
		return nil, err
	}
	cni, err := module.Programs(s, "cni-plugins", "opt/cni/bin/", "/opt/cni/bin")
	if err != nil {
		return nil, err
	}
	return append(ops, cni...), nil
}

// Init is the module that begins the cluster on the first control plane. When
// that one has left, the one that speaks for the cluster then goes on with what
// is done for all: it records the settings, and keeps what runs by them.
func Init(env module.Env) engine.Module {
	m := Phases(env)
	m.Tasks = append(m.Tasks, adminTask(env, ownServer))
	return m
}

// Phases is the part of it for a cluster that is spoken to already.
func Phases(env module.Env) engine.Module {
	tasks := []engine.Task{configTask(env), auditTask(env), auditLogTask(env), hardeningTask(env)}
	for _, p := range initPhases(env) {
		if p.id == localEtcd().id {
			tasks = append(tasks, mendTask(env))
		}
		tasks = append(tasks, p.task(env))
		switch p.id {
		case "certs":
			tasks = append(tasks, servingTask(env, "kubeadm.init.serving", env.Begins))
		case "etcd":
			tasks = append(tasks, memberTask(env))
		case "kubelet-start":
			// The first API server starts now. Control planes that join prepare
			// meanwhile, because they need no API for that.
			tasks = append(append(tasks, shareTasks(env)...), prepareTasks(env)...)
		}
	}
	return engine.Module{Name: "control-plane", Tasks: tasks}
}

func configTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "kubeadm.config", Title: "write kubeadm's configuration", On: engine.Role(v1alpha1.RoleControlPlane),
		Ops: func(s *engine.Scope) (op.List, error) { return initFiles(asItSigns(env, s.Host()), s.Host()) },
	}
}

// Reach is the module that speaks to the API of a cluster that exists: over
// whichever control plane has it answer, for one of them may be what is amiss.
func Reach(env module.Env) engine.Module {
	return engine.Module{Name: "control-plane", Tasks: []engine.Task{adminTask(env, anyServer)}}
}

// A phase is a phase of `kubeadm init`.
type phase struct {
	id, title string
	argv      []string // after "kubeadm init phase"
	creates   []string
	keeps     []string
	declares  []string
	inputs    []string
	// whole is for phases that write more than one thing: kubeadm has no
	// way on from half of it, such as a key without its certificate.
	whole  bool
	secret bool
	when   func(*v1alpha1.Cluster) bool
	// begins is for what is done on the host on which the cluster begins and
	// on no other.
	begins bool
	// wait is for the API to be ready; it runs no program.
	wait bool
}

func pki(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(out, "/etc/kubernetes/pki/"+n+".crt", "/etc/kubernetes/pki/"+n+".key")
	}
	return out
}

func manifest(name string) string { return "/etc/kubernetes/manifests/" + name + ".yaml" }

// certificates are all that a control plane has of kubeadm.
func certificates(env module.Env) []string {
	out := append(pki("ca", "apiserver", "apiserver-kubelet-client", "front-proxy-ca", "front-proxy-client"),
		"/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/sa.pub")
	if env.Stacked() {
		out = append(out, pki("etcd/ca", "etcd/server", "etcd/peer", "etcd/healthcheck-client", "apiserver-etcd-client")...)
	}
	return out
}

func componentManifests() []string {
	return []string{manifest("kube-apiserver"), manifest("kube-controller-manager"), manifest("kube-scheduler")}
}

func initPhases(env module.Env) []phase {
	config := []string{ConfigFile}
	etcd := localEtcd()
	etcd.begins, etcd.when = true, func(*v1alpha1.Cluster) bool { return env.Stacked() }
	return []phase{
		// Preflight looks at a host without a cluster; it is not asked
		// again once the CA is there.
		{id: phasePreflight, begins: true, title: "ask kubeadm's preflight", argv: []string{"preflight"}, creates: []string{caCert}},
		{id: "certs", begins: true, title: "make certificates", argv: []string{"certs", "all"}, creates: certificates(env), whole: true},
		{id: "kubeconfig", begins: true, title: "make kubeconfigs", argv: []string{"kubeconfig", "all"}, whole: true, creates: []string{
			adminConf, "/etc/kubernetes/super-admin.conf", "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf", kubeletConf,
		}},
		etcd,
		components(),
		{
			id: "kubelet-start", begins: true, title: "start the kubelet", argv: []string{"kubelet-start"}, whole: true,
			creates: []string{kubeletConfig, kubeletFlags}, declares: []string{kubeletOwn}, keeps: keptOfKubelet(),
		},
		{id: "wait", title: "wait for the API", wait: true},
		{id: "upload-config", title: "record the configuration", argv: []string{"upload-config", "all"}, inputs: config},
		{id: "mark-control-plane", begins: true, title: "mark the control plane", argv: []string{"mark-control-plane"}, inputs: config},
		// The phase prints the token that it makes.
		{id: "bootstrap-token", begins: true, title: "let nodes join", argv: []string{"bootstrap-token"}, inputs: []string{caCert}, secret: true},
		{id: "kubelet-finalize", begins: true, title: "rotate the kubelet's certificate", argv: []string{"kubelet-finalize", "all"}, inputs: []string{caCert}, whole: true},
		{id: "addon-dns", title: "install CoreDNS", argv: []string{"addon", "coredns"}, inputs: config},
		{
			id: "addon-proxy", title: "install kube-proxy", argv: []string{"addon", "kube-proxy"}, inputs: config,
			when: func(c *v1alpha1.Cluster) bool { return c.Spec.Kubernetes.ProxyMode != "none" },
		},
	}
}

// initPhase is one of these phases.
func initPhase(env module.Env, id string) phase {
	all := initPhases(env)
	return all[slices.IndexFunc(all, func(p phase) bool { return p.id == id })]
}

// localEtcd is the phase that writes the manifest of a member of etcd that asks
// no other.
func localEtcd() phase {
	return phase{
		id: "etcd", title: "set up etcd", argv: []string{"etcd", "local"},
		inputs: []string{ConfigFile}, whole: true, creates: []string{manifest("etcd")}, keeps: []string{manifest("etcd")},
	}
}

// components is the phase that writes the manifests of all but etcd. A control
// plane that joins runs it too, by its own file: the phase of `kubeadm join`
// would go by what the cluster has on record, if somebody serves it.
func components() phase {
	return phase{
		id: "control-plane", title: "set up the control plane", argv: []string{"control-plane", "all"},
		inputs: []string{ConfigFile}, whole: true, creates: componentManifests(), keeps: componentManifests(),
	}
}

// localAPI is where a control plane reaches its own API server.
func localAPI(env module.Env) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(env.Cluster.Spec.ControlPlaneEndpoint.Port))
}

// ownAPI waits for a control plane's own API server, with the settings that it
// has now.
func ownAPI(env module.Env) op.Wait {
	return op.Wait{HTTP: "https://" + localAPI(env) + "/readyz", Manifest: module.APIServerManifest, TimeoutSeconds: 300}
}

// mostCrashes is after how many ends something with other settings is taken to
// refuse them.
const mostCrashes = 2

// newAPI is ownAPI, with settings that may be none to start with.
func newAPI(env module.Env) op.Wait {
	w := ownAPI(env)
	if env.Reconfigures {
		w.Crashes = mostCrashes
	}
	return w
}

// stepMend is the step in which members of etcd that do not serve get their settings.
const stepMend = "etcd.mend"

// mendTask gives members of etcd in pods that do not serve the settings that are wanted,
// before any that serves gets them: it is missed by nobody meanwhile, and until it serves
// again none of the others may be away. It is waited for until it runs, whether the others
// are there or not: with settings that are no better, no further one gets them.
func mendTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepMend, Title: "mend members of etcd", Needs: []string{"kubeadm.config"}, Timeout: 8 * time.Minute,
		On:      func(h *engine.Host) bool { return env.Stacked() && h.HasRole(v1alpha1.RoleControlPlane) },
		When:    func(s *engine.Scope) bool { return module.Holds(s.Host()) && (env.OtherEtcd || env.Upgrade.Back) },
		Rollout: engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Ops: func(*engine.Scope) (op.List, error) {
			e := localEtcd().exec()
			e.Name, e.Creates, e.Declares = "kubeadm-mend-etcd", nil, []string{manifest("etcd")}
			e.UnlessServes = env.AskMember("health")
			e.Again = "its member of etcd does not serve" // whatever it was given since it was mended last
			e.Then = &op.Wait{HTTP: env.OwnMemberRuns(), Manifest: manifest("etcd"), TimeoutSeconds: 180}
			if env.Reconfigures {
				e.Then.Crashes = mostCrashes
			}
			return op.List{e}, nil
		},
	}
}

// memberSettings has the step that gives a member of etcd which votes its settings
// end when it serves with them, and begin, if they are others, when all of them
// serve: no two are away at a time.
func memberSettings(env module.Env, h *engine.Host, e op.Exec) op.Exec {
	if !env.Gated || !module.Holds(h) {
		return e
	}
	gated := amongWell(env, e)
	if env.Reconfigures {
		gated.Then.Crashes = mostCrashes
	}
	if !env.OtherEtcd {
		gated.Gate = nil
	}
	return gated
}

// amongWell has a step that exchanges a member of etcd begin when all of them serve,
// so that no two are away at a time, and end when that one does. One that does not
// serve anyway is mended at once.
func amongWell(env module.Env, e op.Exec) op.Exec {
	e.Gate, e.Then = env.EveryMember(), env.AskMember("health")
	e.Then.Manifest = manifest("etcd")
	return e
}

// task makes a phase a task.
func (p phase) task(env module.Env) engine.Task {
	t := engine.Task{
		ID: "kubeadm.init." + p.id, Title: p.title, On: env.IsFirst, Timeout: 6 * time.Minute,
		When: func(*engine.Scope) bool { return p.when == nil || p.when(env.Cluster) },
	}
	if p.begins {
		t.On = env.Begins
	}
	if p.id == localEtcd().id {
		t.Needs = []string{stepMend}
	}
	if p.wait { // for one component after the other
		t.Timeout = 10 * time.Minute
	}
	t.Ops = func(s *engine.Scope) (op.List, error) {
		switch {
		case p.id == components().id:
			return controlPlane(), nil
		case p.id == localEtcd().id:
			return op.List{memberSettings(env, s.Host(), p.exec())}, nil
		case p.id == phasePreflight:
			return op.List{preflight(p, s.Host())}, nil
		case !p.wait:
			return op.List{p.exec()}, nil
		case env.Stacked() && env.Begins(s.Host()): // its member has what it serves
			return append(op.List{newAPI(env), module.EtcdMark()}, newComponents(env)...), nil
		}
		return append(op.List{newAPI(env)}, newComponents(env)...), nil
	}
	return t
}

// phasePreflight is the phase in which kubeadm checks a host without a cluster.
const phasePreflight = "preflight"

// preflight runs this phase. kubeadm accepts no lost+found in etcd's directory,
// which a disk of its own has; whether there is anything else was checked before.
func preflight(p phase, h *engine.Host) op.Exec {
	e := p.exec()
	if h.Facts != nil && !slices.Contains(h.Facts.Filled, facts.DirEtcd) {
		e.Argv = append(e.Argv, "--ignore-preflight-errors=DirAvailable-"+strings.ReplaceAll(facts.DirEtcd, "/", "-"))
	}
	return e
}

// exec runs the phase on the host, by its settings.
func (p phase) exec() op.Exec {
	return op.Exec{
		Name: "kubeadm-init-" + p.id, Argv: slices.Concat([]string{program, "init", "phase"}, p.argv, []string{"--config", ConfigFile}),
		Creates: p.creates, Keeps: p.keeps, Declares: p.declares, Inputs: p.inputs,
		Whole: p.whole, SecretOutput: p.secret, TimeoutSeconds: 300,
	}
}
