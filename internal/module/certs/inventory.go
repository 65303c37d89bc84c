// Package certs knows the certificates of a cluster: their files, their signers and their
// readers. It renews the certificates of control planes and rotates CAs.
package certs

import (
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

const (
	dir        = "/etc/kubernetes/"
	pkiDir     = dir + "pki/"
	kubeletDir = "/var/lib/kubelet/pki/"
	kubelet    = "kubelet.service"
)

// A Known is a certificate that a host must have.
type Known struct {
	// Name is the name for the user; certificates of several hosts share one.
	Name string
	op.CertificateFile
	// Authority reports whether it is a CA. KeyElsewhere reports whether its key must not
	// be on this host.
	Authority    bool
	KeyElsewhere bool
	// Optional reports whether it may be missing, depending on the history of the host.
	Optional bool
	// Rotates reports whether its user renews it automatically in time.
	Rotates bool
	// Theirs reports whether the user provides and manages it.
	Theirs bool
}

// Names of certificates that need special treatment.
const (
	nameKubelet        = "kubelet-client"
	nameKubeletServing = "kubelet-serving"
	nameRegistry       = "registry"
	nameKubeVIP        = "kube-vip"
)

// pairOf returns a certificate below pkiDir with its key, signed by a CA there.
func pairOf(name, path, ca string) Known {
	k := Known{Name: name, CertificateFile: op.CertificateFile{Path: pkiDir + path + ".crt", Key: pkiDir + path + ".key"}}
	if ca == "" {
		k.Authority = true
	} else {
		k.CA = pkiDir + ca + ".crt"
	}
	return k
}

// kubeconfigCert returns the certificate of a kubeconfig.
func kubeconfigCert(name string) Known {
	return Known{Name: name, CertificateFile: op.CertificateFile{Path: dir + name, CA: pkiDir + "ca.crt"}}
}

// ExpectedCerts returns the certificates that a host of a cluster must have.
func ExpectedCerts(env module.Env, h v1alpha1.Host) (out []Known) {
	control, member := spec.HasRole(h, v1alpha1.RoleControlPlane), hostroles.RunsEtcd(env.Cluster, h.Roles)
	if hostroles.RunsKubelet(h.Roles) {
		out = append(out, kubeletCerts(spec.SignsKubelets(env.Cluster))...)
		ca := pairOf("ca", "ca", "")
		ca.KeyElsewhere, ca.Optional = !control, !control
		out = append(out, ca)
	}
	if control {
		out = append(out, pairOf("apiserver", "apiserver", "ca"), pairOf("apiserver-kubelet-client", "apiserver-kubelet-client", "ca"),
			pairOf("front-proxy-ca", "front-proxy-ca", ""), pairOf("front-proxy-client", "front-proxy-client", "front-proxy-ca"),
			kubeconfigCert("admin.conf"), kubeconfigCert("controller-manager.conf"), kubeconfigCert("scheduler.conf"))
		if env.Cluster.Spec.ControlPlaneEndpoint.Mode == v1alpha1.EndpointKubeVIP {
			// Optional: kube-vip of an older cluster uses the certificate of the
			// administrator.
			out = append(out, Known{Name: nameKubeVIP, Optional: true, CertificateFile: op.CertificateFile{
				Path: module.KubeVIPCert, Key: module.KubeVIPKey, CA: pkiDir + "ca.crt",
			}})
		}
		super := kubeconfigCert("super-admin.conf")
		super.Optional = true // only on the host on which the cluster was created
		out = append(out, super)
	}
	if member || control {
		out = append(out, etcdCerts(env, member, control)...)
	}
	if p := env.Cluster.Spec.Registry.Private; p != nil && spec.HasRole(h, v1alpha1.RoleRegistry) {
		out = append(out, registryCerts(p.CertFile != "")...)
	}
	return out
}

// registryCerts returns the certificates of the private registry.
func registryCerts(theirs bool) []Known {
	k := Known{Name: nameRegistry, CertificateFile: op.CertificateFile{Path: module.RegistryCert, Key: module.RegistryKey}, Theirs: theirs}
	if theirs { // there may be intermediate CAs
		return []Known{k}
	}
	k.CA = module.RegistryCA
	return []Known{
		k,
		{Name: "registry-ca", CertificateFile: op.CertificateFile{Path: module.RegistryCA, Key: module.RegistryCAKey}, Authority: true},
	}
}

// kubeletCerts returns the certificates of a kubelet. The kubelet signs its serving
// certificate itself, or the cluster signs it. A file of the other kind may remain, and is
// not read.
func kubeletCerts(signs bool) []Known {
	ca := pkiDir + "ca.crt"
	client := Known{Name: nameKubelet, CertificateFile: op.CertificateFile{Path: module.ClientCert, CA: ca}, Rotates: true}
	// Signed by the kubelet itself at its start: there is no CA, and no request.
	serving := Known{
		Name:            nameKubeletServing,
		CertificateFile: op.CertificateFile{Path: kubeletDir + "kubelet.crt", Key: kubeletDir + "kubelet.key"}, Optional: true,
	}
	// With serverTLSBootstrap: requested from the cluster, like the client certificate.
	signed := Known{
		Name: nameKubeletServing, CertificateFile: op.CertificateFile{Path: module.ServingCert, CA: ca},
		Rotates: true, Optional: true,
	}
	embedded := kubeconfigCert("kubelet.conf")
	embedded.Optional = true // usually it refers to the file above
	if signs {
		return []Known{client, signed, embedded}
	}
	return []Known{client, serving, signed, embedded}
}

// etcdCerts returns the server and client certificates of etcd.
func etcdCerts(env module.Env, member, control bool) []Known {
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
			client.CA = "" // there may be intermediate CAs
		}
		out = append(out, client)
	}
	return out
}

// RenewableNames returns the names of certificates that can be renewed.
func RenewableNames() []string {
	out := []string{
		"admin.conf", "apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "controller-manager.conf",
		"etcd-healthcheck-client", "etcd-peer", "etcd-server", "front-proxy-client", nameKubeletServing, nameKubeVIP, nameRegistry,
		"scheduler.conf", "super-admin.conf",
	}
	slices.Sort(out)
	return out
}
