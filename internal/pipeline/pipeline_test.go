package pipeline

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/testutil/golden"
)

// A variant is a cluster that differs from the plain one. Its golden is the difference to
// another variant, or to the plain cluster.
type variant struct {
	name, reason string
	base         string // the other variant
	change       func(*v1alpha1.Cluster)
	facts        func(*engine.Host)
}

var variants = []variant{
	{name: "all-in-one", reason: "one host has all roles and no taint", change: func(c *v1alpha1.Cluster) {
		c.Spec.Hosts = []v1alpha1.Host{host("cp1", "192.0.2.11", v1alpha1.RoleControlPlane, v1alpha1.RoleWorker)}
	}},
	{
		name: "no-worker", base: "all-in-one", reason: "the control plane alone must still run pods",
		change: func(c *v1alpha1.Cluster) { c.Spec.Hosts = c.Spec.Hosts[:1] },
	},
	{name: "dual-stack", reason: "all settings have addresses of both IP versions", change: func(c *v1alpha1.Cluster) {
		c.Spec.Network.PodCIDR = []string{"10.244.0.0/16", "fd00:244::/56"}
		c.Spec.Network.ServiceCIDR = []string{"10.96.0.0/16", "fd00:96::/112"}
	}, facts: func(h *engine.Host) {
		h.Facts.Addresses = []op.Address{
			{Link: "eth0", Prefix: h.Address + "/24"},
			{Link: "eth0", Prefix: "2001:db8::" + h.Address[len("192.0.2."):] + "/64"},
		}
	}},
	{name: "ipv6", reason: "an IPv6 address before a port is in brackets", change: func(c *v1alpha1.Cluster) {
		c.Spec.Network.PodCIDR = []string{"fd00:244::/56"}
		c.Spec.Network.ServiceCIDR = []string{"fd00:96::/112"}
		for i := range c.Spec.Hosts {
			c.Spec.Hosts[i].Address = fmt.Sprintf("2001:db8::%d", 11+i)
		}
	}},
	{
		name: "no-proxy", reason: "another program than kube-proxy implements Services",
		change: func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.ProxyMode = "none" },
	},
	{name: "no-network", reason: "the user installs the network", change: func(c *v1alpha1.Cluster) { c.Spec.Network.Plugin = "none" }},
	{name: "components", reason: "arguments of the user override ours, and are sorted", change: func(c *v1alpha1.Cluster) {
		k := &c.Spec.Kubernetes
		k.APIServer.ExtraArgs = map[string]string{"max-requests-inflight": "800", "audit-log-path": "-"}
		k.APIServer.CertSANs = []string{"api.example.com", "203.0.113.1", "localhost"}
		k.ControllerManager.ExtraArgs = map[string]string{"node-monitor-grace-period": "20s"}
		k.Scheduler.ExtraArgs = map[string]string{"v": "4"}
		k.Kubelet.ExtraArgs = map[string]string{"v": "4", "node-labels": `a="b c",d=100%`}
		k.Kubelet.Config = map[string]any{"maxPods": float64(200), "featureGates": map[string]any{"AllAlpha": false}}
		k.FeatureGates = map[string]bool{"AllAlpha": true, "AllBeta": false}
		k.Certificates.Validity = &metav1.Duration{Duration: 30 * 24 * time.Hour}
		k.Certificates.CAValidity = &metav1.Duration{Duration: 20 * 365 * 24 * time.Hour}
		c.Spec.Etcd.ExtraArgs = map[string]string{"quota-backend-bytes": "8589934592"}
	}},
	{
		name: "encryption", reason: "API servers have the keys before they start, so nothing is rewritten at the end",
		change: func(c *v1alpha1.Cluster) {
			c.Spec.Kubernetes.Encryption = &v1alpha1.Encryption{}
		},
	},
	{name: "hardening", reason: "all components have stricter settings, except settings of the user", change: func(c *v1alpha1.Cluster) {
		c.Spec.Kubernetes.Hardening = true
		c.Spec.Kubernetes.Scheduler.ExtraArgs = map[string]string{"profiling": "true"}
	}},
	{name: "audit", reason: "the audit policy is written before API servers start", change: func(c *v1alpha1.Cluster) {
		c.Spec.Kubernetes.Audit = &v1alpha1.Audit{MaxAge: 7}
	}},
	{name: "endpoint", reason: "another address and port of the API", change: func(c *v1alpha1.Cluster) {
		c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{
			Mode:   v1alpha1.EndpointExternal,
			Domain: "k8s.example.com", Address: "203.0.113.9", Port: 8443,
		}
	}},
	{
		name: "endpoint-by-name", base: "endpoint", reason: "a name that the DNS of the user resolves is in no hosts file",
		change: func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Domain: "k8s.example.com"}
		},
	},
	{name: "highly-available", reason: "control planes join while workers join, and workers reach all of them", change: threeControlPlanes},
	{
		name: "highly-available-external", base: "highly-available",
		reason: "workers use the load balancer, control planes use their own API server",
		change: func(c *v1alpha1.Cluster) {
			threeControlPlanes(c)
			c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointExternal, Address: "203.0.113.9"}
		},
	},
	{name: "docker", reason: "the kubelet uses Docker through an adapter, and only Docker uses containerd", change: func(c *v1alpha1.Cluster) {
		c.Spec.ContainerRuntime.Type = "docker"
		c.Spec.Registry = v1alpha1.Registry{
			Mirrors:  map[string][]string{"docker.io": {"https://mirror.example.com"}},
			Insecure: []string{"r.example.com:5000", "a.example.com"},
		}
		c.Spec.Kubernetes.Kubelet.Config = map[string]any{"containerLogMaxSize": "5Mi", "containerLogMaxFiles": float64(3)}
	}, facts: func(h *engine.Host) { // workers cannot lower the score of a process
		h.Facts.ResourceCapability = h.HasRole(v1alpha1.RoleControlPlane)
	}},
	{name: "registry", reason: "one host is a registry, and nodes pull from it", change: func(c *v1alpha1.Cluster) {
		c.Spec.Hosts = append(c.Spec.Hosts, host("reg", "192.0.2.21", v1alpha1.RoleRegistry))
		c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{Names: []string{"images.example.com"}}
	}},
	{
		name: "docker-registry", base: "docker", reason: "Docker trusts the registry, and kubelets log in to it",
		change: func(c *v1alpha1.Cluster) {
			c.Spec.ContainerRuntime.Type = "docker"
			c.Spec.Hosts = append(c.Spec.Hosts, host("reg", "192.0.2.21", v1alpha1.RoleRegistry))
			c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{}
		},
	},
	{name: "haproxy", reason: "one control plane may become three", change: func(c *v1alpha1.Cluster) {
		c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointHAProxy
	}},
	{
		name: "keepalived", base: "highly-available", reason: "control planes hold an address that workers use",
		change: func(c *v1alpha1.Cluster) {
			threeControlPlanes(c)
			c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "192.0.2.100"}
		}, facts: onEth0,
	},
	{
		name:   "keepalived-settings",
		reason: "another interface and router id, IPv6 (without a password), and a single control plane",
		change: func(c *v1alpha1.Cluster) {
			c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{
				Mode:    v1alpha1.EndpointKeepalived,
				Address: "2001:db8::100", Interface: "bond0.7", RouterID: 7,
			}
		},
	},
	{
		name: "updater", base: "highly-available", reason: "the API has a separate Service, and a relay until Services work",
		change: func(c *v1alpha1.Cluster) {
			threeControlPlanes(c)
			c.Spec.ControlPlaneEndpoint.Mode = v1alpha1.EndpointUpdater
		},
	},
	{name: "kube-vip", base: "highly-available", reason: "kube-vip announces the address by ARP", change: func(c *v1alpha1.Cluster) {
		threeControlPlanes(c)
		c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKubeVIP, Address: "192.0.2.100"}
	}, facts: onEth0},
	{name: "kube-vip-bgp", base: "kube-vip", reason: "with BGP every control plane has the address", change: func(c *v1alpha1.Cluster) {
		threeControlPlanes(c)
		c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{
			Mode:    v1alpha1.EndpointKubeVIP,
			Address: "203.0.113.100", KubeVIP: &v1alpha1.KubeVIP{
				Announce: spec.AnnounceBGP,
				BGP: &v1alpha1.BGP{
					AS:    64512,
					Peers: []v1alpha1.BGPPeer{{Address: "192.0.2.1", AS: 64513}, {Address: "198.51.100.1", AS: 64514, MultiHop: true}},
				},
			},
		}
	}, facts: onEth0},
	{name: "registries", reason: "mirrors keep their order, and some registries have no certificate", change: func(c *v1alpha1.Cluster) {
		c.Spec.Registry.Mirrors = map[string][]string{
			"docker.io":         {"https://mirror.example.com", "http://10.0.0.5:5000"},
			"reg.example.com:5": {"https://10.0.0.6"},
		}
		c.Spec.Registry.Insecure = []string{"reg.example.com:5", "10.0.0.5:5000", "10.0.0.6"}
	}},
	{
		name: "registries-private", reason: "credentials are in no plan and go to one host; CAs are files",
		change: func(c *v1alpha1.Cluster) {
			c.Spec.Registry = v1alpha1.Registry{
				Mirrors: map[string][]string{"docker.io": {"https://mirror.example.com/hub"}},
				Auths: []v1alpha1.RegistryAuth{
					{Registry: "mirror.example.com", Username: "puller", PasswordFrom: &v1alpha1.SecretSource{Env: "MIRROR"}},
					{Registry: "reg.example.com:5", CAFile: "testdata/etcd/ca.crt"},
				},
			}
		},
	},
	{name: "hooks", reason: "hosts with the role of a hook receive its script and files", change: withHooks},
	{
		name: "settings", reason: "labels and taints are set through the API, except the ones that a node registers with",
		change: func(c *v1alpha1.Cluster) {
			c.Spec.Hosts[1].Labels = map[string]string{"disk": "ssd"}
			c.Spec.Hosts[1].Taints = []v1alpha1.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}
			c.Spec.Hosts[2].InternalAddress = "10.0.0.13"
			c.Spec.DNS = v1alpha1.DNS{Hosts: map[string][]string{"192.0.2.99": {"git.example.com", "git"}}}
			c.Spec.System = v1alpha1.System{
				Timezone: "Europe/Berlin", NTPServers: []string{"192.0.2.1"},
				Sysctls: map[string]string{"kernel.panic": "20", "vm.swappiness": "1"},
				Limits:  map[string]string{"nofile": "65536:1048576", "memlock": "unlimited"},
			}
			c.Spec.ContainerRuntime.Config = "[debug]\nlevel = \"warn\"\n"
		},
	},
	{
		name: "not-configured", reason: "the user prepares the hosts",
		change: func(c *v1alpha1.Cluster) { c.Spec.System.SkipConfigure = true },
	},
	{
		name: "iptables", reason: "a kernel setting of this mode only is set, and so reverted",
		change: func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.ProxyMode = "iptables" },
	},
	{name: "etcd-managed", reason: "members run on a separate host, on a control plane and on a worker", change: func(c *v1alpha1.Cluster) {
		c.Spec.Etcd = v1alpha1.Etcd{
			Type:      spec.EtcdManaged,
			ExtraArgs: map[string]string{"quota-backend-bytes": "8589934592", "heartbeat-interval": "200"},
		}
		c.Spec.Hosts[0].Roles = append(c.Spec.Hosts[0].Roles, v1alpha1.RoleEtcd)
		c.Spec.Hosts[1].Roles = append(c.Spec.Hosts[1].Roles, v1alpha1.RoleEtcd)
		c.Spec.Hosts = append(c.Spec.Hosts, host("e1", "192.0.2.14", v1alpha1.RoleEtcd))
	}},
	{
		name: "etcd-managed-running", base: "etcd-managed",
		reason: "a member with data gets no initial configuration; the CA is the one of a host with data", change: func(c *v1alpha1.Cluster) {
			c.Spec.Etcd.Type = spec.EtcdManaged
			c.Spec.Hosts = append(c.Spec.Hosts, host("e1", "192.0.2.14", v1alpha1.RoleEtcd),
				host("e2", "192.0.2.15", v1alpha1.RoleEtcd), host("e3", "192.0.2.16", v1alpha1.RoleEtcd))
		}, facts: func(h *engine.Host) {
			if h.Name > "e" && h.Name != "e1" {
				h.Facts.Present = []string{"/etc/kubernetes/pki/etcd/ca.key", "/var/lib/etcd/member"}
			}
		},
	},
	{name: "etcd-external", reason: "API servers use endpoints and files of the user", change: func(c *v1alpha1.Cluster) {
		c.Spec.Etcd = v1alpha1.Etcd{Type: spec.EtcdExternal, External: &v1alpha1.ExternalEtcd{
			Endpoints: []string{"https://192.0.2.21:2379", "https://etcd.example.com:2379"},
			CAFile:    "testdata/etcd/ca.crt", CertFile: "testdata/etcd/client.crt", KeyFile: "testdata/etcd/client.key",
		}}
	}},
	{
		name: "old-host", reason: "cgroup v1, a container without capabilities, no br_netfilter",
		change: func(*v1alpha1.Cluster) {}, facts: func(h *engine.Host) {
			h.Facts.CgroupVersion, h.Facts.ResourceCapability, h.Facts.KernelFeatures = 1, false, []string{"overlay"}
		},
	},
}

