package lifecycle

import (
	"context"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/etcdrescue"
	"slipway.dev/slipway/internal/pipeline"
)

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
	var rescue *etcdrescue.Rescue
	var mark string // of the member whose data an interrupted rescue uses
	b := usual()
	b.wanted = func(ctx context.Context, p *prepared) (*v1alpha1.Cluster, bool, error) {
		p.nodes = r.Lost
		return savedOrFile(ctx, p)
	}
	b.begin = func(ctx context.Context, p *prepared) error { return mayMaintain(p.recorded, "a rescue") }
	b.prepare = func(ctx context.Context, p *prepared, progress event.Sink) error {
		return r.mayRescue(ctx, p, progress)
	}
	b.observe = func(ctx context.Context, p *prepared) (err error) {
		rescue, err = r.survey(ctx, p, mark)
		return err
	}
	b.pipeline = func(ctx context.Context, p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.RescueEtcd(p.env, rescue.Source), nil
	}
	b.needs = needsPart
	b.losses = func(p *prepared) []string { return rescue.Losses(p.env, p.nodes) }
	b.summary = func(_ context.Context, p *prepared, res *Result) []string {
		previous := facts.DirEtcd + "/before-" + res.Operation
		out := []string{rescue.Running(), "the previous data is kept in " + previous + ": remove it when you no longer need it"}
		return append(out, rescue.NextSteps(p.env, p.nodes)...)
	}
	b.save = func(_ *prepared, o *v1alpha1.OperationParameters) { o.Restores, o.Member = rescue.Mark(), r.From }
	b.resume = func(o *v1alpha1.OperationParameters) { r.Lost, mark = o.Nodes, o.Restores }
	return b
}

// isLost reports whether a host was declared lost (--lost).
func (p *prepared) isLost(name string) bool {
	return p.kind.DeclaresLost() && slices.Contains(p.nodes, name)
}

func (r *RescueEtcdRequest) rescue(p *prepared) etcdrescue.Request {
	return etcdrescue.Request{Cluster: p.recorded, Env: p.env, Lost: p.nodes, From: r.From}
}

// mayRescue refuses a rescue that is not needed or whose list of lost hosts is wrong. A
// resumed rescue has passed these checks already.
func (r *RescueEtcdRequest) mayRescue(ctx context.Context, p *prepared, progress event.Sink) error {
	if p.continues != nil {
		return nil
	}
	rescue := r.rescue(p)
	if err := rescue.CheckNames(); err != nil {
		return err
	}
	ctx, l, done, err := p.svc.StartSession(ctx, p.recorded)
	if err != nil {
		return err
	}
	defer done()
	return rescue.CheckHosts(ctx, l, progress)
}

// survey chooses the member whose data the rescue uses.
func (r *RescueEtcdRequest) survey(ctx context.Context, p *prepared, mark string) (*etcdrescue.Rescue, error) {
	rescue, err := r.rescue(p).Survey(ctx, p.hosts, mark)
	if err != nil {
		return nil, err
	}
	if rescue.Source.Kubeconfig, err = p.svc.SavedKubeconfig(ctx, p.env.Cluster.Name); err != nil {
		return nil, err
	}
	if rescue.Source.Before, err = p.svc.past.CountEtcdReplacements(ctx, p.env.Cluster.Name, p.continues); err != nil {
		return nil, err
	}
	if p.env.HasStackedEtcd() { // only this host has an API server then
		p.env.Leader = rescue.Source.Rescue.Member
	}
	return rescue, nil
}
