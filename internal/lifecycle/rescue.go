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
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// A rescuing is a rescue of etcd: the member whose data is used, and the alternatives.
// A nil *rescuing means that there is no rescue; its methods can be called.
type rescuing struct {
	source etcdbackup.Source
	// left lists the remaining members that have data, best one first.
	left []survivor
	is   op.EtcdRecovered // the salvaged data, once it is known
}

// A RescueEtcdRequest asks to recover the etcd of a saved cluster that has lost quorum.
type RescueEtcdRequest struct {
	Name string
	Options
	// Lost are the names of the hosts that are permanently lost.
	Lost []string
	// From is the host whose etcd data to use; "" uses the most recent data.
	From string
}

func (r RescueEtcdRequest) shared() sharedRequest {
	return sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options}
}

func (r RescueEtcdRequest) behaviour() behaviour { return rescueEtcd(&r) }

// rescueEtcd recovers an etcd that has lost quorum.
func rescueEtcd(r *RescueEtcdRequest) behaviour {
	var rescue *rescuing
	var mark string // of the member whose data an interrupted rescue uses
	b := usual()
	b.wanted = func(ctx context.Context, p *prepared) (*v1alpha1.Cluster, bool, error) {
		p.nodes = r.Lost
		return savedOrFile(ctx, p)
	}
	b.begin = func(p *prepared) error { return mayMaintain(p.recorded, "a rescue") }
	b.prepare = func(ctx context.Context, p *prepared, progress event.Sink) error {
		return r.mayRescue(ctx, p, progress)
	}
	b.observe = func(ctx context.Context, p *prepared) (err error) {
		rescue, err = r.survey(ctx, p, mark)
		return err
	}
	b.pipeline = func(p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.RescueEtcd(p.env, rescue.source), nil
	}
	b.needs = needsPart
	b.losses = func(p *prepared) []string { return rescue.losses(p.env, p.nodes) }
	b.summary = func(p *prepared, res *Result) []string { return p.rescued(rescue, res) }
	b.save = func(_ *prepared, o *v1alpha1.OperationSpec) { o.Restores = rescue.mark() }
	b.resume = func(o *v1alpha1.OperationSpec) { r.Lost, mark = o.Nodes, o.Restores }
	return b
}

// hasPart reports whether a host has an etcd member or an API server.
func hasPart(c *v1alpha1.Cluster, h v1alpha1.Host) bool {
	return spec.HasRole(h, v1alpha1.RoleControlPlane) || facts.RunsEtcd(c, h.Roles)
}

// isLost reports whether a host was declared lost (--lost).
func (p *prepared) isLost(name string) bool {
	return p.kind.DeclaresLost() && slices.Contains(p.nodes, name)
}