// onEth0 puts the address of a host on an interface.
func onEth0(h *engine.Host) {
	h.Facts.Addresses = []op.Address{{Link: "lo", Prefix: "127.0.0.1/8"}, {Link: "eth0", Prefix: h.Address + "/24"}}
}

// managedEtcd runs etcd on a separate host, on a control plane and on a worker.
func managedEtcd(c *v1alpha1.Cluster) {
	c.Spec.Etcd.Type = "managed"
	c.Spec.Hosts[0].Roles = append(c.Spec.Hosts[0].Roles, v1alpha1.RoleEtcd)
	c.Spec.Hosts[1].Roles = append(c.Spec.Hosts[1].Roles, v1alpha1.RoleEtcd)
	c.Spec.Hosts = append(c.Spec.Hosts, host("e1", "192.0.2.14", v1alpha1.RoleEtcd))
}

func threeControlPlanes(c *v1alpha1.Cluster) {
	c.Spec.Hosts = slices.Insert(c.Spec.Hosts, 1,
		host("cp2", "192.0.2.21", v1alpha1.RoleControlPlane),
		host("cp3", "192.0.2.22", v1alpha1.RoleControlPlane, v1alpha1.RoleWorker))
}

// withHooks has a hook in every phase, with files from testdata.
func withHooks(c *v1alpha1.Cluster) {
	for i, phase := range []v1alpha1.HookPhase{
		v1alpha1.HookPreInstall, v1alpha1.HookPostControlPlane, v1alpha1.HookPostInstall, v1alpha1.HookPreDelete,
	} {
		h := v1alpha1.Hook{Name: "hook-" + fmt.Sprint(i+1), Phase: phase, Script: "testdata/hook.sh"}
		switch i {
		case 0:
			h.Materials, h.Timeout = []string{"testdata/hook.conf"}, &metav1.Duration{Duration: 90 * time.Second}
		case 1:
			h.Roles = []v1alpha1.Role{v1alpha1.RoleControlPlane}
		case 2:
			h.Roles, h.IgnoreErrors = []v1alpha1.Role{v1alpha1.RoleWorker}, true
		}
		c.Spec.Hooks = append(c.Spec.Hooks, h)
	}
}

