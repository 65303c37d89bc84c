package op

// KeyPair is a private key and its public key, with which API servers sign and verify
// tokens. It is created on the host once, and not again while it exists.
type KeyPair struct {
	// Private and Public are the paths of the PEM files.
	Private string `json:"private"`
	Public  string `json:"public"`
}

// IDTokensHeld is the reason why a rotation keeps a key that signed tokens: some of the
// tokens are still in use.
const IDTokensHeld = "tokens-held"

// IDCAStillNeeded is the reason why a rotation keeps a trusted CA: some clients trust no
// other CA.
const IDCAStillNeeded = "ca-still-needed"

// KindKeyPair is the kind of KeyPair.
const KindKeyPair Kind = "key-pair"

// Kind is KindKeyPair.
func (KeyPair) Kind() Kind { return KindKeyPair }

// Target is the file of the private key.
func (o KeyPair) Target() string { return o.Private }
