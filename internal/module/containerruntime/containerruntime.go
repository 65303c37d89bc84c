// Package containerruntime installs containerd, and Docker on top of it, and imports
// the bundle's images.
package containerruntime

import (
	"embed"
	"path"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

//go:embed templates
var files embed.FS

const (
	configFile = "/etc/containerd/config.toml"
	dropInFile = "/etc/containerd/slipway.toml"
	unitFile   = "/etc/systemd/system/containerd.service"
	programs   = "/usr/local/bin"
	// nettools has packet filter programs for hosts without them; the unit of containerd
	// searches it last.
	nettools       = "/usr/local/lib/slipway/nettools"
	stepSettings   = "runtime.settings"
	stepRegistries = "runtime.registries"
)

// InstallRuntime is the module that installs containerd.
func InstallRuntime(env module.Env) engine.Module {
	m := engine.Module{Name: "runtime", Tasks: []engine.Task{
		{
			ID: stepSettings, Title: "write containerd configuration", On: module.IsNode,
			Ops: func(*engine.Scope) (op.List, error) { return dropIn(env.Cluster.Spec.ContainerRuntime.Config), nil },
		},
		{
			ID: "runtime.containerd", Title: "install containerd", On: module.IsNode,
			Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Ops:      func(s *engine.Scope) (op.List, error) { return containerdOps(env, s) },
		},
		{
			ID: stepRegistries, Title: "configure registries", On: module.IsNode,
			Ops: func(s *engine.Scope) (op.List, error) {
				list, err := registryFiles(env)
				return append(list, env.VerifyServing(s.Host(), stepRegistries, false)...), err
			},
		},
	}}
	switch at := len(m.Tasks) - 1; {
	case env.UsesDocker(): // its directories must exist before their content
		m.Tasks = slices.Insert(m.Tasks, at, dockerTask(env))
	case env.NewRuntime: // they are removed when they are empty
		m.Tasks = append(m.Tasks, removeDockerTask())
	}
	return m
}

// ImportImages is the module that imports images. It runs after programs are installed:
// both share content, which is then already on the host.
func ImportImages(env module.Env) engine.Module {
	return engine.Module{Name: "images", Tasks: []engine.Task{{
		ID: "runtime.images", Title: "import images", On: module.IsNode,
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			list, err := hostImages(env, s)
			return op.List{op.ImportImages{Images: list, Docker: env.UsesDocker()}}, err
		},
	}}}
}

// PrefetchImages is the module that transfers the content of images to nodes that will
// change their runtime, while other nodes change. The new runtime gets the content only
// after the node is drained, from the host itself.
func PrefetchImages(env module.Env) engine.Module {
	return engine.Module{Name: "images", Tasks: []engine.Task{{
		ID: "runtime.ahead", Title: "prefetch images", On: env.ChangesRuntime,
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			list, err := hostImages(env, s)
			return op.List{op.ImportImages{Images: list, Ahead: true}}, err
		},
	}}}
}

// StepPrune is the step after which no rollback to an earlier bundle is possible.
const StepPrune = "runtime.retire"

// PruneBundles is the module that removes files of earlier bundles from hosts. If it
// fails on a host, the files are removed another time: nothing depends on it.
func PruneBundles(env module.Env) engine.Module {
	return engine.Module{Name: "retire", Tasks: []engine.Task{{
		ID: StepPrune, Title: "remove files of earlier bundles", On: env.IsStaying, IgnoreError: true,
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			o := op.Prune{Docker: env.UsesDocker()}
			for _, c := range engine.GetValue(s, module.KeyContent).Components() {
				if c.Arch == module.HostArch(s.Host()) {
					o.Blobs = append(o.Blobs, c.Digest)
				}
			}
			if !module.IsNode(s.Host()) {
				return op.List{o}, nil
			}
			list, err := hostImages(env, s)
			for _, img := range list {
				o.Images = append(o.Images, img.Ref)
			}
			return op.List{o}, err
		},
	}}}
}