// TestCreateCluster_MatchesGoldens compares the operations of every task: in full for a plain
// cluster, and as the difference to it for others.
func TestCreateCluster_MatchesGoldens(t *testing.T) {
	env := newEnv(t, plainCluster())
	plain := printPipeline(t, CreateCluster(env, testParts()), blankHosts(env))
	golden.Check(t, "testdata/create.golden", plain)
	golden.Check(t, "testdata/delete.golden", printPipeline(t, DeleteCluster(env), blankHosts(env)))
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			name, base := "create", plain
			if i := slices.IndexFunc(variants, func(o variant) bool { return o.name == v.base }); i >= 0 {
				name, base = v.base, variants[i].printPipeline(t)
			}
			checkAgainst(t, "testdata/"+v.name+".golden", name, base, v.printPipeline(t))
		})
	}
}

// printPipeline prints the operations that create the cluster.
func (v *variant) printPipeline(t *testing.T) string {
	t.Helper()
	c := plainCluster()
	v.change(c)
	env := newEnv(t, c)
	on := blankHosts(env)
	if v.facts != nil {
		for _, h := range on {
			v.facts(h)
		}
	}
	return printPipeline(t, CreateCluster(env, testParts()), on)
}

// TestApplyCluster_GatesRestarts compares what nodes of a running cluster do before and after
// something on them is restarted.
func TestApplyCluster_GatesRestarts(t *testing.T) {
	c := plainCluster()
	c.Spec.Hosts = append(c.Spec.Hosts, host("cp2", "192.0.2.17", v1alpha1.RoleControlPlane))
	env := newEnv(t, c)
	env.Leader, env.NewControlPlaneSettings, env.NewEtcdSettings = "cp1", true, true
	on := blankHosts(env)
	for _, h := range on {
		h.Facts.Present = append(h.Facts.Present, module.ClientCert)
		if h.Name == "cp1" {
			h.Facts.Present = append(h.Facts.Present, module.InitMark)
		}
	}
	got := operationLists(t, applyPipeline(t, env), on)
	var b strings.Builder
	for _, at := range []string{
		"runtime.containerd on cp1", "runtime.containerd on w1", "kubelet.settings on cp1", "kubelet.settings on w1", "kubelet.running on w1",
		"kubeadm.init.etcd on cp1", "kubeadm.init.wait on cp1", "join.etcd on cp2", "join.settings on cp2",
	} {
		for _, o := range got[at] {
			switch o.Kind() {
			case op.KindUnit, op.KindExec, op.KindWait, op.KindEtcdMember:
				fmt.Fprintf(&b, "%s: %s\n", at, printOperations(t, op.List{o}))
			}
		}
	}
	golden.Check(t, "testdata/gates.golden", b.String())
}

