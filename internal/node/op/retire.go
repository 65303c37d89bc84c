package op

// Retire lets go what earlier bundles have brought to a host: images that were
// imported by ImportImages and no others, and content of the blob store. containerd's
// images lose their pin, so that the kubelet removes them when it needs room. Docker
// keeps images for ever, and so they are removed, but for those that a container uses.
type Retire struct {
	// Images are the names of those that stay as they are.
	Images []string `json:"images,omitempty"`
	Docker bool     `json:"docker,omitempty"`
	// Blobs are the digests of those that stay.
	Blobs []string `json:"blobs,omitempty"`
}

// KindRetire is the kind of Retire.
const KindRetire Kind = "retire"

// Kind is KindRetire.
func (Retire) Kind() Kind { return KindRetire }

// Target says whose things are let go.
func (Retire) Target() string { return "earlier bundles" }
