package op

// EtcdDefrag defragments the database of the etcd member on the host. It is refused
// (IDEtcdUnhealthy) unless all members are healthy, because the member does not serve
// during it. A full database does not prevent it: EtcdDefrag is its repair.
type EtcdDefrag struct {
	// EtcdClient has the client URLs of all members.
	EtcdClient
	// Own is the endpoint of the host's own member.
	Own string     `json:"own"`
	Do  DefragStep `json:"do"`
}

// KindEtcdDefrag is the kind of EtcdDefrag.
const KindEtcdDefrag Kind = "etcd-defrag"

// Kind is KindEtcdDefrag.
func (EtcdDefrag) Kind() Kind { return KindEtcdDefrag }

// Target is the step.
func (o EtcdDefrag) Target() string { return string(o.Do) }

// A DefragStep is a part of the defragmentation of all members.
type DefragStep string

// The steps, in order.
const (
	// DefragCompact compacts old revisions if a database is full. Normally the API server
	// does this every few minutes, but not with a full database.
	DefragCompact DefragStep = "compact"
	// DefragFollower skips the leader. DefragAny skips no member, and runs last.
	DefragFollower DefragStep = "follower"
	DefragAny      DefragStep = "any"
	// DefragDisarm clears the alarms for full databases.
	DefragDisarm DefragStep = "disarm"
)

// EtcdDefragged is the freed space in bytes: the answer in Result.Output.
type EtcdDefragged struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// IDEtcdUnhealthy is the reason why an operation does not start on an etcd cluster.
const IDEtcdUnhealthy = "etcd-unhealthy"

// IDEtcdFull is the reason if a database is full and all of it is in use.
const IDEtcdFull = "etcd-full"