// TestEtcdPipelines_MatchGoldens compares the operations of a defragmentation and of a
// restore, for etcd in pods and as a service.
func TestEtcdPipelines_MatchGoldens(t *testing.T) {
	src := etcdbackup.Source{
		Key: "0a1b2c", Snapshot: op.Blob{Digest: "sha256:" + strings.Repeat("5", 64), Size: 24608}, Revision: 4711,
		Kubeconfig: []byte("kind: Config\n"),
		Files: map[string][]byte{
			"/etc/kubernetes/pki/sa.key":      []byte("the key"),
			"/etc/kubernetes/pki/etcd/ca.key": []byte("etcd's key"), "/etc/kubernetes/pki/etcd/ca.crt": []byte("etcd's certificate"),
			"/etc/cron.d/own": []byte("what nobody asked for"), "/etc/kubernetes/manifests/own.yaml": []byte("nor for this"),
		},
	}
	for name, change := range map[string]func(*v1alpha1.Cluster){"stacked": threeControlPlanes, "managed": managedEtcd} {
		c := plainCluster()
		change(c)
		env := newEnv(t, c)
		golden.Check(t, "testdata/etcd-defrag-"+name+".golden", printPipeline(t, DefragEtcd(env, nil), blankHosts(env)))
		golden.Check(t, "testdata/etcd-restore-"+name+".golden", printPipeline(t, RestoreEtcd(env, src), blankHosts(env)))
		left := etcdbackup.Source{
			Key: src.Key, Kubeconfig: src.Kubeconfig,
			Rescue: &etcdbackup.Rescue{Member: env.EtcdMembers(c)[1].Name, EtcdReach: op.EtcdReach{Term: 4, Index: 900}},
		}
		golden.Check(t, "testdata/etcd-rescue-"+name+".golden", printPipeline(t, RescueEtcd(env, left), blankHosts(env)))
	}
}

