package op

// KubeconfigCA has a kubeconfig that is there trust certain authorities: those that
// stand in it, not in a file that it names. All else in it stays. One that is not
// there, or that names a file, is nothing to change.
type KubeconfigCA struct {
	// Path is the kubeconfig.
	Path string `json:"path"`
	// CA are the authorities, in PEM form; empty is not known yet.
	CA []byte `json:"ca,omitempty"`
}

// KindKubeconfigCA is what a kubeconfig trusts.
const KindKubeconfigCA Kind = "kubeconfig-ca"

// Kind is KindKubeconfigCA.
func (KubeconfigCA) Kind() Kind { return KindKubeconfigCA }

// Target is the kubeconfig.
func (o KubeconfigCA) Target() string { return o.Path }
