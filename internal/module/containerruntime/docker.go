package containerruntime

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

const (
	dockerConfig = "/etc/docker/daemon.json"
	dockerUnit   = "/etc/systemd/system/docker.service"
	criUnit      = module.DockerUnit
	stepDocker   = "runtime.docker"
	criSocket    = "/run/cri-dockerd.sock"
	// restricted is the helper, used as runc by Docker on hosts where no process may lower
	// its score.
	restricted = "/usr/local/lib/slipway/runc"
)

// dockerTask installs Docker on top of containerd, and the adapter through which the
// kubelet uses it.
func dockerTask(env module.Env) engine.Task {
	return engine.Task{
		ID: stepDocker, Title: "install Docker", On: module.IsNode,
		Consumes: []engine.KeyRef{module.KeyContent.Ref()},
		Ops:      func(s *engine.Scope) (op.List, error) { return dockerOps(env, s) },
	}
}

// removeDockerTask removes Docker from a node that has changed to containerd.
func removeDockerTask() engine.Task {
	return engine.Task{
		ID: stepDocker, Title: "remove Docker", On: module.IsNode,
		Ops: func(*engine.Scope) (op.List, error) { return op.List{op.RevertStep{Step: stepDocker}}, nil },
	}
}

// MarkPaths returns files whose presence shows which runtime a host uses; facts are
// collected for them.
func MarkPaths() []string { return []string{criUnit} }

func dockerOps(env module.Env, s *engine.Scope) (op.List, error) {
	ops, err := module.FetchAndUnpack(s, "docker", "usr/local/bin/", programs)
	if err != nil {
		return nil, err
	}
	cri, err := module.FetchAndUnpack(s, "cri-dockerd", "usr/local/bin/", programs)
	if err != nil {
		return nil, err
	}
	restricts := s.Host().Facts != nil && !s.Host().Facts.ResourceCapability
	if restricts {
		cri = append(cri, op.InstallHelper{Path: restricted})
	}
	config, err := daemonJSON(env, restricts)
	if err != nil {
		return nil, err
	}
	unit, err := module.RenderTemplate(files, "docker.service", map[string]any{"Mounts": module.UnitMounts(facts.DirDocker)})
	if err != nil {
		return nil, err
	}
	adapter, err := module.RenderTemplate(files, "cri-docker.service", map[string]any{
		"Socket": env.RuntimeSocket(), "Pause": env.Release.ImageRefs()["pause"],
		"DualStack": len(env.Cluster.Spec.Network.PodCIDR) > 1, "Mounts": module.UnitMounts(facts.DirAdapter),
	})
	if err != nil {
		return nil, err
	}
	ops = append(append(ops, cri...),
		op.Dir{Path: facts.DirDocker, Mode: 0o710, Exclusive: true},
		op.Dir{Path: facts.DirAdapter, Exclusive: true},
		op.Dir{Path: "/etc/docker"},
		op.File{Path: dockerConfig, Content: config},
		op.File{Path: dockerUnit, Content: unit},
		op.File{Path: criUnit, Content: adapter},
	)
	return append(ops,
		op.Unit{
			Name: "docker.service", Enabled: op.Bool(true), Running: op.Bool(true),
			RestartOn: []string{dockerConfig, dockerUnit, programs + "/dockerd"},
			Declares:  []string{"/run/docker", "/run/docker.sock", "/run/docker.pid", "/etc/docker/key.json"},
		},
		op.Unit{
			Name: "cri-docker.service", Enabled: op.Bool(true), Running: op.Bool(true),
			RestartOn: []string{criUnit, programs + "/cri-dockerd"},
			Declares:  []string{criSocket},
		},
	), nil
}

// daemonJSON returns the settings of Docker. Docker has no separate network: pods use the
// network of the cluster, and the filter rules of Docker would isolate them. Its
// containers continue to run while it is restarted. Logs are rotated as the settings of
// the kubelet say, which does not do it with Docker. With restricts, Docker runs
// containers with a program that keeps their scores within the limits of the host.
func daemonJSON(env module.Env, restricts bool) ([]byte, error) {
	r := env.Cluster.Spec.Registry
	size, count := logBounds(env.Cluster.Spec.Kubernetes.Kubelet.Config)
	conf := map[string]any{
		"containerd":     "/run/containerd/containerd.sock",
		"data-root":      facts.DirDocker,
		"hosts":          []string{"unix:///run/docker.sock"},
		"storage-driver": "overlay2",
		"exec-opts":      []string{"native.cgroupdriver=systemd"},
		"live-restore":   true,
		"bridge":         "none",
		"iptables":       false,
		"ip6tables":      false,
		"ip-forward":     false,
		"userland-proxy": false,
		"log-driver":     "json-file",
		"log-opts":       map[string]string{"max-size": size, "max-file": count},
	}
	if restricts {
		conf["default-runtime"] = "restricted"
		conf["runtimes"] = map[string]any{"restricted": map[string]any{"path": restricted, "runtimeArgs": []string{"runc"}}}
	}
	if mirrors := r.Mirrors["docker.io"]; len(mirrors) > 0 {
		conf["registry-mirrors"] = mirrors
	}
	if len(r.Insecure) > 0 {
		conf["insecure-registries"] = slices.Sorted(slices.Values(r.Insecure))
	}
	text, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the Docker configuration: %w", err)
	}
	return append(text, '\n'), nil
}

// logBounds returns the maximum size of a container log, in bytes, and the number of log
// files: as in the settings of the kubelet, or its defaults.
func logBounds(kubelet map[string]any) (size, count string) {
	size, count = strconv.Itoa(10<<20), "5"
	if text, ok := kubelet["containerLogMaxSize"].(string); ok {
		if q, err := resource.ParseQuantity(text); err == nil && q.Value() > 0 {
			size = strconv.FormatInt(q.Value(), 10)
		}
	}
	switch n := kubelet["containerLogMaxFiles"].(type) {
	case int64:
		count = strconv.FormatInt(n, 10)
	case float64:
		count = strconv.Itoa(int(n))
	case int:
		count = strconv.Itoa(n)
	}
	return size, count
}
