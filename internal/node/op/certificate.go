package op

// Certificate is a key and its certificate. The key is made on the host and never
// leaves it; one that is there is used again. The certificate is renewed when names,
// purpose or CA are others, and in the last fifth of its time.
type Certificate struct {
	// Cert and Key are the files, in PEM form.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// Authority makes one that signs itself and others. It is made once:
	// what it has signed would be worth nothing under another.
	Authority bool `json:"authority,omitempty"`
	// CA is the certificate of the CA that signs, in PEM form; empty is not known yet.
	// CAFile is its file instead, on a host that has it.
	CA     []byte `json:"ca,omitempty"`
	CAFile string `json:"caFile,omitempty"`
	// CAKey is the file of the CA's key, on a host that keeps it. Without it, the
	// manager signs: Signed is the certificate in PEM form, or empty if a
	// CertificateRequest with the same fields has found nothing to sign.
	CAKey  string `json:"caKey,omitempty"`
	Signed []byte `json:"signed,omitempty"`

	CommonName string `json:"commonName"`
	// Names are DNS names and IP addresses.
	Names []string `json:"names,omitempty"`
	// Server and Client are what it may be used as.
	Server bool `json:"server,omitempty"`
	Client bool `json:"client,omitempty"`
	// ValiditySeconds is how long it is valid, at most as long as its
	// authority.
	ValiditySeconds int64 `json:"validitySeconds"`
	// Due and WithinSeconds have it renewed at another time than in the last
	// fifth of its own, as those of Renewal.
	Due           Due   `json:"due,omitempty"`
	WithinSeconds int64 `json:"withinSeconds,omitempty"`
}

// CertificateRequest prepares a certificate that the manager signs, on a host that
// does not have the CA's key. It makes the key if there is none, and returns a request
// for the certificate in Result.Output while the host needs one, else nothing. The
// request carries the public key only: the manager decides everything else.
type CertificateRequest struct{ Certificate }

// KindCertificateRequest is a key and the request for its certificate.
const KindCertificateRequest Kind = "certificate-request"

// Kind is KindCertificateRequest.
func (CertificateRequest) Kind() Kind { return KindCertificateRequest }

// Target is the key's file.
func (o CertificateRequest) Target() string { return o.Key }

// IDCertificateRequest is the reason why the manager does not sign a host's request.
const IDCertificateRequest = "certificate-request-refused"
