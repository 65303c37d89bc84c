package op

// Retire prunes content of earlier bundles from a host: only images that ImportImages
// imported, and content of the blob store. Images in containerd lose their pin, so that
// the kubelet removes them when it needs space. Docker keeps images for ever, so they are
// removed, except those that a container uses.
type Retire struct {
	// Images lists the names of images to keep.
	Images []string `json:"images,omitempty"`
	Docker bool     `json:"docker,omitempty"`
	// Blobs lists the digests of blobs to keep.
	Blobs []string `json:"blobs,omitempty"`
}

// KindRetire is the kind of Retire.
const KindRetire Kind = "retire"

// Kind is KindRetire.
func (Retire) Kind() Kind { return KindRetire }

// Target names the owner of the content.
func (Retire) Target() string { return "earlier bundles" }
