package op

// A RegistryClient is how a host speaks to a registry: over TLS, and with a login.
type RegistryClient struct {
	// Address is where it is reached, host:port, and Name what its certificate has
	// to say.
	Address string `json:"address"`
	Name    string `json:"name"`
	// CAFile has the authorities that are trusted; "" are those of the host.
	CAFile   string `json:"caFile,omitempty"`
	Username string `json:"username"`
	// Password is a secret.
	Password []byte `json:"password"`
}

// RegistryServes waits until a registry lets in whoever has the login, and nobody
// else.
type RegistryServes struct {
	RegistryClient
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// PushImages has images in a registry: what it has already is not sent again, and
// what else is there stays.
type PushImages struct {
	RegistryClient
	Images []PushedImage `json:"images"`
}

// A PushedImage is one that a registry has under a name.
type PushedImage struct {
	// Repository is where: "registry.k8s.io/pause". Tag is its name there, if it has
	// one besides its digest.
	Repository string `json:"repository"`
	Tag        string `json:"tag,omitempty"`
	// Index lists Platforms, in the form of an OCI image index.
	Index []byte `json:"index"`
	// Platforms are the image for each architecture.
	Platforms []Image `json:"platforms"`
}

// The kinds.
const (
	KindRegistryServes Kind = "registry-serves"
	KindPushImages     Kind = "push-images"
)

// ReasonRegistryLogin is that of a registry which does not take the login, or lets
// in whoever has none.
const ReasonRegistryLogin = "RegistryLogin"

// Kind is KindRegistryServes.
func (RegistryServes) Kind() Kind { return KindRegistryServes }

// Target is the registry.
func (o RegistryServes) Target() string { return o.Address }

// Kind is KindPushImages.
func (PushImages) Kind() Kind { return KindPushImages }

// Target is the registry.
func (o PushImages) Target() string { return o.Address }