// TestApplyCluster_RevertsRemovedSettings removes a setting from the file: each operation that
// is no longer requested is reverted by its task.
func TestApplyCluster_RevertsRemovedSettings(t *testing.T) {
	env := newEnv(t, plainCluster())
	plain := operationLists(t, applyPipeline(t, env), blankHosts(env))
	for _, v := range variants {
		c := plainCluster()
		v.change(c)
		for i := range c.Spec.Hosts { // immutable fields are not changed
			c.Spec.Hosts[i].InternalAddress = ""
		}
		c.Spec.Kubernetes.APIServer.CertSANs, c.Spec.Kubernetes.Certificates = nil, v1alpha1.Certificates{}
		with := newEnv(t, c)
		if len(with.Cluster.Spec.Hosts) != len(env.Cluster.Spec.Hosts) {
			continue // leaving hosts are completely reset
		}
		if v.facts != nil || spec.FindForbiddenChanges(with.Cluster, env.Cluster).Err() != nil {
			continue // another host, or a change that a cluster does not support
		}
		t.Run(v.name, func(t *testing.T) {
			for at, list := range operationLists(t, applyPipeline(t, with), blankHosts(with)) {
				for _, o := range list {
					still := slices.ContainsFunc(plain[at], func(p op.Op) bool {
						return p.Kind() == o.Kind() && p.Target() == o.Target()
					})
					recorded := strings.HasPrefix(at, "kubeadm.audit-log ")     // audit logs are not deleted
					recorded = recorded || strings.HasPrefix(at, "encryption.") // removed by encryption.gone
					if !still && !isReverted(plain, at) && o.Kind() != op.KindReadFile && !recorded {
						t.Errorf("%s: %s %s remains on the host when it is removed from the file", at, o.Kind(), o.Target())
					}
				}
			}
		})
	}
}

// isReverted reports whether a step is reverted somewhere on its host.
func isReverted(lists map[string]op.List, at string) bool {
	step, host, _ := strings.Cut(at, " on ")
	for other, list := range lists {
		if strings.HasSuffix(other, " on "+host) && slices.ContainsFunc(list, func(o op.Op) bool { return o == op.RevertStep{Step: step} }) {
			return true
		}
	}
	return false
}

