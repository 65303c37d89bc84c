package modules

import (
	_ "embed"
	"fmt"
	"strings"

	"slipway.dev/slipway/images"
	"slipway.dev/slipway/internal/release"
)

var (
	//go:embed templates/kubernetes.go.tmpl
	kubernetesMain string
	//go:embed templates/cloud-common.go.tmpl
	cloudCommon string
	//go:embed templates/cloud-errors.go.tmpl
	cloudErrors string
	//go:embed templates/cloud-vpc.go.tmpl
	cloudVPC string
	//go:embed templates/registry.go.tmpl
	registryMain string
)

const (
	apache = "Apache-2.0"
	bin    = "usr/local/bin/"
	cniBin = "opt/cni/bin/"
	// strip omits symbol tables.
	strip  = "-s -w"
	static = " -linkmode external -extldflags -static"
	// multicall is the program to which all Kubernetes programs link.
	multicall = "kube"
)

// kubernetesPrograms returns the names under which the multi-call program runs.
func kubernetesPrograms() []string {
	return []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubeadm", "kubectl", "kubelet"}
}

// unitsOf returns all units of a release by name.
func unitsOf(r release.Release) map[string]unit {
	out := map[string]unit{}
	for _, u := range []unit{
		kubernetesUnit(r), containerdUnit(r), etcdUnit(r.Etcd), flannelUnit(r.Flannel),
		cniPlugins(r.CNIPlugins, r.FlannelCNI), netToolsUnit(), baseUnit(),
		haproxyUnit(r.HAProxy), keepalivedUnit(r.Keepalived), updaterUnit(r.Updater),
		{
			Name: "coredns", Version: r.CoreDNS, Licence: apache,
			Modules: []module{{
				Primary:  "github.com/coredns/coredns@v" + r.CoreDNS,
				LDFlags:  strip,
				Programs: map[string]string{"github.com/coredns/coredns": "coredns"},
			}},
		},
		{
			Name: "crictl", Version: r.CRITools, Licence: apache,
			Modules: []module{{
				Primary:  "sigs.k8s.io/cri-tools@v" + r.CRITools,
				LDFlags:  strip + " -X sigs.k8s.io/cri-tools/pkg/version.Version=v" + r.CRITools,
				Programs: map[string]string{"sigs.k8s.io/cri-tools/cmd/crictl": bin + "crictl"},
			}},
		},
		dockerUnit(r.Docker.Engine), criDockerd(r.Docker.CRIDockerd), metricsServer(r.MetricsServer),
		localPath(r.LocalPath), kubeStateMetrics(r.KubeStateMetrics), registryUnit(r.Registry),
		ownProgram("pause", "pause", r.Pause, images.Pause), ownProgram("echo", "echo", r.Echo, images.Echo),
		ownProgram("probe", "usr/bin/probe", "1", images.Probe),
	} {
		out[u.Name] = u
	}
	return withQuestions(r, out)
}

// ownProgram returns the unit of a Slipway program that needs only the standard library.
func ownProgram(name, member, version, main string) unit {
	return unit{
		Name: name, Version: version, Licence: apache,
		Modules: []module{{
			Files:    map[string]string{"main.go": main},
			LDFlags:  strip + " -X main.version=" + version,
			Programs: map[string]string{".": member},
		}},
	}
}

// clientGo is the client-go version of apiserver-updater for every cluster version. It
// equals the version in this repository's go.mod, with which the program is tested. The
// APIs that it uses are the same in all releases, so it is built once for all.
const clientGo = "v0.37.1"

// updaterUnit returns the unit of apiserver-updater, which needs a client of the
// Kubernetes API. It is not part of the multi-call program, so that a change of it does
// not change the kubelet of every host.
func updaterUnit(version string) unit {
	return unit{
		Name: "apiserver-updater", Version: version, Licence: apache,
		Modules: []module{{
			Primary:  "k8s.io/client-go@" + clientGo,
			Files:    images.UpdaterSources(),
			LDFlags:  strip + " -X main.version=" + version,
			Programs: map[string]string{".": "apiserver-updater"},
		}},
	}
}

func kubernetesUnit(r release.Release) unit {
	version := r.Kubernetes
	number := strings.Split(strings.TrimPrefix(version, "v"), ".")
	flags := strip
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X "+
			"%[1]s.gitTreeState=clean -X %[1]s.gitCommit=unknown",
			pkg, version, number[0], number[1])
	}
	u := unit{
		Name: "kubernetes", Version: version, Licence: apache,
		Modules: []module{{
			Primary:  "k8s.io/kubernetes@" + version,
			Staging:  "v0." + strings.Join(number[1:], "."),
			Instead:  r.Modules,
			Files:    map[string]string{"main.go": kubernetesMain},
			LDFlags:  flags,
			Programs: map[string]string{".": bin + multicall},
		}},
		Links: map[string]string{},
	}
	for _, name := range kubernetesPrograms() {
		u.Links[bin+name] = multicall
	}
	return u
}

