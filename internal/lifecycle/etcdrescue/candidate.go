package etcdrescue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/node/op"
)

// A survivor is a remaining etcd member and the extent of its data.
type survivor struct {
	host string
	op.EtcdRecovered
}

// isWhole reports whether none of the member's data is damaged.
func (s survivor) isWhole() bool {
	return s.Damaged == "" && s.DatabaseDamaged == "" && !s.ByDatabase()
}

// bestFirst sorts members, best one first. As in etcd itself, the member with the most
// recent data is the best one. Damaged data count as far as they can be read. Among
// members with equally recent data, undamaged data come first, then members with a
// vote, then the member with the higher commit index. A learner has the same entries,
// but its acknowledgement has never counted.
func bestFirst(left []survivor) {
	worse := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(left, func(a, b survivor) int {
		return cmp.Or(b.Reach().Compare(a.Reach()), worse(!a.isWhole())-worse(!b.isWhole()),
			worse(a.Learner)-worse(b.Learner), cmp.Compare(b.Commit, a.Commit))
	})
}

// oneCluster refuses members if some of them have data from before a restore or an
// earlier rescue: terms and indices of different etcd clusters cannot be compared. If
// a damaged log no longer contains its cluster id, the user has to choose with --from.
func oneCluster(left []survivor, from string) error {
	var found []string
	ids := map[uint64]bool{}
	for _, s := range left {
		ids[s.Cluster] = true
		of := fmt.Sprintf("%s (cluster id %x)", s.host, s.Cluster)
		if s.Cluster == 0 {
			of = s.host + " (cluster id unknown: its log is damaged)"
		}
		found = append(found, of)
	}
	unknown := ids[0]
	delete(ids, 0)
	switch {
	case len(ids) > 1:
		return diag.Refuse(idRescueClusters, "the remaining members have data of several etcd clusters: "+strings.Join(found, ", "),
			"move "+facts.DirEtcd+"/member aside on the hosts that have data from before a restore or rescue (that data is obsolete), and retry")
	case unknown && len(left) > 1 && from == "":
		return diag.Refuse(idRescueClusters, "the remaining members may have data of several etcd clusters: "+strings.Join(found, ", "),
			"choose the member whose data to use: --from HOST ("+left[0].host+
				" has the most recent data, unless its data is from before a restore or rescue)")
	}
	return nil
}

// state describes, for users, the extent of a member's data and its damage.
func (s survivor) describeState() string {
	text := "its log ends at " + formatReach(s.Log)
	switch {
	case s.DatabaseDamaged != "":
		return "its data cannot be used: " + s.DatabaseDamaged
	case s.From != "":
		text = "its log is damaged (" + s.Damaged + "); the log file " + s.From + " continues from the database, up to " + formatReach(s.Log)
	case s.Damaged != "" && s.Log.Index == 0:
		text = "its log is damaged (" + s.Damaged + ") before the first entry that etcd could start from"
	case s.Damaged != "":
		text = "its log is damaged (" + s.Damaged + ") but readable up to " + formatReach(s.Log)
	}
	if s.ByDatabase() {
		text += "; its database is more recent, up to " + formatReach(s.Database)
	}
	if s.Learner {
		text += "; it is a learner and had no vote"
	}
	return text
}

// describeLoss describes which of a member's own entries a rescue with its data loses or
// keeps without certainty. Entries that the member never received are lost as well.
func (s survivor) describeLoss() string {
	behind := ""
	if s.Damaged != "" {
		behind = "; log files after the damage are not used either, because it is not certain that they continue from the database"
	}
	switch {
	case s.ByDatabase():
		return fmt.Sprintf(". The rescue uses its database: entries after %d are lost too, although they may have been acknowledged",
			s.Database.Index) + behind
	case s.Damaged != "" && s.From == "":
		return fmt.Sprintf(". Entries after %d are lost too, although they may have been acknowledged", s.Log.Index) + behind
	case s.Commit < s.Log.Index:
		return fmt.Sprintf(". It is unknown whether entries after %d were acknowledged; they are kept", s.Commit)
	}
	return ""
}

// formatReach formats a term and an entry number.
func formatReach(r op.EtcdReach) string { return fmt.Sprintf("term %d, entry %d", r.Term, r.Index) }

// entriesBeyond describes the entries that data up to far contain and data up to near lack.
// If the terms differ, it is unknown from which entry on the two differ.
func entriesBeyond(near, far op.EtcdReach) string {
	switch {
	case near.Term != far.Term:
		return fmt.Sprintf("entries after %s up to %s, which may have been acknowledged", formatReach(near), formatReach(far))
	case far.Index == near.Index+1:
		return fmt.Sprintf("entry %d of term %d", far.Index, far.Term)
	}
	return fmt.Sprintf("entries %d to %d of term %d", near.Index+1, far.Index, far.Term)
}

// compareMembers compares the remaining members with the chosen one. It reports if another
// member has more recent data, or if the chosen member is damaged and another is not.
func (r *Rescue) compareMembers() (out []string) {
	by := r.Source.Rescue
	var chosen survivor
	for _, s := range r.left {
		if s.host == by.Member && s.Reach() == by.EtcdReach {
			chosen = s
		}
	}
	others := slices.DeleteFunc(slices.Clone(r.left), func(s survivor) bool { return s.host == by.Member })
	if len(others) > 0 && others[0].Reach().Compare(by.EtcdReach) > 0 {
		best := others[0]
		out = append(out,
			fmt.Sprintf("because you chose %s: %s, which %s has; without --from, the rescue would use %s (%s)",
				by.Member, entriesBeyond(by.EtcdReach, best.Reach()), best.host, best.host, best.describeState()))
	}
	i := slices.IndexFunc(others, survivor.isWhole)
	if i < 0 || chosen.host == "" || chosen.isWhole() {
		return out
	}
	is := others[i]
	switch by.Compare(is.Reach()) {
	case 1:
		out = append(out,
			fmt.Sprintf("possibly entries with undetected damage on %s, whose disk has lost data. "+
				"It is used although %s is undamaged: its readable data is more recent and has %s. "+
				"--from %s uses the undamaged data and loses these entries", by.Member, is.host, entriesBeyond(is.Reach(), by.EtcdReach), is.host))
	case 0:
		out = append(out, fmt.Sprintf("possibly entries with undetected damage on %s: %s has equally recent data and is undamaged",
			by.Member, is.host))
	}
	return out
}