// applyPipeline returns the pipeline of a running cluster.
func applyPipeline(t *testing.T, env module.Env) engine.Pipeline {
	t.Helper()
	p, err := ApplyCluster(env, testParts())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// allPipelines returns the pipelines of a cluster.
func allPipelines(env module.Env) []engine.Pipeline {
	must := func(p engine.Pipeline, err error) engine.Pipeline {
		if err != nil {
			panic(err) // tests use valid numbers
		}
		return p
	}
	p, leaving := testParts(), withLeaving(env, "w9")
	return []engine.Pipeline{
		of(operation.Create, CreateCluster(env, p)),
		of(operation.Apply, must(ApplyCluster(env, p))),
		of(operation.Apply, must(ChangeRuntime(env, p))),
		of(operation.InitOS, InitOS(env)),
		of(operation.Delete, DeleteCluster(env)),
		RevokeJoinTokens(env),
		of(operation.Apply, must(ApplyCluster(leaving, p))),
		of(operation.RenewCerts, RenewCerts(env, p, renewalRequest)),
		of(operation.Upgrade, must(UpgradeCluster(env, p))),
		of(operation.DefragEtcd, DefragEtcd(env, nil)),
		of(operation.SnapshotEtcd, SnapshotEtcd(nil)),
		of(operation.DrillEtcd, DrillEtcd(nil)),
		of(operation.RestoreEtcd, RestoreEtcd(env, etcdbackup.Source{})),
		of(operation.RescueEtcd, RescueEtcd(env, etcdbackup.Source{Rescue: &etcdbackup.Rescue{Member: "cp1"}})),
		of(operation.RollbackUpgrade, must(RollbackUpgrade(env, p))),
		of(operation.ForgetNodes, ForgetNodes(leaving, p)),
		of(operation.ForgetNodes, ForgetNodesFromState(leaving, p)),
		of(operation.RotateCA, RotateCA(env, p, rotations(env))),
		of(operation.RotateCA, RotateCA(env, p, clusterRotation(env))),
		of(operation.RebootNodes, must(RebootNodes(rebooting(env, env.Cluster.Spec.Hosts...)))),
	}
}

// of names a pipeline after the kind of its operation, as package lifecycle does.
func of(kind operation.Kind, p engine.Pipeline) engine.Pipeline {
	p.Kind = string(kind)
	return p
}

// clusterRotation returns the rotation of the cluster CA, which is separate from the
// others.
func clusterRotation(env module.Env) certs.Rotations {
	r := certs.ClusterRotation{Readmit: []string{"w1"}}
	r.Authority, r.From = certs.ClusterAuthority(env), "old"
	return certs.Rotations{Cluster: r}
}

// renewalRequest renews due certificates; on some hosts all certificates have expired.
var renewalRequest = certs.RenewalRequest{Concerned: []string{"cp1"}, Readmit: []string{"w1"}}

// TestRenewCerts_MatchesGoldens compares the operations of a renewal.
func TestRenewCerts_MatchesGoldens(t *testing.T) {
	env := newEnv(t, plainCluster())
	golden.Check(t, "testdata/renew.golden", printPipeline(t, RenewCerts(env, testParts(), renewalRequest), blankHosts(env)))
	for _, v := range []struct {
		name   string
		change func(*v1alpha1.Cluster)
		wish   certs.RenewalRequest
	}{
		{"renew-managed", func(c *v1alpha1.Cluster) {
			threeControlPlanes(c)
			c.Spec.Etcd.Type = spec.EtcdManaged
			c.Spec.Hosts = append(c.Spec.Hosts, host("e1", "192.0.2.41", v1alpha1.RoleEtcd))
		}, certs.RenewalRequest{Renewal: module.Renewal{Within: 48 * time.Hour}, Concerned: []string{"cp1", "e1"}}},
		{"renew-lapsed", threeControlPlanes, certs.RenewalRequest{Lapsed: true, Concerned: []string{"cp1", "cp2", "cp3"}}},
		{
			"renew-named", threeControlPlanes,
			certs.RenewalRequest{Renewal: module.Renewal{Names: []string{"apiserver", "etcd-peer"}}, Concerned: []string{"cp1", "cp2", "cp3"}},
		},
		{"renew-all", func(*v1alpha1.Cluster) {}, certs.RenewalRequest{Renewal: module.Renewal{All: true}, Concerned: []string{"cp1"}}},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := plainCluster()
			v.change(c)
			env := newEnv(t, c)
			golden.Check(t, "testdata/"+v.name+".golden", printPipeline(t, RenewCerts(env, testParts(), v.wish), blankHosts(env)))
		})
	}
}

// withLeaving returns an environment in which some hosts leave.
func withLeaving(env module.Env, names ...string) module.Env {
	for _, n := range names {
		env.Leaving = append(env.Leaving, module.LeavingHost{Host: host(n, "192.0.2.99", v1alpha1.RoleWorker)})
	}
	return env
}

// TestTaskIDs_AreFrozen freezes the ids, because journals, plans and saved scripts use
// them. A line may be added; none may change or be removed.
func TestTaskIDs_AreFrozen(t *testing.T) {
	c := plainCluster()
	withHooks(c)
	c.Spec.System.NTPServers = []string{"192.0.2.1"}
	var b strings.Builder
	env := newEnv(t, c)
	c = c.DeepCopy()
	c.Spec.Kubernetes.Encryption = &v1alpha1.Encryption{}
	apply, err := ApplyCluster(newEnv(t, c), testParts())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(allPipelines(env), of(operation.Apply, apply)) {
		for _, m := range p.Modules {
			for _, task := range m.Tasks {
				if line := p.Kind + "\t" + task.ID + "\n"; !strings.Contains(b.String(), line) {
					b.WriteString(line)
				}
				if task.Title == "" || m.Name == "" {
					t.Errorf("task %s of module %q has no title", task.ID, m.Name)
				}
			}
		}
	}
	golden.Check(t, "testdata/task-ids.txt", b.String())
}