func containerdUnit(r release.Release) unit {
	const pkg = "github.com/containerd/containerd/v2"
	return unit{
		Name: "containerd", Version: r.Containerd,
		// runc is linked with libseccomp and glibc.
		Licence: "Apache-2.0 AND LGPL-2.1-or-later",
		Modules: []module{{
			Primary: pkg + "@v" + r.Containerd,
			Tags:    "no_btrfs no_devmapper no_zfs no_aufs",
			LDFlags: strip + " -X " + pkg + "/version.Version=v" + r.Containerd,
			Programs: map[string]string{
				pkg + "/cmd/containerd":              bin + "containerd",
				pkg + "/cmd/containerd-shim-runc-v2": bin + "containerd-shim-runc-v2",
				pkg + "/cmd/ctr":                     bin + "ctr",
			},
		}, {
			Primary:  "github.com/opencontainers/runc@v" + r.Runc,
			Tags:     "seccomp netgo osusergo",
			LDFlags:  strip + static,
			CGO:      true,
			Sysroot:  []string{"libseccomp-dev"},
			Programs: map[string]string{"github.com/opencontainers/runc": bin + "runc"},
		}},
	}
}

// dockerUnit returns the unit of Docker's engine only: the containerd and the runc of all
// clusters run the containers. The engine has no go.mod yet, but a vendor.mod in the same
// format.
func dockerUnit(version string) unit {
	const pkg = "github.com/docker/docker"
	return unit{
		Name: "docker", Version: version, Licence: apache,
		Modules: []module{{
			Primary:  pkg + "@v" + version + "+incompatible",
			ModFile:  "vendor.mod",
			LDFlags:  strip + " -X " + pkg + "/dockerversion.Version=" + version + " -X " + pkg + "/dockerversion.GitCommit=unknown",
			Programs: map[string]string{pkg + "/cmd/dockerd": bin + "dockerd"},
		}},
	}
}

// criDockerd returns the unit of cri-dockerd, which connects the kubelet to Docker's
// engine.
func criDockerd(version string) unit {
	const pkg = "github.com/Mirantis/cri-dockerd"
	return unit{
		Name: "cri-dockerd", Version: version, Licence: apache,
		Modules: []module{{
			Primary:  pkg + "@v" + version,
			LDFlags:  strip + " -X " + pkg + "/cmd/version.Version=" + version + " -X " + pkg + "/cmd/version.GitCommit=unknown",
			Programs: map[string]string{pkg: bin + "cri-dockerd"},
		}},
	}
}

func etcdUnit(version string) unit {
	v := "/v3@v" + version
	return unit{
		Name: "etcd", Version: version, Licence: apache,
		Modules: []module{{
			Primary: "go.etcd.io/etcd/server" + v,
			Require: []string{"go.etcd.io/etcd/etcdctl" + v, "go.etcd.io/etcd/etcdutl" + v},
			LDFlags: strip,
			Programs: map[string]string{
				"go.etcd.io/etcd/server/v3":  bin + "etcd",
				"go.etcd.io/etcd/etcdctl/v3": bin + "etcdctl",
				"go.etcd.io/etcd/etcdutl/v3": bin + "etcdutl",
			},
		}},
	}
}

func metricsServer(version string) unit {
	const pkg = "sigs.k8s.io/metrics-server"
	return unit{
		Name: "metrics-server", Version: version, Licence: apache,
		Modules: []module{{
			Primary:  pkg + "@v" + version,
			LDFlags:  strip + " -X k8s.io/client-go/pkg/version.gitVersion=v" + version,
			Programs: map[string]string{pkg + "/cmd/metrics-server": "metrics-server"},
		}},
	}
}

func localPath(version string) unit {
	const pkg = "github.com/rancher/local-path-provisioner"
	return unit{
		Name: "local-path", Version: version, Licence: apache,
		Modules: []module{{
			Primary:  pkg + "@v" + version,
			LDFlags:  strip + " -X main.VERSION=v" + version,
			Programs: map[string]string{pkg: "usr/bin/local-path-provisioner"},
		}},
	}
}

func kubeStateMetrics(version string) unit {
	const pkg = "k8s.io/kube-state-metrics/v2"
	return unit{
		Name: "kube-state-metrics", Version: version, Licence: apache,
		Modules: []module{{
			Primary:  pkg + "@v" + version,
			LDFlags:  strip + " -X github.com/prometheus/common/version.Version=v" + version,
			Programs: map[string]string{pkg: "kube-state-metrics"},
		}},
	}
}

