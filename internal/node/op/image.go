package op

// Image is a container image that consists of blobs.
type Image struct {
	// Ref is the full name: "registry.k8s.io/pause:3.10.2".
	Ref string `json:"ref"`
	// Manifest is the image manifest; Blobs has its config and layers.
	Manifest  Blob   `json:"manifest"`
	MediaType string `json:"mediaType"`
	Blobs     []Blob `json:"blobs"`
}

// ImportImages imports images into containerd's k8s.io namespace, pinned against the
// garbage collection of the kubelet; or into Docker, which cannot pin images.
type ImportImages struct {
	Images []Image `json:"images"`
	Docker bool    `json:"docker,omitempty"`
	// Ahead only fetches their content, for a later import: the runtime does not have to
	// exist yet.
	Ahead bool `json:"ahead,omitempty"`
}

// KindImportImages is the kind of ImportImages.
const KindImportImages Kind = "import-images"

// Target depends on whether the images are imported.
func (o ImportImages) Target() string {
	if o.Ahead {
		return "content of images"
	}
	return "images"
}

func (ImportImages) Kind() Kind { return KindImportImages }

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

// KindRegistryServes is the kind of RegistryServes.
const KindRegistryServes Kind = "registry-serves"

// Kind is KindRegistryServes.
func (RegistryServes) Kind() Kind { return KindRegistryServes }

// Target is the registry.
func (o RegistryServes) Target() string { return o.Address }

// PushImages pushes images to a registry. It does not send content that the registry has,
// and removes nothing.
type PushImages struct {
	RegistryClient
	Images []PushedImage `json:"images"`
}

// KindPushImages is the kind of PushImages.
const KindPushImages Kind = "push-images"

// Kind is KindPushImages.
func (PushImages) Kind() Kind { return KindPushImages }

// Target is the registry.
func (o PushImages) Target() string { return o.Address }

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

// ReasonRegistryLogin is the reason if a registry rejects the login, or accepts requests
// without it.
const ReasonRegistryLogin = "RegistryLogin"

// Prune prunes content of earlier bundles from a host: only images that ImportImages
// imported, and content of the blob store. Images in containerd lose their pin, so that
// the kubelet removes them when it needs space. Docker keeps images for ever, so they are
// removed, except images that a container uses.
type Prune struct {
	// Images lists the names of images to keep.
	Images []string `json:"images,omitempty"`
	Docker bool     `json:"docker,omitempty"`
	// Blobs lists the digests of blobs to keep.
	Blobs []string `json:"blobs,omitempty"`
}

// KindPrune is the kind of Prune.
const KindPrune Kind = "retire"

// Kind is KindPrune.
func (Prune) Kind() Kind { return KindPrune }

// Target names the owner of the content.
func (Prune) Target() string { return "earlier bundles" }
