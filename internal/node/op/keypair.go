package op

// KeyPair is a private key and its public half, as API servers sign and verify
// tokens with them: made on the host, once, and never again while it is there.
type KeyPair struct {
	// Private and Public are the files, in PEM form.
	Private string `json:"private"`
	Public  string `json:"public"`
}

// IDTokensHeld is the reason why a key that signed tokens stays: some of them are
// still held.
const IDTokensHeld = "tokens-held"

// IDCAStillNeeded is the reason why an authority stays that is trusted: some trust no
// other.
const IDCAStillNeeded = "ca-still-needed"

// KindKeyPair is a private key and its public half.
const KindKeyPair Kind = "key-pair"

// Kind is KindKeyPair.
func (KeyPair) Kind() Kind { return KindKeyPair }

// Target is the private key's file.
func (o KeyPair) Target() string { return o.Private }
