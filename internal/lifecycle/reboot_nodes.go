package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/upgrade"
	"slipway.dev/slipway/internal/pipeline"
)

// A RebootNodesRequest asks to reboot hosts of a saved cluster.
type RebootNodesRequest struct {
	Name string
	Options
	// Nodes select the hosts; none select all hosts of the cluster.
	Nodes []string
	// Removal configures how nodes are drained.
	Removal Removal
	// MaxUnavailable is how many workers are out of service at once: a number or a
	// percentage of the selected ones; "" means one.
	MaxUnavailable string
}

func (r RebootNodesRequest) shared() sharedRequest {
	return sharedRequest{
		Subject: Subject{Name: r.Name}, Options: r.Options, removal: r.Removal, rollout: module.Upgrade{MaxUnavailable: r.MaxUnavailable},
	}
}

func (r RebootNodesRequest) behaviour() behaviour { return rebootNodes(r.Nodes) }

// A reboot is a reboot of hosts.
type reboot struct {
	// asked selects the hosts; none select all. A resume does not ask for them again.
	asked []string
	// boots maps each host to the ID of the boot that must end.
	boots map[string]string
}

// rebootNodes reboots hosts one after the other.
func rebootNodes(nodes []string) behaviour {
	r := &reboot{asked: nodes}
	b := usual()
	b.wanted = r.withRebooted
	b.begin = func(ctx context.Context, p *prepared) error {
		p.reconnect = upgrade.RebootTime
		return refuseReboot(ctx, p)
	}
	b.observe = r.observe
	b.pipeline = func(ctx context.Context, p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		p.env.Reboots, p.env.Upgrade = r.boots, p.request.rollout
		p.env.Upgrade.Resumed = p.continues != nil
		return pipeline.RebootNodes(p.env)
	}
	b.needs = needsPart
	b.summary = func(_ context.Context, p *prepared, _ *Result) []string {
		return []string{count(len(p.nodes), "host") + " rebooted: " + strings.Join(p.nodes, ", ")}
	}
	b.save = func(_ *prepared, o *v1alpha1.OperationParameters) { o.Boots = r.boots }
	b.resume = func(o *v1alpha1.OperationParameters) { r.boots = o.Boots }
	return b
}

// withRebooted returns the saved cluster, and sets the names of the hosts to reboot, in the
// order of the cluster.
func (r *reboot) withRebooted(_ context.Context, p *prepared) (*v1alpha1.Cluster, bool, error) {
	if err := unrecorded(p.recorded); err != nil {
		return nil, false, err
	}
	chosen, all := p.nodes, p.continues == nil && len(r.asked) == 0
	if p.continues == nil {
		var err error
		if chosen, err = selectNames(p.recorded, r.asked); err != nil {
			return nil, false, err
		}
	}
	p.nodes = nil
	for _, h := range p.recorded.Spec.Hosts { // a host of a resumed operation may have left the cluster
		if all || slices.Contains(chosen, h.Name) {
			p.nodes = append(p.nodes, h.Name)
		}
	}
	return p.recorded.DeepCopy(), true, nil
}

// refuseReboot refuses a reboot while another operation is unfinished: only that operation
// knows which hosts have to run, and which components are not started at a boot.
func refuseReboot(ctx context.Context, p *prepared) error {
	if p.recorded.Status.Phase == v1alpha1.PhaseRunning {
		return p.svc.past.RefuseDuringEtcdSwap(ctx, p.recorded)
	}
	return diag.Refuse(idOperationUnfinished, "the latest operation of cluster "+p.recorded.Name+" is unfinished",
		"finish the operation first: slipway resume "+p.recorded.Name)
}

// observe determines the boots that must end, and refuses to reboot the machine on which
// this process runs. A resume keeps the boots from the beginning of the operation.
func (r *reboot) observe(_ context.Context, p *prepared) error {
	if r.boots == nil {
		r.boots = map[string]string{}
	}
	var list diag.List
	for _, h := range p.hosts {
		if !slices.Contains(p.nodes, h.Name) {
			continue
		}
		if h.Facts == nil || h.Facts.BootID == "" {
			return fmt.Errorf("host %s does not report its boot ID", h.Name)
		}
		if r.boots[h.Name] == "" {
			r.boots[h.Name] = h.Facts.BootID
		}
		if h.Facts.BootID == p.svc.BootID && r.boots[h.Name] == p.svc.BootID {
			list = append(list, diag.Diagnostic{
				ID: idRebootsItself, Severity: diag.Error, Host: h.Name,
				Message: "slipway runs on this machine: a reboot would end the operation",
				Hint:    "run slipway on another machine, or name only the other hosts: slipway reboot nodes HOST...",
			})
		}
	}
	return list.Err()
}
