package op

// EtcdValues answers with an EtcdValued in Result.Output how values in etcd begin.
// No value leaves the host. It never changes anything.
type EtcdValues struct {
	EtcdClient
	// Prefix is what the keys begin with.
	Prefix string `json:"prefix"`
	// Begins is how their values are to begin; "" is any way but that of what was
	// encrypted.
	Begins string `json:"begins"`
}

// EtcdValued is what was found.
type EtcdValued struct {
	Keys   int `json:"keys"`
	Others int `json:"others"` // keys whose values begin in another way
	// First is the first of those.
	First string `json:"first,omitempty"`
}

// Encrypted is how a value begins that an API server has encrypted.
const Encrypted = "k8s:enc:"

// KindEtcdValues is the kind of EtcdValues.
const KindEtcdValues Kind = "etcd-values"

// Kind is KindEtcdValues.
func (EtcdValues) Kind() Kind { return KindEtcdValues }

// Target is what the keys begin with.
func (o EtcdValues) Target() string { return o.Prefix }
