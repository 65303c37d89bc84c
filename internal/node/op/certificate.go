package op

// Certificate is a key and its certificate, both made on the host: the key
// never leaves it, and one that is there is used again. It is renewed when
// names, purpose or authority are others, and in the last fifth of its time.
type Certificate struct {
	// Cert and Key are the files, in PEM form.
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// Authority makes one that signs itself and others. It is made once:
	// what it has signed would be worth nothing under another.
	Authority bool `json:"authority,omitempty"`
	// CA and CAKey, in PEM form, are the authority that signs; empty is not
	// known yet. CAKey is a secret, and not kept on the host.
	CA    []byte `json:"ca,omitempty"`
	CAKey []byte `json:"caKey,omitempty"`
	// CAFile and CAKeyFile are files of the host with them, instead: the key of that
	// authority is on the host, and stays there.
	CAFile    string `json:"caFile,omitempty"`
	CAKeyFile string `json:"caKeyFile,omitempty"`

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
