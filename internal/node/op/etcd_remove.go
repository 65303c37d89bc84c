package op

import "strings"

// EtcdRemove removes members from an etcd cluster one at a time, first members that do not
// respond. Each is gone from the member list before the next one is removed. It is
// refused (IDEtcdQuorum), without any removal, if fewer members than etcd needs would
// respond at any time. It does nothing for a host that is not in the list.
type EtcdRemove struct {
	Peers []EtcdPeer `json:"peers"`
	// Known, if not empty, lists all members that must remain. A learner that is not in
	// it and does not respond is also removed: it has no vote, will not be promoted, and
	// etcd accepts no other learner in the meantime.
	Known []EtcdPeer `json:"known,omitempty"`
	EtcdClient
}

// KindEtcdRemove is the kind of EtcdRemove.
const KindEtcdRemove Kind = "etcd-remove"

// Kind is KindEtcdRemove.
func (EtcdRemove) Kind() Kind { return KindEtcdRemove }

// Target is the names of the peers.
func (o EtcdRemove) Target() string {
	if len(o.Peers) == 0 {
		return "lost learners"
	}
	names := make([]string, len(o.Peers))
	for i, p := range o.Peers {
		names[i] = p.Name
	}
	return strings.Join(names, ",")
}

// An EtcdPeer is a member to remove.
type EtcdPeer struct {
	// Name is the name of the member in the cluster. PeerURL identifies a member that has
	// not started and has no name yet.
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
	// Dead removes the member only if it does not respond: the host is removed by force,
	// or another machine replaces it. A member that responds at another PeerURL is not
	// replaced.
	Dead bool `json:"dead,omitempty"`
	// Stays: the member is kept, although its removal was planned.
	Stays bool `json:"stays,omitempty"`
}

// Reasons why a removal is refused.
const (
	IDEtcdQuorum = "etcd-quorum"
	// IDEtcdNameTaken: a member that another machine must replace is running.
	IDEtcdNameTaken = "etcd-name-taken"
)
