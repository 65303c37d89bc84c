package op

import "time"

// InspectCertificates reads the certificates on the host. It returns a list of CertificateState
// as JSON in Result.Output, in the order of Files. Keys stay on the host. It never
// changes anything.
type InspectCertificates struct {
	Files []CertificateFile `json:"files"`
}

// KindInspectCertificates is the kind of InspectCertificates.
const KindInspectCertificates Kind = "certificates"

// Kind is KindInspectCertificates.
func (InspectCertificates) Kind() Kind { return KindInspectCertificates }

// Target is the same for all.
func (InspectCertificates) Target() string { return "certificates" }

// A CertificateFile names a certificate and its key and CA.
type CertificateFile struct {
	// Path is a PEM file, or a kubeconfig with the certificate and key of its only user.
	Path string `json:"path"`
	// Key is the file of the key; "" means that the key is in Path.
	Key string `json:"key,omitempty"`
	// CA is the certificate of the CA; "" means that it is not checked: the certificate
	// is a CA, or its user created it.
	CA string `json:"ca,omitempty"`
}

// A CertificateState is the state of one certificate.
type CertificateState struct {
	Path    string `json:"path"`
	Missing bool   `json:"missing,omitempty"`
	// Problem is the reason why it cannot be read.
	Problem   string `json:"problem,omitempty"`
	Subject   string `json:"subject,omitempty"`
	Issuer    string `json:"issuer,omitempty"`
	Authority bool   `json:"authority,omitempty"`
	// Begins and Ends are the limits of its validity.
	Begins time.Time `json:"begins,omitzero"`
	Ends   time.Time `json:"ends,omitzero"`
	// NoKey reports whether its key is missing, OtherKey whether the key belongs to
	// another certificate.
	NoKey    bool `json:"noKey,omitempty"`
	OtherKey bool `json:"otherKey,omitempty"`
	// KeyBeside reports whether the key belongs to another CA in the same file: a
	// rotation was interrupted after it replaced the key.
	KeyBeside bool `json:"keyBeside,omitempty"`
	// Beside is the number of other CAs that are trusted in the same file.
	Beside int `json:"beside,omitempty"`
	// Foreign reports whether the CA of CertificateFile.CA did not sign it.
	Foreign bool `json:"foreign,omitempty"`
}

// RenewCertificate extends the validity of an existing certificate. Names, usage and key do not
// change, so only one file changes, atomically: a program that reads it again never finds
// a key without its certificate. A lost key is created again. The CA that signed it (with
// DueForeign, the CA that must sign it) must be on the host with its key, and must not
// have expired. A missing certificate is not renewed.
type RenewCertificate struct {
	CertificateFile
	// CAKey is the file of the CA key.
	CAKey string `json:"caKey,omitempty"`
	// ValiditySeconds is the validity from now on, limited by the validity of its CA.
	ValiditySeconds int64 `json:"validitySeconds"`
	// Due selects the time of the renewal: "" is the last fifth of the validity.
	Due Due `json:"due,omitempty"`
	// WithinSeconds, if not 0, makes it due this long before its end instead.
	WithinSeconds int64 `json:"withinSeconds,omitempty"`
	// Unit reads the certificate only at its start. It is stopped before the renewal, and
	// started after it.
	Unit string `json:"unit,omitempty"`
	// LeaveStopped does not start the unit if it is not running, because an administrator
	// may have stopped it.
	LeaveStopped bool `json:"leaveStopped,omitempty"`
	// Remade reports whether the unit creates a certificate itself if it is missing.
	Remade bool `json:"remade,omitempty"`
}

// KindRenewCertificate is the kind of RenewCertificate.
const KindRenewCertificate Kind = "renewal"

// Kind is KindRenewCertificate.
func (RenewCertificate) Kind() Kind { return KindRenewCertificate }

// Target is the file of the certificate.
func (o RenewCertificate) Target() string { return o.Path }

// Due selects the time at which a certificate is renewed.
type Due string

// The values of Due.
const (
	// DueExpired renews only after the certificate has expired.
	DueExpired Due = "expired"
	// DueAlways renews whatever the remaining validity, except if the certificate got its
	// full validity in the last hour, or in the last twentieth of its validity if that is
	// shorter: a resumed operation does not renew it twice.
	DueAlways Due = "always"
	// DueLate renews in the last tenth of the validity, when nothing is worth a further
	// delay.
	DueLate Due = "late"
	// DueForeign renews a certificate that another CA signed, which is otherwise an
	// error.
	DueForeign Due = "foreign"
)

// Reasons why a certificate is not renewed.
const (
	IDAuthorityNoKey   = "authority-key-missing"
	IDAuthorityExpired = "authority-expired"
	// IDCertificateForeign: the CA on the host did not sign it.
	IDCertificateForeign = "certificate-foreign"
)

// IDAuthorityHeld is the reason why a rotation does not remove the old CA: something may
// still depend on it alone.
const IDAuthorityHeld = "authority-held"
