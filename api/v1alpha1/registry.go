package v1alpha1

// ContainerRuntime runs containers.
type ContainerRuntime struct {
	// `containerd`, or `docker`, which needs a bundle with Docker. Default:
	// `containerd`.
	// +kubebuilder:validation:Enum=containerd;docker
	Type string `json:"type,omitempty"`
	// More containerd settings, in TOML, of version 3 and without `version`. containerd
	// imports this file after Slipway's file. A section of a plugin in it can replace
	// Slipway's section. `root`, `state` and `root_path` of a snapshotter are not
	// allowed: mount a data disk at `/var/lib/containerd`.
	Config string `json:"config,omitempty"`
}

// Registry configures the sources of images that are not in the bundle.
type Registry struct {
	// Mirrors of a registry, tried in order: before the registry for images, and after it for the
	// bundle. `https://host/v2/team` is a namespace of a registry that has its images.
	Mirrors map[string][]string `json:"mirrors,omitempty"`
	// Registries (`host:port`) whose certificates are not verified.
	// +listType=atomic
	Insecure []string `json:"insecure,omitempty"`
	// Logins and CAs for registries and mirrors.
	// +listType=map
	// +listMapKey=registry
	Auths []RegistryAuth `json:"auths,omitempty"`
	// The registry on the host with the role `registry`. Default: set if a host has that
	// role.
	Private *PrivateRegistry `json:"private,omitempty"`
}

// PrivateRegistry is the registry on one of the hosts. It has the images of the
// bundle, and images that users push to it. Nodes have its login and trust its CA.
type PrivateRegistry struct {
	// The port of the registry. Default: `5000`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// DNS names of the registry, which Slipway adds on all hosts. The first one is used
	// in image names. Without a name, image names have the internal address of the
	// host.
	// +listType=atomic
	Names []string `json:"names,omitempty"`
	// The directory for images, on the host. Cannot be changed. Default:
	// `/var/lib/slipway-registry`.
	Directory string `json:"directory,omitempty"`
	// The only user of the registry. Default: `slipway`.
	Username string `json:"username,omitempty"`
	// The password of the user, at most 72 bytes. Default: generated, and saved in
	// Slipway's state.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// The certificate of the registry (PEM). Default: created by Slipway.
	CertFile string `json:"certFile,omitempty"`
	// The key of `certFile`. Default: created by Slipway.
	KeyFile string `json:"keyFile,omitempty"`
	// With `certFile`: certificates of its CA, for nodes to trust.
	CAFile string `json:"caFile,omitempty"`
	// Registries for which nodes use this registry first. Not with Docker. Default:
	// `docker.io`, `ghcr.io`, `quay.io`, `registry.k8s.io` and `slipway.dev`; with Docker
	// none.
	// +listType=atomic
	MirrorOf []string `json:"mirrorOf,omitempty"`
}

// RegistryAuth has the login and the CA of one registry or mirror. The credentials
// are only sent to that host.
type RegistryAuth struct {
	// The registry, or the host of a mirror: `host` or `host:port`.
	Registry string `json:"registry"`
	// The user; needs `passwordFrom`.
	Username string `json:"username,omitempty"`
	// The password or token of the user.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// PEM certificates of the registry's CA, trusted in addition to the CAs of the
	// host.
	CAFile string `json:"caFile,omitempty"`
}
