package op

// EtcdDefrag gives back what the database of the host's member of etcd has not in
// use. It is refused (IDEtcdUnhealthy) unless all members are well, for the member
// serves nobody meanwhile; that a database is full is what it mends.
type EtcdDefrag struct {
	// EtcdClient has the client URLs of all members.
	EtcdClient
	// Own is where the host asks its own member.
	Own string     `json:"own"`
	Do  DefragStep `json:"do"`
}

// A DefragStep is a part of the work on all members.
type DefragStep string

// The steps, in order.
const (
	// DefragCompact gives up old revisions, if a database is full: else the API
	// server does it every few minutes, which then it cannot.
	DefragCompact DefragStep = "compact"
	// DefragFollower leaves a member alone that leads, DefragAny no member: it
	// comes last.
	DefragFollower DefragStep = "follower"
	DefragAny      DefragStep = "any"
	// DefragDisarm takes the alarms back that databases are full.
	DefragDisarm DefragStep = "disarm"
)

// EtcdDefragged is what was won, in bytes: the answer in Result.Output.
type EtcdDefragged struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// IDEtcdUnhealthy is the reason why nothing is begun on an etcd.
const IDEtcdUnhealthy = "etcd-unhealthy"

// IDEtcdFull is a database that is full of what is in use.
const IDEtcdFull = "etcd-full"

// KindEtcdDefrag is the kind of EtcdDefrag.
const KindEtcdDefrag Kind = "etcd-defrag"

// Kind is KindEtcdDefrag.
func (EtcdDefrag) Kind() Kind { return KindEtcdDefrag }

// Target is the step.
func (o EtcdDefrag) Target() string { return string(o.Do) }
