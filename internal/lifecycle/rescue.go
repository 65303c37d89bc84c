package lifecycle

import (
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
	// left are the members that are left and have data, the best one first.
	left []survivor
	is   op.EtcdSalvaged // what its data came to, when that is known
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
	if p.continues != nil {
		return nil
	}
	c := p.recorded
	for _, name := range p.request.Nodes {
		if i := find(c.Spec.Hosts, name); i < 0 || !hasPart(c, c.Spec.Hosts[i]) {
			return refused(idRescueUnknown, "cluster "+c.Name+" has no host "+name+" with a member of etcd or a control plane", "name those that are lost, as the cluster calls them: slipway etcd members "+c.Name)
		}
	}
	if err := p.mayGoBy(p.request.From); err != nil {
		return err
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

// mayGoBy refuses a host to go by that has no member, or is declared lost.
func (p *prepared) mayGoBy(from string) error {
	c := p.recorded
	i := find(c.Spec.Hosts, from)
	switch {
	case from == "":
		return nil
	case p.isLost(from):
		return refused(idRescueFrom, from+" is declared lost, and its data are to be gone by", "name a host that is left: slipway etcd members "+c.Name)
	case i < 0 || !facts.RunsEtcd(c, c.Spec.Hosts[i].Roles):
		return refused(idRescueFrom, "cluster "+c.Name+" has no host "+from+" with a member of etcd", "name one that has, as the cluster calls it: slipway etcd members "+c.Name)
	}
	return nil
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

// survey asks the members that are left how far their data go, and chooses: the one
// that is asked for, or the one that goes the furthest. One that goes on keeps to
// the one that it has begun with.
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
		if is != (op.EtcdSalvaged{}) {
			r.left = append(r.left, survivor{h.Name, is})
		}
	}
	bestFirst(r.left)
	by := &recovery.Rescue{Salvaged: func(is op.EtcdSalvaged) { r.is = is }}
	if mark := p.request.restores; mark != "" {
		if _, err := fmt.Sscanf(mark, "%d %d %s", &by.Term, &by.Index, &by.Member); err != nil {
			return fmt.Errorf("reading whose data this rescue goes by: %w", err)
		}
		by.Database = len(strings.Fields(mark)) > 3
	} else {
		best, err := p.chosen(r.left)
		if err != nil {
			return err
		}
		by.Member, by.EtcdReach, by.Database = best.host, best.Reach(), best.ByDatabase()
	}
	admin, err := p.svc.admin(p.env.Cluster.Name)
	if err != nil {
		return err
	}
	before, err := p.svc.renewedBefore(p.env.Cluster.Name, p.continues)
	if err != nil {
		return err
	}
	r.source = recovery.Source{Rescue: by, Kubeconfig: admin, Before: before}
	sum := sha256.Sum256([]byte(r.mark() + " " + strings.Join(p.request.Nodes, " ")))
	r.source.Key = hex.EncodeToString(sum[:8])
	p.rescue = r
	if p.env.Stacked() { // it alone has an API server then
		p.env.Leader = by.Member
	}
	return nil
}

// chosen is whose data are gone by, of those that are left, the best one first.
func (p *prepared) chosen(left []survivor) (s survivor, err error) {
	readable := slices.DeleteFunc(slices.Clone(left), func(s survivor) bool { return s.Reach().Index == 0 })
	from := p.request.From
	i := slices.IndexFunc(readable, func(s survivor) bool { return from == "" || s.host == from })
	switch {
	case i >= 0:
		return readable[i], oneCluster(readable, from)
	case len(readable) > 0:
		why := "it has none"
		if i := slices.IndexFunc(left, func(s survivor) bool { return s.host == from }); i >= 0 {
			why = left[i].state()
		}
		return s, refused(idRescueFrom, from+" has no data of etcd that can be gone by: "+why, "name another one, or leave --from away: the one whose data go the furthest is "+readable[0].host)
	}
	what := "no member of etcd that is left has data"
	for _, s := range left {
		what += "; " + s.host + ": " + s.state()
	}
	return s, refused(idRescueNoData, what, "go back to a backup: slipway etcd restore "+p.env.Cluster.Name+" --from FILE")
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

// mark says whose data a rescue goes by, and whether by the database alone, for an
// operation that is gone on with.
func (r *rescuing) mark() string {
	if r == nil {
		return ""
	}
	by := r.source.Rescue
	mark := fmt.Sprintf("%d %d %s", by.Term, by.Index, by.Member)
	if by.Database {
		mark += " database"
	}
	return mark
}

// losses are what a rescue may take away, for people.
func (r *rescuing) losses(env module.Env, lost []string) []string {
	if r == nil {
		return nil
	}
	by := r.source.Rescue
	text := "what the lost members have acknowledged and " + by.Member + " has not heard of: "
	known := "its data went up to " + reach(by.EtcdReach) + " when this was begun"
	out := []string{"the members of etcd on " + strings.Join(lost, ", ") + ": their data must never be used again"}
	for _, s := range r.left {
		switch {
		case s.host != by.Member:
			out = append(out, fmt.Sprintf("the member of etcd on %s (%s): its data are moved aside, and it does not start any more", s.host, s.state()))
		case s.Reach() == by.EtcdReach:
			known = s.state() + s.loses()
		}
	}
	text += known + "; the data of now are moved aside on the hosts of cluster " + env.Cluster.Name + ", and stay there"
	return slices.Concat([]string{text}, r.compared(), out)
}

// rescued says what has come back, and what stays to be done.
func (p *prepared) rescued(res *Result) []string {
	by := p.rescue.source.Rescue
	line := "etcd runs with one member, on " + by.Member
	if is := p.rescue.is; is.Snapshot != nil {
		all := "is in its log"
		switch {
		case by.Database:
			all = "is in its database"
		case is.From != "":
			all = "is in its database and the log after it"
		case is.Damaged != "":
			all = "could be read of its log"
		}
		line += fmt.Sprintf(", with all that %s: revision %d, %d keys", all, is.Snapshot.Revision, is.Snapshot.Keys)
	}
	out := []string{line, "the data of before are kept, in " + facts.DirEtcd + "/before-" + res.Operation + ": remove them when you are sure"}
	var gone []string
	for _, h := range p.recorded.Spec.Hosts {
		if p.isLost(h.Name) {
			gone = append(gone, h.Name)
		}
	}
	name := p.env.Cluster.Name
	out = append(out, "1. when their nodes are not ready any more, in about a minute, take the lost hosts off: slipway delete nodes "+strings.Join(gone, " ")+" --cluster "+name+" --forget")
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
