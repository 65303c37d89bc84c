package op

// A RegistryClient configures how a host connects to a registry: over TLS, with a login.
type RegistryClient struct {
	// Address is its address, host:port, and Name the name that its certificate must
	// have.
	Address string `json:"address"`
	Name    string `json:"name"`
	// CAFile has the trusted CAs; "" means the CAs of the host.
	CAFile   string `json:"caFile,omitempty"`
	Username string `json:"username"`
	// Password is a secret.
	Password []byte `json:"password"`
}

// RegistryServes waits until a registry accepts the login, and rejects requests without
// it.
type RegistryServes struct {
	RegistryClient
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// PushImages pushes images to a registry. It does not send content that the registry has,
// and removes nothing.
type PushImages struct {
	RegistryClient
	Images []PushedImage `json:"images"`
}

// A PushedImage is an image with a name in a registry.
type PushedImage struct {
	// Repository is the full name: "registry.k8s.io/pause". Tag is its tag, if it has one
	// in addition to its digest.
	Repository string `json:"repository"`
	Tag        string `json:"tag,omitempty"`
	// Index lists Platforms, as an OCI image index.
	Index []byte `json:"index"`
	// Platforms has the image for each architecture.
	Platforms []Image `json:"platforms"`
}

// The kinds.
const (
	KindRegistryServes Kind = "registry-serves"
	KindPushImages     Kind = "push-images"
)

// ReasonRegistryLogin is the reason if a registry rejects the login, or accepts requests
// without it.
const ReasonRegistryLogin = "RegistryLogin"

// Kind is KindRegistryServes.
func (RegistryServes) Kind() Kind { return KindRegistryServes }

// Target is the registry.
func (o RegistryServes) Target() string { return o.Address }

// Kind is KindPushImages.
func (PushImages) Kind() Kind { return KindPushImages }

// Target is the registry.
func (o PushImages) Target() string { return o.Address }
