// Package certs knows the certificates of a cluster: where they are, who has
// signed them and who reads them; and renews those of control planes.
package certs

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

const (
	dir        = "/etc/kubernetes/"
	pkiDir     = dir + "pki/"
	kubeletDir = "/var/lib/kubelet/pki/"
	kubelet    = "kubelet.service"
)

// A Known is a certificate that a host is to have.
type Known struct {
	// Name is what people call it; certificates of several hosts share one.
	Name string
	op.CertificateFile
	// Authority says that it signs others, and KeyElsewhere that its key is not
	// for this host.
	Authority    bool
	KeyElsewhere bool
	// Optional ones may be missing: it depends on what the host has been.
	Optional bool
	// Rotates says that who uses it gets another one in time, by itself.
	Rotates bool
	// Theirs says that the user has brought it, and looks after it.
	Theirs bool
}

// The names of those that are treated each in its own way.
const (
	nameKubelet        = "kubelet-client"
	nameKubeletServing = "kubelet-serving"
	nameRegistry       = "registry"
	nameKubeVIP        = "kube-vip"
)

// pairOf is a certificate below pkiDir, with its key beside it, under an
// authority there.
func pairOf(name, path, ca string) Known {
	k := Known{Name: name, CertificateFile: op.CertificateFile{Path: pkiDir + path + ".crt", Key: pkiDir + path + ".key"}}
	if ca == "" {
		k.Authority = true
	} else {
		k.CA = pkiDir + ca + ".crt"
	}
	return k
}

// conf is a kubeconfig's.
func conf(name string) Known {
	return Known{Name: name, CertificateFile: op.CertificateFile{Path: dir + name, CA: pkiDir + "ca.crt"}}
}

// Of are the certificates that a host of a cluster is to have.
func Of(env module.Env, h v1alpha1.Host) (out []Known) {
	control, member := spec.HasRole(h, v1alpha1.RoleControlPlane), facts.RunsEtcd(env.Cluster, h.Roles)
	if facts.RunsKubelet(h.Roles) {
		out = append(out, kubeletsOwn(spec.SignsKubelets(env.Cluster))...)
		ca := pairOf("ca", "ca", "")
		ca.KeyElsewhere, ca.Optional = !control, !control
		out = append(out, ca)
	}
	if control {
		out = append(out, pairOf("apiserver", "apiserver", "ca"), pairOf("apiserver-kubelet-client", "apiserver-kubelet-client", "ca"),
			pairOf("front-proxy-ca", "front-proxy-ca", ""), pairOf("front-proxy-client", "front-proxy-client", "front-proxy-ca"),
			conf("admin.conf"), conf("controller-manager.conf"), conf("scheduler.conf"))
		if env.Cluster.Spec.ControlPlaneEndpoint.Mode == v1alpha1.EndpointKubeVIP {
			// Optional: kube-vip of a cluster from before has the administrator's.
			out = append(out, Known{Name: nameKubeVIP, Optional: true, CertificateFile: op.CertificateFile{
				Path: module.KubeVIPCert, Key: module.KubeVIPKey, CA: pkiDir + "ca.crt",
			}})
		}
		super := conf("super-admin.conf")
		super.Optional = true // on the host on which the cluster began
		out = append(out, super)
	}
	if member || control {
		out = append(out, etcds(env, member, control)...)
	}
	if p := env.Cluster.Spec.Registry.Private; p != nil && spec.HasRole(h, v1alpha1.RoleRegistry) {
		out = append(out, registrys(p.CertFile != "")...)
	}
	return out
}

// registrys are those of the cluster's own registry.
func registrys(theirs bool) []Known {
	k := Known{Name: nameRegistry, CertificateFile: op.CertificateFile{Path: module.RegistryCert, Key: module.RegistryKey}, Theirs: theirs}
	if theirs { // there may be others between it and its authority
		return []Known{k}
	}
	k.CA = module.RegistryCA
	return []Known{k, {Name: "registry-ca", CertificateFile: op.CertificateFile{Path: module.RegistryCA, Key: module.RegistryCAKey}, Authority: true}}
}

// kubeletsOwn are those of a node. Its kubelet makes its serving certificate itself,
// or the cluster signs it; a file of the other kind may be left, and is not read.
func kubeletsOwn(signs bool) []Known {
	ca := pkiDir + "ca.crt"
	client := Known{Name: nameKubelet, CertificateFile: op.CertificateFile{Path: module.ClientCert, CA: ca}, Rotates: true}
	// Made by the kubelet itself when it starts: no authority, and nobody asks.
	serving := Known{Name: nameKubeletServing, CertificateFile: op.CertificateFile{Path: kubeletDir + "kubelet.crt", Key: kubeletDir + "kubelet.key"}, Optional: true}
	// With serverTLSBootstrap: asked for, like its client's.
	signed := Known{Name: nameKubeletServing, CertificateFile: op.CertificateFile{Path: module.ServingCert, CA: ca}, Rotates: true, Optional: true}
	embedded := conf("kubelet.conf")
	embedded.Optional = true // it names the file above, but on nodes that others have made
	if signs {
		return []Known{client, signed, embedded}
	}
	return []Known{client, serving, signed, embedded}
}

// etcds are those with which etcd is served, and asked.
func etcds(env module.Env, member, control bool) []Known {
	ca := pairOf("etcd-ca", "etcd/ca", "")
	theirs := env.Cluster.Spec.Etcd.External != nil
	ca.KeyElsewhere, ca.Theirs = !member, theirs
	out := []Known{ca}
	if member {
		for _, name := range []string{"server", "peer", "healthcheck-client"} {
			out = append(out, pairOf("etcd-"+name, "etcd/"+name, "etcd/ca"))
		}
	}
	if control {
		client := pairOf("apiserver-etcd-client", "apiserver-etcd-client", "etcd/ca")
		if client.Theirs = theirs; theirs {
			client.CA = "" // there may be others between the two
		}
		out = append(out, client)
	}
	return out
}

// Names are the certificates that can be asked to be renewed, by name.
func Names() []string {
	out := []string{
		"admin.conf", "apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "controller-manager.conf",
		"etcd-healthcheck-client", "etcd-peer", "etcd-server", "front-proxy-client", nameKubeletServing, nameKubeVIP, nameRegistry,
		"scheduler.conf", "super-admin.conf",
	}
	slices.Sort(out)
	return out
}
