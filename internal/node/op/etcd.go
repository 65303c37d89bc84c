package op

// Reasons why a host does not come to vote in etcd.
const (
	// ReasonEtcdBusy: another member is being added.
	ReasonEtcdBusy = "EtcdBusy"
	// ReasonEtcdDataLost: the others count on its vote, and its data are not
	// there.
	ReasonEtcdDataLost = "EtcdDataLost"
	// ReasonEtcdNoVote: it was added, and is not seen to vote.
	ReasonEtcdNoVote = "EtcdNoVote"
	// ReasonEtcdRemoved: there are data of a member that etcd does not know.
	ReasonEtcdRemoved = "EtcdRemoved"
)

// EtcdClient is how a host asks etcd.
type EtcdClient struct {
	// Endpoints are client URLs of members that are not the subject, asked in
	// turn.
	Endpoints []string `json:"endpoints"`
	// Program is etcdctl; CA, Cert and Key are the files it goes by.
	Program string `json:"program"`
	CA      string `json:"ca"`
	Cert    string `json:"cert"`
	Key     string `json:"key"`
}

// EtcdMember is a host that votes in an etcd cluster, as the cluster's other
// members tell. A member that never started, or was not promoted, is gone on
// with; a learner that has started and whose data are lost is removed and
// added again, because etcd does not take it back empty. What votes is never
// removed.
type EtcdMember struct {
	// Name is the member's, for people, and PeerURL what the cluster knows
	// it by.
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
	// As long as one of the client's files is missing the host is no member.
	EtcdClient
	// Data is the member's data directory.
	Data string `json:"data"`
	// Join adds the member, starts it, and has it vote; it is run again to go
	// on. Its guards count once the member votes.
	Join Exec `json:"join,omitzero"`
	// Service is instead of Join: a member that the helper itself adds, starts
	// and has vote.
	Service *EtcdService `json:"service,omitempty"`
}

// EtcdService is a member that runs as a unit of systemd.
type EtcdService struct {
	Unit Unit `json:"unit"`
	// Initial is the environment file by which the unit begins without data.
	Initial string `json:"initial"`
	// Token is that of the cluster. It counts for a member that all others
	// have known from the beginning.
	Token string `json:"token"`
}
