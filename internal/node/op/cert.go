package op

// Certificate is a key and its certificate. The key is created on the host and never
// leaves it; an existing key is used again. The certificate is renewed when its names,
// usage or CA change, and in the last fifth of its validity.
type Certificate struct {
	// Cert and Key are the paths of the PEM files.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// Authority creates a self-signed CA. It is created only once, because the
	// certificates that it signed are not valid under another CA.
	Authority bool `json:"authority,omitempty"`
	// CA is the PEM certificate of the CA that signs; empty means that it is not known
	// yet. CAFile is the path of the CA certificate instead, on a host that has it.
	CA     []byte `json:"ca,omitempty"`
	CAFile string `json:"caFile,omitempty"`
	// CAKey is the file of the CA key, on a host that has it. Without it, the manager
	// signs: Signed is the PEM certificate, or empty if a CertificateRequest with the
	// same fields returned nothing to sign.
	CAKey  string `json:"caKey,omitempty"`
	Signed []byte `json:"signed,omitempty"`

	CommonName string `json:"commonName"`
	// Names lists DNS names and IP addresses.
	Names []string `json:"names,omitempty"`
	// Server and Client select the extended key usages.
	Server bool `json:"server,omitempty"`
	Client bool `json:"client,omitempty"`
	// ValiditySeconds is the validity, limited by the validity of its CA.
	ValiditySeconds int64 `json:"validitySeconds"`
	// Due and WithinSeconds change the time of the renewal, as in RenewCertificate. The default is
	// the last fifth of the validity.
	Due           Due   `json:"due,omitempty"`
	WithinSeconds int64 `json:"withinSeconds,omitempty"`
}

// KindCertificate is the kind of Certificate.
const KindCertificate Kind = "certificate"

func (Certificate) Kind() Kind { return KindCertificate }

func (o Certificate) Target() string { return o.Cert }

// CertificateRequest prepares a certificate that the manager signs, on a host without the
// CA key. It creates the key if it is missing. While the host needs a certificate, it
// returns a request in Result.Output, else nothing. The request has only the public key:
// the manager decides everything else.
type CertificateRequest struct{ Certificate }

// KindCertificateRequest is the kind of CertificateRequest.
const KindCertificateRequest Kind = "certificate-request"

// Kind is KindCertificateRequest.
func (CertificateRequest) Kind() Kind { return KindCertificateRequest }

// Target is the file of the key.
func (o CertificateRequest) Target() string { return o.Key }

// IDCertificateRequest is the reason why the manager does not sign the request of a host.
const IDCertificateRequest = "certificate-request-refused"

// KeyPair is a private key and its public key, with which API servers sign and verify
// tokens. It is created on the host once, and not again while it exists.
type KeyPair struct {
	// Private and Public are the paths of the PEM files.
	Private string `json:"private"`
	Public  string `json:"public"`
}

// KindKeyPair is the kind of KeyPair.
const KindKeyPair Kind = "key-pair"

// Kind is KindKeyPair.
func (KeyPair) Kind() Kind { return KindKeyPair }

// Target is the file of the private key.
func (o KeyPair) Target() string { return o.Private }

// IDTokensHeld is the reason why a rotation keeps a key that signed tokens: some of the
// tokens are still in use.
const IDTokensHeld = "tokens-held"

// IDCAStillNeeded is the reason why a rotation keeps a trusted CA: some clients trust no
// other CA.
const IDCAStillNeeded = "ca-still-needed"

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
