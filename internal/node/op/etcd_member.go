package op

// Reasons why a host cannot become a voting etcd member.
const (
	// ReasonEtcdBusy: another member is being added.
	ReasonEtcdBusy = "EtcdBusy"
	// ReasonEtcdDataLost: the other members need its vote, but its data are missing.
	ReasonEtcdDataLost = "EtcdDataLost"
	// ReasonEtcdNoVote: it was added, but is not a voting member yet.
	ReasonEtcdNoVote = "EtcdNoVote"
	// ReasonEtcdRemoved: the host has data of a member that etcd does not know.
	ReasonEtcdRemoved = "EtcdRemoved"
)

// EtcdClient configures how a host connects to etcd.
type EtcdClient struct {
	// Endpoints lists client URLs of members other than the subject, which are tried in
	// turn.
	Endpoints []string `json:"endpoints"`
	// Program is etcdctl; CA, Cert and Key are its files.
	Program string `json:"program"`
	CA      string `json:"ca"`
	Cert    string `json:"cert"`
	Key     string `json:"key"`
}

// EtcdMember makes a host a voting member of an etcd cluster, according to the other
// members. It continues with a member that never started, or was not promoted. A learner
// that has started but lost its data is removed and added again, because etcd does not
// accept it without data. A voting member is never removed.
type EtcdMember struct {
	// Name is the name of the member for people, and PeerURL identifies it in the
	// cluster.
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
	// As long as one of the client files is missing, the host is not a member.
	EtcdClient
	// Data is the data directory of the member.
	Data string `json:"data"`
	// Join adds the member, starts it, and promotes it. It is run again to continue. Its
	// guards apply after the member votes.
	Join Exec `json:"join,omitzero"`
	// Service replaces Join: the helper itself adds, starts and promotes the member.
	Service *EtcdService `json:"service,omitempty"`
}

// KindEtcdMember is the kind of EtcdMember.
const KindEtcdMember Kind = "etcd-member"

func (EtcdMember) Kind() Kind { return KindEtcdMember }

func (o EtcdMember) Target() string { return o.Name }

// EtcdService is a member that runs as a systemd unit.
type EtcdService struct {
	Unit Unit `json:"unit"`
	// Initial is the environment file with which the unit starts without data.
	Initial string `json:"initial"`
	// Token is the token of the cluster. It applies to a member that all others have
	// known from the beginning.
	Token string `json:"token"`
}
