package op

// KubeconfigCA makes an existing kubeconfig trust certain CAs, if the kubeconfig contains
// its CAs itself. All other content is kept. A kubeconfig that is missing, or that names
// a CA file, is not changed.
type KubeconfigCA struct {
	// Path is the kubeconfig.
	Path string `json:"path"`
	// CA has the CAs in PEM form; empty if they are not known yet.
	CA []byte `json:"ca,omitempty"`
}

// KindKubeconfigCA is the kind of KubeconfigCA.
const KindKubeconfigCA Kind = "kubeconfig-ca"

// Kind is KindKubeconfigCA.
func (KubeconfigCA) Kind() Kind { return KindKubeconfigCA }

// Target is the kubeconfig.
func (o KubeconfigCA) Target() string { return o.Path }