// mayRescue refuses a rescue that is not needed or whose --lost list is wrong. Each
// host with an etcd member or a control plane must be either reachable or declared
// lost, and a host that was declared lost must not be reachable. A resumed rescue
// has passed these checks already.
func (r *RescueEtcdRequest) mayRescue(ctx context.Context, p *prepared, progress event.Sink) error {
	if p.continues != nil {
		return nil
	}
	c := p.recorded
	for _, name := range p.nodes {
		if i := find(c.Spec.Hosts, name); i < 0 || !hasPart(c, c.Spec.Hosts[i]) {
			return refused(idRescueUnknown, "cluster "+c.Name+" has no host "+name+" with an etcd member or a control plane",
				"use the host names from: slipway etcd members "+c.Name)
		}
	}
	if err := p.mayGoBy(r.From); err != nil {
		return err
	}
	ctx, l, done, err := p.svc.StartSession(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	l.Select(func(h v1alpha1.Host) bool { return hasPart(c, h) })
	is := l.ReportEtcd(ctx, progress)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, h := range l.Hosts {
		if err := p.checkLost(h, is); err != nil {
			return err
		}
	}
	return p.needed(is)
}

// mayGoBy refuses a --from host that has no etcd member or was declared lost.
func (p *prepared) mayGoBy(from string) error {
	c := p.recorded
	i := find(c.Spec.Hosts, from)
	switch {
	case from == "":
		return nil
	case p.isLost(from):
		return refused(idRescueFrom, from+" is declared lost (--lost), so its data cannot be used (--from)",
			"use a remaining host: slipway etcd members "+c.Name)
	case i < 0 || !facts.RunsEtcd(c, c.Spec.Hosts[i].Roles):
		return refused(idRescueFrom, "cluster "+c.Name+" has no host "+from+" with an etcd member",
			"use a host with an etcd member: slipway etcd members "+c.Name)
	}
	return nil
}

// checkLost refuses a host that is declared lost but reachable, and a host that is
// unreachable but not declared lost.
func (p *prepared) checkLost(h *inspect.Host, r *inspect.EtcdReport) error {
	name := h.Spec.Name
	if !p.isLost(name) {
		if h.Err == nil {
			return nil
		}
		return refused(idRescueSilent, name+" is unreachable but not declared lost: "+hostconn.Diagnose(h.Err).Message,
			"make the host reachable, or declare it lost if it is permanently lost: --lost "+
				strings.Join(append(slices.Clone(p.nodes), name), ","))
	}
	var lost *remote.Error
	member := slices.ContainsFunc(r.Etcd.Members, func(m inspect.EtcdMember) bool { return m.Answers && inspect.IsMemberOf(m, h.Spec) })
	switch {
	case h.Err == nil:
		return refused(idRescueAnswers, name+" is declared lost but reachable",
			"remove the host from --lost, or shut the host down permanently first")
	case member:
		return refused(idRescueAnswers, "the etcd member on "+name+" is declared lost but responds",
			"remove "+name+" from --lost, or shut the host down permanently first")
	case !errors.As(h.Err, &lost) || lost.Reason != remote.Unreachable:
		return refused(idRescueAnswers, name+" is declared lost, but a machine responds at its address: "+hostconn.Diagnose(h.Err).Message,
			"if it is another machine now, shut that machine down until the rescue is complete")
	}
	return nil
}

// needed refuses a rescue if enough members remain for a quorum.
func (p *prepared) needed(r *inspect.EtcdReport) error {
	name := p.recorded.Name
	voters, up, leader := inspect.CountVoters(r.Etcd.Members)
	if r.Etcd.Message == "" && up >= voters/2+1 && leader != "" {
		return refused(idRescueNotNeeded, fmt.Sprintf("etcd works: %d of %d members respond and follow leader %s", up, voters, leader),
			"remove lost hosts: slipway delete node NAME --cluster "+name+" --forget")
	}
	all, left := p.env.EtcdMembers(p.recorded), 0
	for _, h := range all {
		if !p.isLost(h.Name) {
			left++
		}
	}
	known := voters // etcd itself knows the voters, if it can be queried
	if r.Etcd.Message != "" {
		known = len(all)
	}
	if need := known/2 + 1; left >= need {
		return refused(idRescueNotNeeded,
			fmt.Sprintf("%[2]d of %[1]d members are not lost, and %[3]d are enough: no data has to be discarded", known, left, need),
			"find out why they do not work: slipway etcd health "+name)
	}
	return nil
}

// survey reads the extent of the remaining members' data and chooses the member whose
// data the rescue uses: the one given with --from, otherwise the one with the most
// recent data. A resumed rescue keeps its first choice.
func (r *RescueEtcdRequest) survey(ctx context.Context, p *prepared, mark string) (*rescuing, error) {
	found := &rescuing{}
	for _, h := range p.hosts {
		if !facts.RunsEtcd(p.env.Cluster, h.Roles) {
			continue
		}
		is, err := logOf(ctx, h)
		if err != nil {
			return nil, err
		}
		if is != (op.EtcdRecovered{}) {
			found.left = append(found.left, survivor{h.Name, is})
		}
	}
	bestFirst(found.left)
	by := &etcdbackup.Rescue{Salvaged: func(is op.EtcdRecovered) { found.is = is }}
	if mark != "" {
		if _, err := fmt.Sscanf(mark, "%d %d %s", &by.Term, &by.Index, &by.Member); err != nil {
			return nil, fmt.Errorf("reading whose data this rescue uses: %w", err)
		}
		by.Database = len(strings.Fields(mark)) > 3
	} else {
		best, err := chosen(found.left, r.From, p.env.Cluster.Name)
		if err != nil {
			return nil, err
		}
		by.Member, by.EtcdReach, by.Database = best.host, best.Reach(), best.ByDatabase()
	}
	admin, err := p.svc.SavedKubeconfig(p.env.Cluster.Name)
	if err != nil {
		return nil, err
	}
	before, err := p.svc.renewedBefore(p.env.Cluster.Name, p.continues)
	if err != nil {
		return nil, err
	}
	found.source = etcdbackup.Source{Rescue: by, Kubeconfig: admin, Before: before}
	sum := sha256.Sum256([]byte(found.mark() + " " + strings.Join(p.nodes, " ")))
	found.source.Key = hex.EncodeToString(sum[:8])
	if p.env.HasStackedEtcd() { // only this host has an API server then
		p.env.Leader = by.Member
	}
	return found, nil
}

// chosen returns the member whose data the rescue uses. left lists the remaining
// members, best one first. from is the host that the user has chosen, "" for none.
func chosen(left []survivor, from, cluster string) (s survivor, err error) {
	readable := slices.DeleteFunc(slices.Clone(left), func(s survivor) bool { return s.Reach().Index == 0 })
	i := slices.IndexFunc(readable, func(s survivor) bool { return from == "" || s.host == from })
	switch {
	case i >= 0:
		return readable[i], oneCluster(readable, from)
	case len(readable) > 0:
		why := "it has no data"
		if i := slices.IndexFunc(left, func(s survivor) bool { return s.host == from }); i >= 0 {
			why = left[i].state()
		}
		return s, refused(idRescueFrom, from+" has no usable etcd data: "+why,
			"use another host, or omit --from to use the most recent data, on "+readable[0].host)
	}
	what := "no remaining etcd member has usable data"
	for _, s := range left {
		what += "; " + s.host + ": " + s.state()
	}
	return s, refused(idRescueNoData, what, "restore a backup: slipway etcd restore "+cluster+" --from FILE")
}

// logOf returns the extent of the etcd data on a host.
func logOf(ctx context.Context, h *engine.Host) (is op.EtcdRecovered, err error) {
	results, err := h.Conn.Check(ctx, op.List{op.EtcdRecover{Data: facts.DirEtcd}})
	if err == nil && results[0].Error != nil {
		err = results[0].Error
	}
	if err == nil {
		err = json.Unmarshal(results[0].Output, &is)
	}
	if err != nil {
		return is, fmt.Errorf("reading the etcd log on %s: %w", h.Name, err)
	}
	return is, nil
}

// mark encodes, for a resumed operation, whose data a rescue uses, and whether it uses
// only the database.
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

// losses describes, for users, the data that a rescue may lose.
func (r *rescuing) losses(env module.Env, lost []string) []string {
	if r == nil {
		return nil
	}
	by := r.source.Rescue
	text := "entries that the lost members acknowledged and " + by.Member + " never received: "
	known := "its data ended at " + reach(by.EtcdReach) + " when the rescue began"
	out := []string{"the etcd members on " + strings.Join(lost, ", ") + ": their data must never be used again"}
	for _, s := range r.left {
		switch {
		case s.host != by.Member:
			out = append(out, fmt.Sprintf("the etcd member on %s (%s): its data is moved aside, and it no longer starts", s.host, s.state()))
		case s.Reach() == by.EtcdReach:
			known = s.state() + s.loses()
		}
	}
	text += known + "; the current data is moved aside and kept on the hosts of cluster " + env.Cluster.Name
	return slices.Concat([]string{text}, r.compared(), out)
}

// rescued describes the rescued data and the next steps.
func (p *prepared) rescued(rescue *rescuing, res *Result) []string {
	by := rescue.source.Rescue
	line := "etcd is running with one member, on " + by.Member
	if is := rescue.is; is.Snapshot != nil {
		all := "all entries of its log"
		switch {
		case by.Database:
			all = "all entries of its database"
		case is.From != "":
			all = "all entries of its database and of the log after it"
		case is.Damaged != "":
			all = "all readable entries of its log"
		}
		line += fmt.Sprintf(", with %s: revision %d, %d keys", all, is.Snapshot.Revision, is.Snapshot.Keys)
	}
	previous := facts.DirEtcd + "/before-" + res.Operation
	out := []string{line, "the previous data is kept in " + previous + ": remove it when you no longer need it"}
	var gone []string
	for _, h := range p.recorded.Spec.Hosts {
		if p.isLost(h.Name) {
			gone = append(gone, h.Name)
		}
	}
	name := p.env.Cluster.Name
	out = append(out,
		"1. wait about a minute until the nodes of the lost hosts are not ready, then remove these hosts: slipway delete nodes "+
			strings.Join(gone, " ")+" --cluster "+name+" --forget")
	var others []string
	for _, h := range p.env.EtcdMembers(p.env.Cluster) {
		if h.Name != by.Member && !p.isLost(h.Name) {
			others = append(others, h.Name)
		}
	}
	step := 2
	if len(others) > 0 {
		out = append(out,
			fmt.Sprintf("%d. remove the hosts whose etcd members no longer run: slipway delete nodes %s --cluster %s",
				step, strings.Join(others, " "), name))
		step++
	}
	return append(out, fmt.Sprintf("%d. add hosts until the cluster has its full size: "+
		"slipway add nodes %s --host USER@ADDRESS=ROLE,name=NAME", step, name))
}
