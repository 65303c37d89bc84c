package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

// A survivor is a member that is left, with how far its data go.
type survivor struct {
	host string
	op.EtcdSalvaged
}

// whole says that nothing of its data is damaged.
func (s survivor) whole() bool { return s.Damaged == "" && s.DatabaseDamaged == "" && !s.ByDatabase() }

// bestFirst puts the best one first: the one whose data go the furthest, as etcd itself
// would choose. What is damaged is worth what can be read of it, and one that is
// whole is better only if it goes as far. So is one that has a vote: a learner that
// goes as far has the same entries, but no other member has ever gone by it.
func bestFirst(left []survivor) {
	worse := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(left, func(a, b survivor) int {
		return cmp.Or(b.Reach().Compare(a.Reach()), worse(!a.whole())-worse(!b.whole()), worse(a.Learner)-worse(b.Learner), cmp.Compare(b.Commit, a.Commit))
	})
}

// oneCluster refuses members of which some have the data of before a restore or an
// earlier rescue: their terms and indices are of another count. A damaged log may
// not say any more whose it is; then only who asks can know, and choose one.
func oneCluster(left []survivor, from string) error {
	var found []string
	ids := map[uint64]bool{}
	for _, s := range left {
		ids[s.Cluster] = true
		of := fmt.Sprintf("%s of %x", s.host, s.Cluster)
		if s.Cluster == 0 {
			of = s.host + " of one that its log does not say any more"
		}
		found = append(found, of)
	}
	unknown := ids[0]
	delete(ids, 0)
	switch {
	case len(ids) > 1:
		return refused(idRescueClusters, "the members that are left have data of several clusters of etcd: "+strings.Join(found, ", "),
			"those of before a restore or a rescue count for nothing any more: move them away on their hosts ("+facts.DirEtcd+"/member), and begin again")
	case unknown && len(left) > 1 && from == "":
		return refused(idRescueClusters, "the members that are left may have data of several clusters of etcd: "+strings.Join(found, ", "),
			"choose whose data are gone by: --from HOST; the one whose data go the furthest is "+left[0].host+", unless they are of before a restore or a rescue")
	}
	return nil
}

// state says, for people, how far a member's data go, and where they are damaged.
func (s survivor) state() string {
	text := "its log ends at " + reach(s.Log)
	switch {
	case s.DatabaseDamaged != "":
		return "there is nothing to go on with: " + s.DatabaseDamaged
	case s.From != "":
		text = "its log is damaged (" + s.Damaged + "), and goes on from the database with " + s.From + ", up to " + reach(s.Log)
	case s.Damaged != "" && s.Log.Index == 0:
		text = "its log is damaged (" + s.Damaged + ") before anything that etcd could begin with"
	case s.Damaged != "":
		text = "its log is damaged (" + s.Damaged + "), and can be read up to " + reach(s.Log)
	}
	if s.ByDatabase() {
		text += "; its database goes further, up to " + reach(s.Database)
	}
	if s.Learner {
		text += "; it is a learner, and had no vote"
	}
	return text
}

// losses says what is lost by going on with a member's data, beside what it has not
// heard of.
func (s survivor) loses() string {
	behind := ""
	if s.Damaged != "" {
		behind = "; files of the log behind the damage are not used either, for it cannot be shown that they go on from the database"
	}
	switch {
	case s.ByDatabase():
		return fmt.Sprintf(". It goes on from the database: what comes after entry %d is lost, too, though it may have been acknowledged", s.Database.Index) + behind
	case s.Damaged != "" && s.From == "":
		return fmt.Sprintf(". What comes after entry %d is lost, too, though it may have been acknowledged", s.Log.Index) + behind
	case s.Commit < s.Log.Index:
		return fmt.Sprintf(". Those after %d may never have been acknowledged; they are kept, for they may have been", s.Commit)
	}
	return ""
}

// reach spells the last entry that something goes up to.
func reach(r op.EtcdReach) string { return fmt.Sprintf("term %d, entry %d", r.Term, r.Index) }

// beyond is what data that go up to far have, and those up to near do not. Of two
// terms nothing tells where the entries of the one begin to be others.
func beyond(near, far op.EtcdReach) string {
	switch {
	case near.Term != far.Term:
		return fmt.Sprintf("what comes after %s, up to %s, and may have been acknowledged", reach(near), reach(far))
	case far.Index == near.Index+1:
		return fmt.Sprintf("entry %d of term %d", far.Index, far.Term)
	}
	return fmt.Sprintf("entries %d to %d of term %d", near.Index+1, far.Index, far.Term)
}

// compared says how those that are left stand to the one that is gone by: that
// another goes further, or that a whole one is passed over for one that is damaged.
func (r *rescuing) compared() (out []string) {
	by := r.source.Rescue
	var chosen survivor
	for _, s := range r.left {
		if s.host == by.Member && s.Reach() == by.EtcdReach {
			chosen = s
		}
	}
	others := slices.DeleteFunc(slices.Clone(r.left), func(s survivor) bool { return s.host == by.Member })
	if len(others) > 0 && others[0].Reach().Compare(by.EtcdReach) > 0 {
		best := others[0]
		out = append(out, fmt.Sprintf("by the choice of %s: %s, which %s has; without --from, %s would be gone by (%s)", by.Member, beyond(by.EtcdReach, best.Reach()), best.host, best.host, best.state()))
	}
	i := slices.IndexFunc(others, survivor.whole)
	if i < 0 || chosen.host == "" || chosen.whole() {
		return out
	}
	is := others[i]
	switch by.Compare(is.Reach()) {
	case 1:
		out = append(out, fmt.Sprintf("perhaps, what is damaged on %s where nobody sees it, for the disk has lost something: it is gone by though %s is whole, for what can be read of it goes further, and has %s; --from %s goes by what is whole, and loses that", by.Member, is.host, beyond(is.Reach(), by.EtcdReach), is.host))
	case 0:
		out = append(out, fmt.Sprintf("perhaps, what is damaged on %s where nobody sees it: %s goes as far, and is whole", by.Member, is.host))
	}
	return out
}
