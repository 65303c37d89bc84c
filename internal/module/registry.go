package module

import (
	"net"
	"path"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// A Registry holds the secret and generated values of the private registry, which runs on
// one of the hosts.
type Registry struct {
	Password secret.String
	// Made reports whether Slipway generated the password.
	Made bool
	// Hash is a hash of the password, as the registry stores it.
	Hash string
	// CA is the CA that nodes trust for the registry, in PEM form; nil means the CAs of
	// the system. CAKey is its key, if Slipway created the CA.
	CA, CAKey []byte
	// CAFile is the path of CA on the manager.
	CAFile string
	// Cert and Key are provided by the user, if any.
	Cert, Key []byte
}

// RegistryUnit is the systemd service of the registry.
const RegistryUnit = "slipway-registry.service"

// Paths on the registry host: everything except the images is here.
const (
	RegistryDir     = "/etc/slipway/registry"
	RegistryCA      = RegistryDir + "/ca.crt"
	RegistryCAKey   = RegistryDir + "/ca.key"
	RegistryCert    = RegistryDir + "/tls.crt"
	RegistryKey     = RegistryDir + "/tls.key"
	RegistryTrusted = RegistryDir + "/trusted.crt"
	RegistryUsers   = RegistryDir + "/htpasswd"
)

// IsRegistry selects the registry host.
func (e Env) IsRegistry(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleRegistry) && e.IsStaying(h)
}

// RegistryClient returns how the registry host connects to its own registry. It connects
// like nodes do.
func (e Env) RegistryClient() op.RegistryClient {
	p := e.Cluster.Spec.Registry.Private
	name, _, err := net.SplitHostPort(spec.RegistryName(e.Cluster))
	if err != nil {
		name = "localhost"
	}
	c := op.RegistryClient{
		Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port)), Name: name,
		Username: p.Username, Password: []byte(e.Registry.Password.Reveal()),
	}
	if e.Registry.CA != nil {
		c.CAFile = RegistryTrusted
	}
	return c
}

// RegistryMirror returns the URL at which the private registry has the images of another
// registry, as containerd requests them.
func (e Env) RegistryMirror(registry string) string {
	return "https://" + path.Join(spec.RegistryName(e.Cluster), "v2", spec.RegistryFolder(registry))
}

// RegistryLogins returns the credentials and CAs of the registries in the cluster file and of the
// private registry. CAs are files on the manager.
func (e Env) RegistryLogins() (out []bundle.Login) {
	for _, a := range e.Cluster.Spec.Registry.Auths {
		out = append(out, bundle.Login{Registry: a.Registry, Username: a.Username, Password: e.Passwords[a.Registry], CA: a.CAFile})
	}
	if e.Registry != nil {
		own := e.Cluster.Spec.Registry.Private
		out = append(out,
			bundle.Login{Registry: spec.RegistryName(e.Cluster), Username: own.Username, Password: e.Registry.Password, CA: e.Registry.CAFile})
	}
	return out
}
