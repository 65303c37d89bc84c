package op

// EtcdGet checks the first bytes of values in etcd, and returns an EtcdKeyValues in
// Result.Output. No value leaves the host. It never changes anything.
type EtcdGet struct {
	EtcdClient
	// Prefix is the prefix of the keys.
	Prefix string `json:"prefix"`
	// Begins is the expected prefix of the values; "" expects any prefix except
	// Encrypted.
	Begins string `json:"begins"`
}

// KindEtcdGet is the kind of EtcdGet.
const KindEtcdGet Kind = "etcd-values"

// Kind is KindEtcdGet.
func (EtcdGet) Kind() Kind { return KindEtcdGet }

// Target is the prefix of the keys.
func (o EtcdGet) Target() string { return o.Prefix }

// EtcdKeyValues is the result.
type EtcdKeyValues struct {
	Keys   int `json:"keys"`
	Others int `json:"others"` // keys whose values have another prefix
	// First is the first of these keys.
	First string `json:"first,omitempty"`
}

// Encrypted is the prefix of a value that an API server has encrypted.
const Encrypted = "k8s:enc:"
