package hostexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostselector"
)

// Targets returns the hosts that a selector names. Terms without CLUSTER@ select hosts of
// the given cluster. The error, a diag.List, has all terms that match no host. If a
// pattern matches several clusters, a term must match a host in one of them; warnings
// name the clusters without a match.
func (e *Executor) Targets(ctx context.Context, selector, cluster string) (targets []Target, warnings diag.List, err error) {
	var problems diag.List
	have := map[[2]string]bool{}
	for _, choice := range hostselector.SplitByCluster(selector) {
		of := cmp.Or(choice.Cluster, cluster)
		clusters, err := e.matchingClusters(ctx, of)
		var list diag.List
		if errors.As(err, &list) {
			problems = append(problems, list...)
			continue
		} else if err != nil {
			return nil, nil, err
		}
		chosen, list := selectTargets(clusters, choice.Selector, isPattern(of))
		problems, warnings = append(problems, list.Errors()...), append(warnings, list.Warnings()...)
		for _, t := range chosen {
			if id := [2]string{t.Cluster, t.Host.Name}; !have[id] {
				have[id] = true
				targets = append(targets, t)
			}
		}
	}
	return targets, warnings, problems.Err()
}

// selectTargets returns the hosts of clusters that a selector names, in the order of the
// cluster files. With lenient, a term that matches hosts in one cluster does not have to
// match in the others.
func selectTargets(clusters []*v1alpha1.Cluster, selector string, lenient bool) (targets []Target, problems diag.List) {
	chosen := map[[2]string]bool{}
	for term := range strings.SplitSeq(selector, ",") {
		var list diag.List
		some := false
		for _, c := range clusters {
			hosts, missing := hostselector.SelectSomeHosts(c, term)
			for _, h := range hosts {
				chosen[[2]string{c.Name, h.Name}], some = true, true
			}
			for _, d := range missing {
				d.Message = "cluster " + c.Name + ": " + d.Message
				list = append(list, d)
			}
		}
		if some && lenient {
			list = withWarningSeverity(list)
		}
		problems = append(problems, list...)
	}
	for _, c := range clusters {
		for _, h := range c.Spec.Hosts {
			if chosen[[2]string{c.Name, h.Name}] {
				h.SSH = spec.MergeSSH(c.Spec.SSH, h.SSH)
				targets = append(targets, Target{c.Name, h})
			}
		}
	}
	return targets, problems
}

// withWarningSeverity turns problems into warnings.
func withWarningSeverity(list diag.List) diag.List {
	for i := range list {
		list[i].Severity, list[i].Hint = diag.Warning, ""
	}
	return list
}

func isPattern(name string) bool { return strings.ContainsAny(name, "*?") }

// matchingClusters returns the clusters that a name or a pattern matches. For a pattern, it
// skips clusters with damaged state and warns about them, as long as one cluster is left.
func (e *Executor) matchingClusters(ctx context.Context, name string) ([]*v1alpha1.Cluster, error) {
	if !isPattern(name) {
		c, err := e.c.Clusters.Load(ctx, name)
		return []*v1alpha1.Cluster{c}, err
	}
	names, err := e.c.Clusters.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []*v1alpha1.Cluster
	var damaged diag.List
	for _, n := range names {
		if ok, err := path.Match(name, n); !ok || err != nil {
			continue
		}
		c, err := e.c.Clusters.Load(ctx, n)
		var list diag.List
		switch {
		case err == nil:
			out = append(out, c)
		case errors.As(err, &list):
			damaged = append(damaged, list...)
		case !errors.Is(err, records.ErrNotFound): // otherwise it was deleted in the meantime
			return nil, err
		}
	}
	switch {
	case len(out) > 0:
		if len(damaged) > 0 && e.c.Warn != nil {
			e.c.Warn(damaged)
		}
		return out, nil
	case len(damaged) > 0:
		return nil, damaged
	}
	return nil, diag.Refuse(idNoSuchClusters, fmt.Sprintf("no cluster name matches %q", name), "list the clusters: slipway get clusters")
}
