package op

// EtcdDowngrade has members of etcd of a newer minor keep their data as those of an
// older one do, so that members of that one can take their places. It is nothing to do
// where one of them is of the older minor already: etcd goes by the oldest then. It is
// asked for by a host that has a member.
type EtcdDowngrade struct {
	// EtcdClient has the client URLs of all members.
	EtcdClient
	// To is the version that the members will be of: "3.6.8".
	To string `json:"to"`
}

// KindEtcdDowngrade is the kind of EtcdDowngrade.
const KindEtcdDowngrade Kind = "etcd-downgrade"

// Kind is KindEtcdDowngrade.
func (EtcdDowngrade) Kind() Kind { return KindEtcdDowngrade }

// Target is the version.
func (o EtcdDowngrade) Target() string { return o.To }