func containerdOps(env module.Env, s *engine.Scope) (op.List, error) {
	ops, err := module.FetchAndUnpack(s, "containerd", "usr/local/bin/", programs)
	if err != nil {
		return nil, err
	}
	crictl, err := module.FetchAndUnpack(s, "crictl", "usr/local/bin/", programs)
	if err != nil {
		return nil, err
	}
	ops = append(ops, crictl...)
	// The CNI plugin portmap, which containerd runs, needs nft or iptables.
	tools, err := module.FetchAndUnpack(s, "nettools", "", nettools)
	if err != nil {
		return nil, err
	}
	ops = append(ops, tools...)
	theirs := env.Cluster.Spec.ContainerRuntime.Config
	config, err := module.RenderTemplate(files, "config.toml", map[string]any{
		"Docker": env.UsesDocker(),
		"Pause":  env.Release.ImageRefs()["pause"],
		// Without the capability no process may lower its score, and every sandbox would
		// fail.
		"DropIn":           theirs != "",
		"RestrictOOMScore": s.Host().Facts != nil && !s.Host().Facts.ResourceCapability,
	})
	if err != nil {
		return nil, err
	}
	unit, err := module.RenderTemplate(files, "containerd.service", map[string]any{"Mounts": module.UnitMounts(facts.DirContainerd)})
	if err != nil {
		return nil, err
	}
	ops = append(ops,
		op.Dir{Path: facts.DirContainerd, Mode: 0o700, Exclusive: true},
		op.Dir{Path: "/etc/containerd"},
		op.Dir{Path: "/etc/cni/net.d"}, // otherwise containerd creates it
		op.Dir{Path: "/var/lib/cni"},   // likewise; other programs may use it, too
		op.File{Path: configFile, Content: config},
		op.File{
			Path:    "/etc/crictl.yaml",
			Content: []byte("runtime-endpoint: " + env.RuntimeSocket() + "\nimage-endpoint: " + env.RuntimeSocket() + "\n"),
		},
		op.File{Path: unitFile, Content: unit},
	)
	return append(ops, op.Unit{
		Name: "containerd.service", Enabled: op.Bool(true), Running: op.Bool(true),
		RestartOn: []string{configFile, dropInFile, unitFile, programs + "/containerd"},
		Declares:  []string{"/run/containerd", "/run/nri", "/opt/containerd", "/run/netns"},
		Again:     restartWaits(env, s.Host()),
	}), nil
}

// restartWaits returns waits for what must work again after a restart: containerd, and
// what the node does with it.
func restartWaits(env module.Env, h *engine.Host) []op.Wait {
	if !env.IsRunning || !module.IsJoined(h) {
		return nil
	}
	return append([]op.Wait{{Name: "containerd", Program: []string{programs + "/crictl", "--timeout=5s", "info"}, TimeoutSeconds: 60}},
		env.HealthGate(h, "containerd.service")...)
}

// dropIn returns the containerd settings of the user.
func dropIn(text string) op.List {
	var list op.List
	if text != "" {
		list = op.List{
			op.Dir{Path: path.Dir(dropInFile)},
			op.File{Path: dropInFile, Content: []byte("version = 3\n" + strings.TrimRight(text, "\n") + "\n")},
		}
	}
	return append(list, op.RevertStep{Step: stepSettings})
}

// extraImages returns the additional images of the bundle. With a private registry
// nodes pull them from there when needed. Docker would not use it for images with names
// of other registries.
func extraImages(env module.Env, s *engine.Scope) (list []op.Image) {
	if env.Registry != nil && !env.UsesDocker() {
		return nil
	}
	images := engine.GetValue(s, module.KeyContent).Images()
	tags := bundle.TagNames(images)
	for _, i := range images {
		if !i.Extra || i.Arch != module.HostArch(s.Host()) {
			continue
		}
		for _, name := range imageNames(i.Ref, tags[i.Ref], env.UsesDocker()) {
			img := i.Image
			img.Ref = name
			list = append(list, img)
		}
	}
	return list
}

// imageNames returns the names under which pods may refer to an image: by tag, and by
// digest. Docker knows no digest of an image that it has not pulled.
func imageNames(ref, tag string, docker bool) (out []string) {
	if tag != "" {
		out = []string{tag}
	}
	repository, digest, pinned := strings.Cut(ref, "@")
	if at := strings.LastIndex(repository, ":"); at > strings.LastIndex(repository, "/") {
		repository = repository[:at]
	}
	if pinned && !docker {
		out = append(out, repository+"@"+digest)
	}
	return out
}

// hostImages returns the images that the roles of a host need.
func hostImages(env module.Env, s *engine.Scope) (list []op.Image, err error) {
	names := []string{"pause", "kube-proxy", "coredns", "flannel", "echo"}
	if s.Host().HasRole(v1alpha1.RoleControlPlane) {
		names = append(names, "kube-apiserver", "kube-controller-manager", "kube-scheduler")
		if env.HasStackedEtcd() {
			names = append(names, "etcd")
		}
	}
	names = append(names, addonsource.BundleImages(env.Cluster.Spec.Addons)...)
	names = append(names, module.EndpointImages(env.Cluster.Spec.ControlPlaneEndpoint.Mode, s.Host())...)
	for _, n := range names {
		img, err := module.FindImage(s, n)
		if err != nil {
			return nil, err
		}
		list = append(list, img)
	}
	return append(list, extraImages(env, s)...), nil
}