// TestApplyCluster_OnlyRemovesLeavingHosts: a leaving host is only removed, and nothing else
// is done on it; the other hosts are treated as usual.
func TestApplyCluster_OnlyRemovesLeavingHosts(t *testing.T) {
	env := newEnv(t, plainCluster())
	plain := operationLists(t, applyPipeline(t, env), blankHosts(env))
	env = withLeaving(env, "w9", "w10")
	env.Leaving[1].IsLost = true
	on := blankHosts(env)
	for _, l := range env.Leaving {
		on = append(on, &engine.Host{Host: l.Host, Conn: &blankHost{name: l.Name}})
	}
	got := operationLists(t, applyPipeline(t, env), on)
	var more []string
	for at, list := range got {
		was, ok := plain[at]
		if !ok {
			more = append(more, at)
		} else if printOperations(t, was) != printOperations(t, list) {
			t.Errorf("the operations of %s differ when hosts leave", at)
		}
	}
	slices.Sort(more)
	for _, at := range more[:3] {
		if n := len(got[at]); n > 0 {
			t.Errorf("got %d operations of %s for workers, want none", n, at)
		}
	}
	if want := []string{
		"leave.begin on w10", "leave.begin on w9", "leave.member on cp1", "reset.kubernetes on w9",
		"reset.restore on w9",
	}; !slices.Equal(more, want) {
		t.Errorf("on hosts: %v, want %v", more, want)
	}
	var steps []string
	for _, s := range planSteps(t, applyPipeline(t, env), on) {
		if s.Module == "leave" && s.Task != "leave.replaced" || s.Task == "record.left" {
			steps = append(steps, s.Task+" "+s.Host)
		}
	}
	if want := []string{"leave.drain w9", "leave.node w9", "leave.node w10", "record.left w9", "record.left w10"}; !slices.Equal(steps, want) {
		t.Errorf("other steps: %v, want %v", steps, want)
	}
}

// TestApplyCluster_WaitsUntilAddressIsServed: a running control plane waits until an API
// server answers at the address with the present configuration. A control plane that is
// about to join has no API server yet.
func TestApplyCluster_WaitsUntilAddressIsServed(t *testing.T) {
	c := plainCluster()
	threeControlPlanes(c)
	c.Spec.ControlPlaneEndpoint = v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointKeepalived, Address: "2001:db8::100", Interface: "eth0"}
	env := newEnv(t, c)
	on := blankHosts(env)
	on[1].Facts.Present = []string{module.ClientCert}
	want := op.Wait{
		HTTP:     "https://[2001:db8::100]:6443/readyz",
		Manifest: "/etc/kubernetes/manifests/slipway-keepalived.yaml", TimeoutSeconds: 180,
	}
	got := operationLists(t, applyPipeline(t, env), on)
	for name, waits := range map[string]bool{"cp1": false, "cp2": true, "cp3": false} {
		list := got["endpoint.keepalived on "+name]
		if last := list[len(list)-1]; cmp.Equal(last, op.Op(want)) != waits {
			t.Errorf("%s ends with %+v; want a wait: %t", name, last, waits)
		}
	}
}

