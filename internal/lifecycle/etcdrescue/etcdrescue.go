// Package etcdrescue decides whether and how an etcd that has lost its quorum is rescued: from
// which remaining member, and what is lost. It changes nothing.
package etcdrescue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// Error ids, each with an entry in docs/guide/errors.md. They never change.
const (
	idRescueUnknown   = "rescue-unknown-host"
	idRescueAnswers   = "rescue-host-answers"
	idRescueSilent    = "rescue-host-silent"
	idRescueNotNeeded = "rescue-not-needed"
	idRescueFrom      = "rescue-from"
	idRescueNoData    = "rescue-no-data"
	idRescueClusters  = "rescue-several-clusters"
)

// A Request describes a rescue.
type Request struct {
	// Cluster is the saved cluster, and Env its environment.
	Cluster *v1alpha1.Cluster
	Env     module.Env
	// Lost are the hosts that are declared lost.
	Lost []string
	// From is the host whose etcd data to use; "" uses the most recent data.
	From string
}

// HasPart reports whether a host has an etcd member or an API server.
func HasPart(c *v1alpha1.Cluster, h v1alpha1.Host) bool {
	return spec.HasRole(h, v1alpha1.RoleControlPlane) || hostroles.RunsEtcd(c, h.Roles)
}

// CheckNames refuses names of hosts that have no part in etcd or the API, and a --from host
// that cannot be used.
func (r Request) CheckNames() error {
	c := r.Cluster
	for _, name := range r.Lost {
		if i := spec.FindHost(c.Spec.Hosts, name); i < 0 || !HasPart(c, c.Spec.Hosts[i]) {
			return diag.Refuse(idRescueUnknown, "cluster "+c.Name+" has no host "+name+" with an etcd member or a control plane",
				"use the host names from: slipway etcd members "+c.Name)
		}
	}
	return r.checkFrom()
}

// CheckHosts refuses a rescue that is not needed or whose list of lost hosts is wrong. Each
// host with an etcd member or a control plane must be either reachable or declared lost, and
// a host that was declared lost must not be reachable.
func (r Request) CheckHosts(ctx context.Context, l *inspect.Session, progress event.Sink) error {
	l.Select(func(h v1alpha1.Host) bool { return HasPart(r.Cluster, h) })
	report := l.ReportEtcd(ctx, progress)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, h := range l.Hosts {
		if err := r.checkLost(h, report); err != nil {
			return err
		}
	}
	return r.refuseUnneeded(report)
}

func (r Request) isLost(name string) bool { return slices.Contains(r.Lost, name) }

// checkFrom refuses a --from host that has no etcd member or was declared lost.
func (r Request) checkFrom() error {
	from := r.From
	c := r.Cluster
	i := spec.FindHost(c.Spec.Hosts, from)
	switch {
	case from == "":
		return nil
	case r.isLost(from):
		return diag.Refuse(idRescueFrom, from+" is declared lost (--lost), so its data cannot be used (--from)",
			"use a remaining host: slipway etcd members "+c.Name)
	case i < 0 || !hostroles.RunsEtcd(c, c.Spec.Hosts[i].Roles):
		return diag.Refuse(idRescueFrom, "cluster "+c.Name+" has no host "+from+" with an etcd member",
			"use a host with an etcd member: slipway etcd members "+c.Name)
	}
	return nil
}

// checkLost refuses a host that is declared lost but reachable, and a host that is
// unreachable but not declared lost.
func (r Request) checkLost(h *inspect.Host, report *inspect.EtcdReport) error {
	name := h.Spec.Name
	if !r.isLost(name) {
		if h.Err == nil {
			return nil
		}
		return diag.Refuse(idRescueSilent, name+" is unreachable but not declared lost: "+hostconn.Diagnose(h.Err).Message,
			"make the host reachable, or declare it lost if it is permanently lost: --lost "+
				strings.Join(append(slices.Clone(r.Lost), name), ","))
	}
	var lost *remote.Error
	member := slices.ContainsFunc(report.Etcd.Members, func(m inspect.EtcdMember) bool { return m.Answers && inspect.IsMemberOf(m, h.Spec) })
	switch {
	case h.Err == nil:
		return diag.Refuse(idRescueAnswers, name+" is declared lost but reachable",
			"remove the host from --lost, or shut the host down permanently first")
	case member:
		return diag.Refuse(idRescueAnswers, "the etcd member on "+name+" is declared lost but responds",
			"remove "+name+" from --lost, or shut the host down permanently first")
	case !errors.As(h.Err, &lost) || lost.Reason != remote.Unreachable:
		return diag.Refuse(idRescueAnswers, name+" is declared lost, but a machine responds at its address: "+hostconn.Diagnose(h.Err).Message,
			"if it is another machine now, shut that machine down until the rescue is complete")
	}
	return nil
}

// refuseUnneeded refuses a rescue if enough members remain for a quorum.
func (r Request) refuseUnneeded(report *inspect.EtcdReport) error {
	name := r.Cluster.Name
	voters, up, leader := inspect.CountVoters(report.Etcd.Members)
	if report.Etcd.Message == "" && up >= voters/2+1 && leader != "" {
		return diag.Refuse(idRescueNotNeeded, fmt.Sprintf("etcd works: %d of %d members respond and follow leader %s", up, voters, leader),
			"remove lost hosts: slipway delete node NAME --cluster "+name+" --forget")
	}
	all, left := r.Env.EtcdMembers(r.Cluster), 0
	for _, h := range all {
		if !r.isLost(h.Name) {
			left++
		}
	}
	known := voters // etcd itself knows the voters, if it can be queried
	if report.Etcd.Message != "" {
		known = len(all)
	}
	if need := known/2 + 1; left >= need {
		return diag.Refuse(idRescueNotNeeded,
			fmt.Sprintf("%[2]d of %[1]d members are not lost, and %[3]d are enough: no data has to be discarded", known, left, need),
			"find out why they do not work: slipway etcd health "+name)
	}
	return nil
}
