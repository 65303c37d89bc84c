package lifecycle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	recovery "slipway.dev/slipway/internal/module/backup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// A rescuing is a rescue: whose data are gone by, and what speaks for them. The
// methods of nil are those of no rescue.
type rescuing struct {
	source recovery.Source
	// left are the members that are left, the best one first.
	left []survivor
	is   op.EtcdSnapshotInfo // what its data came to, when that is known
}

// A survivor is a member that is left, with how far its log goes.
type survivor struct {
	host string
	op.EtcdSalvaged
}

// hasPart says that a host has a part in what the API serves: a member of etcd, or
// an API server.
func hasPart(c *v1alpha1.Cluster, h v1alpha1.Host) bool {
	return spec.HasRole(h, v1alpha1.RoleControlPlane) || facts.RunsEtcd(c, h.Roles)
}

// isLost says that a host is declared lost.
func (p *prepared) isLost(name string) bool {
	return p.request.Kind == RescueEtcd && slices.Contains(p.request.Nodes, name)
}

// mayRescue refuses a rescue that is not needed, and one that goes by what is not
// so: each member's host must either answer or be declared lost, and none that is
// declared lost may answer. One that goes on has come through that.
func (s *service) mayRescue(ctx context.Context, p *prepared, progress event.Sink) error {
	c := p.recorded
	for _, name := range p.request.Nodes {
		if i := find(c.Spec.Hosts, name); i < 0 || !hasPart(c, c.Spec.Hosts[i]) {
			return refused(idRescueUnknown, "cluster "+c.Name+" has no host "+name+" with a member of etcd or a control plane", "name those that are lost, as the cluster calls them: slipway etcd members "+c.Name)
		}
	}
	if p.continues != nil {
		return nil
	}
	ctx, l, done, err := s.look(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	l.only(func(h v1alpha1.Host) bool { return hasPart(c, h) })
	r := l.etcdReport(ctx, progress)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, h := range l.hosts {
		if err := p.judgeLost(h, r); err != nil {
			return err
		}
	}
	return p.needed(r)
}

// judgeLost refuses a host that is declared lost and answers, or the other way
// about.
func (p *prepared) judgeLost(h *hostLook, r *EtcdReport) error {
	name := h.spec.Name
	if !p.isLost(name) {
		if h.err == nil {
			return nil
		}
		return refused(idRescueSilent, name+" does not answer, and is not declared lost: "+why(h.err).Message,
			"bring it back, for its data may be the better ones; or, if it is gone for good: --lost "+strings.Join(append(slices.Clone(p.request.Nodes), name), ","))
	}
	var lost *remote.Error
	member := slices.ContainsFunc(r.Etcd.Members, func(m EtcdMember) bool { return m.Answers && isMemberOf(m, h.spec) })
	switch {
	case h.err == nil:
		return refused(idRescueAnswers, name+" is declared lost, and answers", "do not name it: what it has is not lost; or shut it down for good first")
	case member:
		return refused(idRescueAnswers, "the member of etcd on "+name+" is declared lost, and answers", "do not name it; or shut its host down for good first")
	case !errors.As(h.err, &lost) || lost.Reason != remote.Unreachable:
		return refused(idRescueAnswers, name+" is declared lost, and something answers at its address: "+why(h.err).Message, "if it is another machine by now, shut that down until the rescue is done")
	}
	return nil
}

// needed refuses a rescue where enough members are left.
func (p *prepared) needed(r *EtcdReport) error {
	name := p.recorded.Name
	voters, up, leader := quorum(r.Etcd.Members)
	if r.Etcd.Message == "" && up >= voters/2+1 && leader != "" {
		return refused(idRescueNotNeeded, fmt.Sprintf("etcd works: %d of %d members answer, and follow %s", up, voters, leader),
			"take hosts off that are gone: slipway delete node NAME --cluster "+name+" --forget")
	}
	all, left := p.env.Members(p.recorded), 0
	for _, h := range all {
		if !p.isLost(h.Name) {
			left++
		}
	}
	known := voters // who votes is what etcd says, if it can be asked
	if r.Etcd.Message != "" {
		known = len(all)
	}
	if need := known/2 + 1; left >= need {
		return refused(idRescueNotNeeded, fmt.Sprintf("of %d members %d are not lost, and %d are enough: nothing need be given up", known, left, need),
			"see why they do not serve: slipway etcd health "+name+"; or declare those lost that are: --lost NAME,…")
	}
	return nil
}

// survey asks the members that are left how far their logs go, and ranks them: by
// the term of the last entry, then by its index, which is how etcd itself would
// choose. One that goes on keeps to the one that it has begun with.
func (p *prepared) survey(ctx context.Context) error {
	r := &rescuing{}
	for _, h := range p.hosts {
		if !facts.RunsEtcd(p.env.Cluster, h.Roles) {
			continue
		}
		is, err := logOf(ctx, h)
		if err != nil {
			return err
		}
		if is.Index > 0 {
			r.left = append(r.left, survivor{h.Name, is})
		}
	}
	slices.SortStableFunc(r.left, func(a, b survivor) int {
		whole := func(s survivor) int { return min(len(s.Damaged), 1) }
		return cmp.Or(whole(a)-whole(b), cmp.Compare(b.Term, a.Term), cmp.Compare(b.Index, a.Index), cmp.Compare(b.Commit, a.Commit))
	})
	by := &recovery.Rescue{Salvaged: func(is op.EtcdSnapshotInfo) { r.is = is }}
	mark := p.request.restores
	switch {
	case mark != "":
		if _, err := fmt.Sscanf(mark, "%d %d %s", &by.Term, &by.Index, &by.Member); err != nil {
			return fmt.Errorf("reading whose data this rescue goes by: %w", err)
		}
	case len(r.left) == 0:
		return refused(idRescueNoData, "no member of etcd that is left has data", "go back to a backup: slipway etcd restore "+p.env.Cluster.Name+" --from FILE")
	default:
		if err := oneCluster(r.left); err != nil {
			return err
		}
		best := r.left[0]
		by.Term, by.Index, by.Member = best.Term, best.Index, best.host
	}
	admin, err := p.svc.admin(p.env.Cluster.Name)
	if err != nil {
		return err
	}
	r.source = recovery.Source{Rescue: by, Kubeconfig: admin}
	sum := sha256.Sum256([]byte(r.mark() + " " + strings.Join(p.request.Nodes, " ")))
	r.source.Key = hex.EncodeToString(sum[:8])
	p.rescue = r
	if p.env.Stacked() { // it alone has an API server then
		p.env.Leader = by.Member
	}
	return nil
}

// oneCluster refuses members of which some have the data of before a restore or an
// earlier rescue: their terms and indices are of another count.
func oneCluster(left []survivor) error {
	var found []string
	several := false
	for _, s := range left {
		several = several || s.Cluster != left[0].Cluster
		found = append(found, fmt.Sprintf("%s of %x", s.host, s.Cluster))
	}
	if !several {
		return nil
	}
	return refused(idRescueClusters, "the members that are left have data of several clusters of etcd: "+strings.Join(found, ", "),
		"those of before a restore or a rescue count for nothing any more: move them away on their hosts ("+facts.DirEtcd+"/member), and begin again")
}

// logOf is how far the log of a host's member goes.
func logOf(ctx context.Context, h *engine.Host) (is op.EtcdSalvaged, err error) {
	results, err := h.Conn.Check(ctx, op.List{op.EtcdSalvage{Data: facts.DirEtcd}})
	if err == nil && results[0].Error != nil {
		err = results[0].Error
	}
	if err == nil {
		err = json.Unmarshal(results[0].Output, &is)
	}
	if err != nil {
		return is, fmt.Errorf("reading the log of etcd on %s: %w", h.Name, err)
	}
	return is, nil
}

// mark says whose data a rescue goes by, for an operation that is gone on with.
func (r *rescuing) mark() string {
	if r == nil {
		return ""
	}
	by := r.source.Rescue
	return fmt.Sprintf("%d %d %s", by.Term, by.Index, by.Member)
}

// losses are what a rescue may take away, for people.
func (r *rescuing) losses(env module.Env, lost []string) []string {
	if r == nil {
		return nil
	}
	by := r.source.Rescue
	text := fmt.Sprintf("what the lost members have acknowledged and %s has not heard of: its log ends at term %d, entry %d", by.Member, by.Term, by.Index)
	out := []string{"the members of etcd on " + strings.Join(lost, ", ") + ": their data must never be used again"}
	for _, s := range r.left {
		if s.host == by.Member {
			if s.Damaged != "" {
				text += ", and is damaged there (" + s.Damaged + "): what comes after that is lost, too"
			} else if s.Commit < s.Index {
				text += fmt.Sprintf(". Those after %d may never have been acknowledged; they are kept, for they may have been", s.Commit)
			}
			continue
		}
		out = append(out, fmt.Sprintf("the member of etcd on %s (%s): its data are moved aside, and it does not start any more", s.host, s.passedOver()))
	}
	return append([]string{text + "; the data of now are moved aside on the hosts of cluster " + env.Cluster.Name + ", and stay there"}, out...)
}

// passedOver says why a member's data are not gone by.
func (s survivor) passedOver() string {
	text := fmt.Sprintf("its log ends at term %d, entry %d", s.Term, s.Index)
	if s.Damaged != "" {
		text = fmt.Sprintf("passed over, for its log is damaged: %s; it can be read up to term %d, entry %d", s.Damaged, s.Term, s.Index)
	}
	return text
}

// rescued says what has come back, and what stays to be done.
func (p *prepared) rescued(res *Result) []string {
	by := p.rescue.source.Rescue
	line := "etcd runs with one member, on " + by.Member
	if is := p.rescue.is; is.Revision > 0 {
		line += fmt.Sprintf(", with all that is in its log: revision %d, %d keys", is.Revision, is.Keys)
	}
	out := []string{line, "the data of before are kept, in " + facts.DirEtcd + "/before-" + res.Operation + ": remove them when you are sure"}
	var gone []string
	for _, h := range p.recorded.Spec.Hosts {
		if p.isLost(h.Name) {
			gone = append(gone, h.Name)
		}
	}
	name := p.env.Cluster.Name
	out = append(out, "1. when their nodes are not ready any more, in about a minute, take the lost hosts off: slipway delete nodes "+strings.Join(gone, " ")+" --cluster "+name+" --forget --break-lock")
	var others []string
	for _, h := range p.env.Members(p.env.Cluster) {
		if h.Name != by.Member && !p.isLost(h.Name) {
			others = append(others, h.Name)
		}
	}
	step := 2
	if len(others) > 0 {
		out = append(out, fmt.Sprintf("%d. take those off whose members do not run any more: slipway delete nodes %s --cluster %s", step, strings.Join(others, " "), name))
		step++
	}
	return append(out, fmt.Sprintf("%d. back to full size: slipway add nodes %s --host USER@ADDRESS=ROLE,name=NAME", step, name))
}