// TestApplyCluster_LeavingControlPlaneReleasesAddress: a leaving control plane releases an
// address that it may hold, if it is reachable.
func TestApplyCluster_LeavingControlPlaneReleasesAddress(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		mode         v1alpha1.EndpointMode
		gone, want   bool
	}{
		{"in its mode", "the other control planes take the address", v1alpha1.EndpointKeepalived, false, true},
		{"lost", "the host is not reachable", v1alpha1.EndpointKeepalived, true, false},
		{"in another mode", "the host holds no address", v1alpha1.EndpointHAProxy, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := plainCluster()
			c.Spec.ControlPlaneEndpoint.Mode = tc.mode
			if tc.mode == v1alpha1.EndpointKeepalived {
				c.Spec.ControlPlaneEndpoint.Address = "192.0.2.100"
			}
			env := newEnv(t, c)
			env.Leaving = []module.LeavingHost{{Host: host("cp9", "192.0.2.99", v1alpha1.RoleControlPlane), IsLost: tc.gone}}
			on := append(blankHosts(env), &engine.Host{Host: env.Leaving[0].Host, Conn: &blankHost{name: "cp9"}})
			for _, h := range on {
				h.Facts = blankHosts(env)[0].Facts
				onEth0(h)
			}
			want := op.List{
				op.RevertStep{Step: "endpoint.keepalived"},
				op.Wait{Ended: "/etc/kubernetes/slipway/keepalived.conf", TimeoutSeconds: 60},
			}
			if !tc.want {
				want = nil
			}
			if d := cmp.Diff(want, operationLists(t, applyPipeline(t, env), on)["endpoint.release on cp9"]); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// TestPipelines_WorkPerHostIsConstant runs every pipeline over few and many hosts. The
// work on one host must not grow with the number of hosts.
func TestPipelines_WorkPerHostIsConstant(t *testing.T) {
	var perHost int
	for _, n := range []int{1, 3, 300} {
		c := plainCluster()
		c.Spec.Hosts = c.Spec.Hosts[:1]
		c.Spec.Network.PodCIDR = []string{"10.240.0.0/12"}
		for i := 1; i < n; i++ {
			c.Spec.Hosts = append(c.Spec.Hosts, host(fmt.Sprintf("w%03d", i), fmt.Sprintf("10.1.%d.%d", i/200, i%200+1), v1alpha1.RoleWorker))
		}
		withHooks(c)
		env := newEnv(t, c)
		for _, p := range allPipelines(env) {
			on := blankHosts(env)
			steps := planSteps(t, p, on)
			if p.Kind != "create" {
				continue
			}
			last := on[n-1].Conn.(*blankHost).checked
			if n == 3 {
				perHost = last
			}
			if n == 300 && last != perHost {
				t.Errorf("with 300 hosts a worker checks %d operations, with 3 hosts %d", last, perHost)
			}
			if limit := 40*n + 40; len(steps) > limit {
				t.Errorf("a cluster of %d hosts takes %d steps, want at most %d", n, len(steps), limit)
			}
		}
	}
}

// TestPipelines_PlanContainsNoSecret puts secrets into every file that can have one.
func TestPipelines_PlanContainsNoSecret(t *testing.T) {
	dir := t.TempDir()
	const canary = "canary-5f1c9a"
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n# "+canary+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := plainCluster()
	c.Spec.SSH = v1alpha1.SSH{Password: canary}
	c.Spec.Hosts[1].SSH = v1alpha1.SSH{PasswordFrom: &v1alpha1.SecretSource{File: file("password")}}
	withHooks(c)
	for i := range c.Spec.Hooks {
		c.Spec.Hooks[i].Script = file("script")
		c.Spec.Hooks[i].Materials = []string{file("material")}
	}
	env := newEnv(t, c)
	for _, p := range allPipelines(env) {
		pl := &plan.Plan{Cluster: "prod", Operation: p.Kind, Steps: planSteps(t, p, blankHosts(env))}
		if err := pl.Seal(); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(pl)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary))[:16], hex.EncodeToString([]byte(canary))} {
			if i := bytes.Index(raw, []byte(form)); i >= 0 {
				t.Errorf("the plan of %s contains a secret: …%s…", p.Kind, raw[max(0, i-200):min(len(raw), i+50)])
			}
		}
	}
}

// kubeadm makes an etcd member in a pod listen at the loopback address of the IP version
// that its host has in the cluster, and at no other.
func TestPipelines_ReachMembersAtTheirAddress(t *testing.T) {
	at := []string{":2379", ":2381"}
	for name, tc := range map[string]struct {
		change           func(*v1alpha1.Cluster)
		wanted, unwanted string
	}{
		"IPv4": {func(*v1alpha1.Cluster) {}, "127.0.0.1", "[::1]"},
		"IPv6": {func(c *v1alpha1.Cluster) {
			c.Spec.Network.PodCIDR, c.Spec.Network.ServiceCIDR = []string{"fd00:244::/56"}, []string{"fd00:96::/112"}
			for i := range c.Spec.Hosts {
				c.Spec.Hosts[i].Address = fmt.Sprintf("2001:db8::%d", 11+i)
			}
		}, "[::1]", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := plainCluster()
			tc.change(c)
			env := newEnv(t, c)
			asked := 0
			for _, p := range []engine.Pipeline{
				upgradePipeline(t, env), DefragEtcd(env, nil),
				RestoreEtcd(env, etcdbackup.Source{}), RenewCerts(env, testParts(), renewalRequest), RotateCA(env, testParts(), rotations(env)),
			} {
				text := printPipeline(t, p, blankHosts(env))
				for _, port := range at {
					asked += strings.Count(text, tc.wanted+port)
					if strings.Contains(text, tc.unwanted+port) {
						t.Errorf("%s requests %s%s", p.Kind, tc.unwanted, port)
					}
				}
			}
			if asked < 5 {
				t.Errorf("got %d requests to members, want at least 5", asked)
			}
		})
	}
}
