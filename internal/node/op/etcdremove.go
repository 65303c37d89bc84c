package op

import "strings"

// EtcdRemove takes members out of an etcd cluster, one after the other, those
// that do not answer first; each is gone from the member list before the next
// goes. It is refused (IDEtcdQuorum) if at any time fewer would answer than etcd
// needs, and nothing is removed then. A host that is in nobody's list is
// nothing to do.
type EtcdRemove struct {
	Peers []EtcdPeer `json:"peers"`
	// Known, if there are any, are all members that there shall be. A learner
	// that is none of them and does not answer goes, too: it has no vote to
	// lose, nobody will promote it, and etcd takes no other meanwhile.
	Known []EtcdPeer `json:"known,omitempty"`
	EtcdClient
}

// An EtcdPeer is a member that shall go.
type EtcdPeer struct {
	// Name is what the cluster knows the member by, and PeerURL until it has
	// started and has a name.
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
	// Dead has it removed only if it does not answer: it is given up, or another
	// machine shall take its place. One that answers, and is elsewhere than
	// PeerURL says, is not to be replaced.
	Dead bool `json:"dead,omitempty"`
	// Stays has it left alone after all, though it was planned that it goes.
	Stays bool `json:"stays,omitempty"`
}

// Reasons why a removal is refused.
const (
	IDEtcdQuorum = "etcd-quorum"
	// IDEtcdNameTaken: a member runs in whose place another machine shall be.
	IDEtcdNameTaken = "etcd-name-taken"
)

// KindEtcdRemove is the kind of EtcdRemove.
const KindEtcdRemove Kind = "etcd-remove"

// Kind is KindEtcdRemove.
func (EtcdRemove) Kind() Kind { return KindEtcdRemove }

// Target is the peers' names.
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
