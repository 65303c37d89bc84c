package op

import "time"

// Certificates answers what is known of certificates on the host: a list of
// CertificateState as JSON in Result.Output, in the order of Files. Keys stay on
// the host. It never changes anything.
type Certificates struct {
	Files []CertificateFile `json:"files"`
}

// A CertificateFile is where a certificate is, and what belongs to it.
type CertificateFile struct {
	// Path is a file in PEM form, or a kubeconfig in which its one user's
	// certificate and key stand.
	Path string `json:"path"`
	// Key is the key's file; "" is that of Path.
	Key string `json:"key,omitempty"`
	// CA is the certificate of the authority; "" is not to be asked about: it
	// is an authority itself, or made by who uses it.
	CA string `json:"ca,omitempty"`
}

// A CertificateState is what was found of one.
type CertificateState struct {
	Path    string `json:"path"`
	Missing bool   `json:"missing,omitempty"`
	// Problem is why it cannot be read.
	Problem   string `json:"problem,omitempty"`
	Subject   string `json:"subject,omitempty"`
	Issuer    string `json:"issuer,omitempty"`
	Authority bool   `json:"authority,omitempty"`
	// Begins and Ends bound its time.
	Begins time.Time `json:"begins,omitzero"`
	Ends   time.Time `json:"ends,omitzero"`
	// NoKey says that its key is not there, OtherKey that what is there is the
	// key of another.
	NoKey    bool `json:"noKey,omitempty"`
	OtherKey bool `json:"otherKey,omitempty"`
	// KeyBeside says that it is the key of an authority that is trusted with this one,
	// in its file: whoever took that key over was cut off.
	KeyBeside bool `json:"keyBeside,omitempty"`
	// Beside is how many other authorities are trusted with one, in its file.
	Beside int `json:"beside,omitempty"`
	// Foreign says that the authority of CertificateFile.CA has not signed it.
	Foreign bool `json:"foreign,omitempty"`
}

// Renewal has a certificate that is there be valid for longer. Its names, its
// purpose and its key stay, so that one file changes, and at once: who reads it
// anew never finds a key without its certificate. A key that is lost is made
// anew. The authority that has signed it (with DueForeign, that is to sign it) must
// be on the host with its key, and have time left. A certificate that is missing is nothing to renew.
type Renewal struct {
	CertificateFile
	// CAKey is the file of the authority's key.
	CAKey string `json:"caKey,omitempty"`
	// ValiditySeconds is how long it is valid from now on, at most as long as
	// its authority.
	ValiditySeconds int64 `json:"validitySeconds"`
	// Due says when it is renewed: in the last fifth of its time if "".
	Due Due `json:"due,omitempty"`
	// WithinSeconds, if not 0, has it be due so long before its end instead.
	WithinSeconds int64 `json:"withinSeconds,omitempty"`
	// Unit is what reads the certificate when it starts, and not again: it is
	// stopped before and started after, and runs.
	Unit string `json:"unit,omitempty"`
	// LeaveStopped has the unit stay stopped if it does not run, as somebody may
	// want it.
	LeaveStopped bool `json:"leaveStopped,omitempty"`
	// Remade says that the unit makes another one, when there is none.
	Remade bool `json:"remade,omitempty"`
}

// Due is when a certificate is renewed.
type Due string

// When certificates are due.
const (
	// DueExpired: when its time is over, and not before.
	DueExpired Due = "expired"
	// DueAlways: however much of its time is left, unless it was given all of
	// it in the last hour, or the last twentieth of it if that is shorter: what
	// was begun and is gone on with is not done twice.
	DueAlways Due = "always"
	// DueLate: in the last tenth of its time, when nothing is worth waiting for.
	DueLate Due = "late"
	// DueForeign: when its authority has not signed it, and another has, which
	// at any other time is refused.
	DueForeign Due = "foreign"
)

// Reasons why a certificate is not renewed.
const (
	IDAuthorityNoKey   = "authority-key-missing"
	IDAuthorityExpired = "authority-expired"
	// IDCertificateForeign: its authority is not the one on the host.
	IDCertificateForeign = "certificate-foreign"
)

// IDAuthorityHeld is the reason why an authority that is exchanged stays: something
// may go by it alone.
const IDAuthorityHeld = "authority-held"

// PodRestart has the program of a static pod have read files that it reads when
// it starts, and not again: one that was started before any of them was made is
// told to end, and the kubelet starts it anew. A program that does not run is
// not waited for.
type PodRestart struct {
	// Manifest is that of the pod.
	Manifest string `json:"manifest"`
	// Command is what the pod runs, if its manifest does not say it in the form
	// in which kubeadm does.
	Command []string `json:"command,omitempty"`
	// AtOnce ends it without telling it: as the first process of its container it
	// may take no notice of that, and who waits for it connects again.
	AtOnce bool     `json:"atOnce,omitempty"`
	Files  []string `json:"files"`
	// TimeoutSeconds bounds how long it is waited for.
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// Reload has the program of a static pod have read a file that it follows by itself, as it
// is now, without a restart: the file is touched until the program has read it twice since,
// for what it was reading meanwhile may be what was there before. One that was started
// after the file was made has read it.
type Reload struct {
	// Manifest is that of the pod.
	Manifest string `json:"manifest"`
	File     string `json:"file"`
	// Metrics is what prints the program's own metrics, and Queue the name that its queue
	// of readings of File has in them.
	Metrics []string `json:"metrics"`
	Queue   string   `json:"queue"`
	// TimeoutSeconds bounds how long it is waited for.
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// The kinds.
const (
	KindReload       Kind = "reload"
	KindCertificates Kind = "certificates"
	KindRenewal      Kind = "renewal"
	KindPodRestart   Kind = "pod-restart"
)

// Kind is KindCertificates.
func (Certificates) Kind() Kind { return KindCertificates }

// Target is the same for all.
func (Certificates) Target() string { return "certificates" }

// Kind is KindRenewal.
func (Renewal) Kind() Kind { return KindRenewal }

// Target is the certificate's file.
func (o Renewal) Target() string { return o.Path }

// Kind is KindReload.
func (Reload) Kind() Kind { return KindReload }

// Target is the file.
func (r Reload) Target() string { return r.File }

// Kind is KindPodRestart.
func (PodRestart) Kind() Kind { return KindPodRestart }

// Target is the pod's manifest.
func (o PodRestart) Target() string { return o.Manifest }