// registryUnit returns the unit of a registry that keeps images in files and reads users
// from a file. It omits the storage and authentication drivers for clouds.
func registryUnit(version string) unit {
	const pkg = "github.com/distribution/distribution/v3"
	return unit{
		Name: "registry", Version: version, Licence: apache,
		Modules: []module{{
			Primary:  pkg + "@v" + version,
			Files:    map[string]string{"main.go": registryMain},
			LDFlags:  strip + " -X " + pkg + "/version.version=v" + version,
			Programs: map[string]string{".": bin + "registry"},
		}},
	}
}

func cniPlugins(version, flannelCNI string) unit {
	const mod = "github.com/containernetworking/plugins"
	m := module{
		Primary:  mod + "@v" + version,
		LDFlags:  strip + " -X " + mod + "/pkg/utils/buildversion.BuildVersion=v" + version,
		Programs: map[string]string{},
	}
	for _, p := range []string{
		"main/bridge", "main/loopback", "main/ptp", "ipam/host-local", "meta/portmap",
		"meta/bandwidth", "meta/firewall",
	} {
		pkg := mod + "/plugins/" + p
		m.Programs[pkg] = cniBin + binaryName(pkg)
	}
	return unit{
		Name: "cni-plugins", Version: version, Licence: apache,
		// The flannel plugin was part of this module until 1.0.
		Modules: []module{m, {
			Primary:  mod + "@v" + flannelCNI,
			LDFlags:  strip + " -X " + mod + "/pkg/utils/buildversion.BuildVersion=v" + flannelCNI,
			Programs: map[string]string{mod + "/plugins/meta/flannel": cniBin + "flannel"},
		}},
	}
}

func flannelUnit(version string) unit {
	const (
		pkg   = "github.com/flannel-io/flannel"
		cloud = "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/"
	)
	return unit{
		Name: "flannel", Version: version,
		// linked with glibc
		Licence: "Apache-2.0 AND LGPL-2.1-or-later",
		Modules: []module{{
			Primary: pkg + "@v" + version,
			// Two modules cannot be had from the module proxy; they serve
			// one cloud's backend only.
			Replace: map[string]string{cloud + "common": "common", cloud + "vpc": "vpc"},
			Files: map[string]string{
				"common/go.mod":           "module " + cloud + "common\n\ngo 1.21\n",
				"common/common.go":        cloudCommon,
				"common/errors/errors.go": cloudErrors,
				"vpc/go.mod":              "module " + cloud + "vpc\n\ngo 1.21\n",
				"vpc/v20170312/vpc.go":    cloudVPC,
			},
			Tags:     "netgo osusergo",
			LDFlags:  strip + static + " -X " + pkg + "/pkg/version.Version=v" + version,
			CGO:      true,
			Programs: map[string]string{pkg: "opt/bin/flanneld"},
		}},
	}
}

// netToolsUnit returns the packet filter programs of kube-proxy's and flannel's images,
// with all libraries. Hosts can run them too (see wrapper).
func netToolsUnit() unit {
	return unit{
		Name: "nettools", Version: "1",
		Licence:  "GPL-2.0-only AND GPL-2.0-or-later AND LGPL-2.1-or-later",
		Packages: []string{"nftables", "iptables", "busybox-static"},
		Pick:     pickPrograms,
	}
}

// haproxyUnit returns the load balancer for the API servers, with its libraries.
func haproxyUnit(version string) unit {
	return unit{
		Name: "haproxy", Version: version,
		Licence: "Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND GPL-2.0-or-later AND GPL-3.0-or-later WITH " +
			"GCC-exception-3.1 AND LGPL-2.1-or-later AND MIT",
		Packages: []string{"haproxy"},
		Pick:     pickNamed,
		Take:     []string{"usr/sbin/haproxy"},
	}
}

// keepalivedUnit returns keepalived, which moves a virtual address between hosts by VRRP.
func keepalivedUnit(version string) unit {
	return unit{
		Name: "keepalived", Version: version,
		Licence: "Apache-2.0 AND (Artistic-1.0-Perl OR GPL-1.0-or-later) AND BSD-2-Clause AND BSD-3-Clause AND " +
			"GPL-2.0-or-later AND LGPL-2.1-or-later AND MIT AND Zlib",
		Packages: []string{"keepalived"},
		Pick:     pickNamed,
		Take:     []string{"usr/sbin/keepalived"},
		// Debian 13's reads how it was configured from a file there.
		Data: []string{"etc/keepalived/*.config-opts"},
	}
}

// baseUnit returns the files that every image has.
func baseUnit() unit {
	return unit{
		Name: "base", Version: "2", Licence: "Apache-2.0 AND MPL-2.0",
		Packages: []string{"ca-certificates"},
		Pick:     pickBase,
	}
}
