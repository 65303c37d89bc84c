package op

// EtcdDowngrade downgrades the storage format of etcd members to an older minor version,
// so that members of that version can replace them. It does nothing if a member of the
// older minor version exists, because etcd then uses the oldest format. A host with a
// member requests it.
type EtcdDowngrade struct {
	// EtcdClient has the client URLs of all members.
	EtcdClient
	// To is the future version of the members: "3.6.8".
	To string `json:"to"`
}

// KindEtcdDowngrade is the kind of EtcdDowngrade.
const KindEtcdDowngrade Kind = "etcd-downgrade"

// Kind is KindEtcdDowngrade.
func (EtcdDowngrade) Kind() Kind { return KindEtcdDowngrade }

// Target is the version.
func (o EtcdDowngrade) Target() string { return o.To }
