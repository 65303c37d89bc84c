package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/module/upgrade"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// tooLate is the minimum remaining validity of a certificate when an upgrade begins: a
// certificate that expires during an upgrade makes it fail.
const tooLate = 24 * time.Hour

// readiness returns what could obstruct an upgrade, before anything is changed: in the
// cluster, in etcd, on hosts, and on the upgrade path to the target version.
func (p *prepared) readiness(ctx context.Context, o precheck.Options, progress event.Sink) (diag.List, error) {
	if !p.beginsUpgrade() {
		return nil, nil
	}
	r := precheck.Readiness{To: p.request.Upgrade.Version}
	var unfit diag.List // an unsuitable bundle is reported together with all other problems
	var err error
	if r.Missing, r.Unknown, err = p.wayThere(ctx); err != nil && !errors.As(err, &unfit) {
		return nil, err
	}
	l := newLooker(p.svc, p.env)
	l.hosts = nil
	for _, h := range p.hosts {
		if h.Facts != nil {
			l.hosts = append(l.hosts, &hostLook{spec: h.Host, conn: h.Conn})
		}
	}
	if p.request.Upgrade.Follows && !slices.Contains(o.Ignore, precheck.IDBudget) {
		l.movedPods(ctx, progress)
	}
	var etcd EtcdInfo
	var warnings diag.List
	var asked sync.WaitGroup
	asked.Go(func() { etcd = l.etcdThrough(ctx) })
	asked.Go(func() { r.Certificates, warnings = p.ending(ctx) })
	l.inCluster(ctx, &r)
	asked.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.Etcd = etcdTroubles(&etcd)
	return slices.Concat(precheck.Ready(r, o), unfit, warnings), nil
}

// movedPods waits for a limited time for pods that the upgrade to the previous minor has
// moved, if a disruption budget needs them. The check of budgets afterwards reports
// budgets that still allow no disruption.
func (l *looker) movedPods(ctx context.Context, progress event.Sink) {
	ctx, cancel := context.WithTimeout(ctx, l.svc.looks.between)
	defer cancel()
	for _, h := range l.hosts {
		if spec.HasRole(h.spec, v1alpha1.RoleControlPlane) && l.movedPodsThrough(ctx, h, progress) == nil || ctx.Err() != nil {
			return
		}
	}
}

func (l *looker) movedPodsThrough(ctx context.Context, h *hostLook, progress event.Sink) error {
	client, err := l.own(h)
	if err != nil {
		return err
	}
	defer client.Close()
	asked, cancel := context.WithTimeout(ctx, l.svc.looks.over)
	nodes, err := client.Nodes(asked)
	cancel()
	if err != nil {
		return err // the next control plane is asked
	}
	return client.WaitBudgets(ctx, upgrade.Drained(nodes), func(missing string) {
		note(progress, "", "waiting for pods that the previous minor moved: "+missing)
	})
}

// wayThere returns the versions of the upgrade path after the next one that have no
// bundle yet, and those of all that are not in the release table. It returns an error if
// the bundle of a version is unsuitable.
func (p *prepared) wayThere(ctx context.Context) (missing []string, unknown []release.Release, err error) {
	to := p.request.Upgrade.Version
	known, err := p.svc.releases(ctx, p.recorded, to, p.request.Upgrade.Bundle, p.bundleFor(to))
	if err != nil {
		return nil, nil, err
	}
	path, err := known.UpgradePath(runningVersion(p.recorded), to)
	for i, v := range path {
		is, rerr := known.Resolve(v)
		if err = errors.Join(err, rerr); err != nil {
			return nil, nil, err
		}
		if !is.Known {
			unknown = append(unknown, is)
		}
		if i == 0 {
			continue
		}
		later := module.Env{Cluster: spec.Copy(p.recorded), Release: is}
		later.Cluster.Spec.Bundle = p.bundleFor(v) // the saved bundle is for one version only
		has, err := (&source{svc: p.svc, env: later, arches: p.bundle.arches}).Have(ctx)
		if err != nil {
			return nil, nil, err
		}
		if has == nil {
			missing = append(missing, v)
		}
	}
	return missing, unknown, err
}

// webhooks are the admission webhooks of a cluster, and the calls that failed.
type webhooks struct {
	there  []kube.Webhook
	failed []kube.FailedCall
}

// dead returns the webhooks that make requests fail. uncalled returns the other webhooks
// whose calls have failed, each with the consequence.
func (w webhooks) dead() (out []string) {
	for _, h := range w.there {
		if h.Dead != "" {
			out = append(out, h.String()+": "+h.Dead)
		}
	}
	return out
}

func (w webhooks) uncalled() (out []string) {
	for _, h := range w.there {
		for _, f := range w.failed {
			switch {
			case h.Dead != "" || !f.Of(h):
			case f.Refused:
				out = append(out, h.String()+": requests were refused")
			default:
				out = append(out, h.String()+": requests continued without it")
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// inCluster queries the API for what could obstruct an upgrade. It queries every API
// server, because each counts deprecated requests and failed webhook calls separately.
func (l *looker) inCluster(ctx context.Context, r *precheck.Readiness) {
	r.Silent = "no control plane is reachable"
	var mu sync.Mutex
	var hooks webhooks
	var control []*hostLook
	for _, h := range l.hosts {
		if slices.Contains(h.spec.Roles, v1alpha1.RoleControlPlane) {
			control = append(control, h)
		}
	}
	hostconn.ForEach(control, func(h *hostLook) {
		ctx, cancel := context.WithTimeoutCause(ctx, l.svc.looks.over, silent(h.spec.Name, l.svc.looks.over))
		defer cancel()
		err := l.ofServer(ctx, h, r, &hooks, &mu)
		mu.Lock()
		defer mu.Unlock()
		if err = because(ctx, err); err != nil && r.Silent != "" {
			r.Silent = "on " + h.spec.Name + ": " + shortly(err)
		}
	})
	slices.Sort(r.Removed)
	slices.Sort(r.Deprecated)
	r.Removed, r.Deprecated = slices.Compact(r.Removed), slices.Compact(r.Deprecated)
	r.Webhooks, r.Uncalled = hooks.dead(), hooks.uncalled()
}

// ofServer queries one API server. Data that is the same on all of them is read from the
// first that responds.
func (l *looker) ofServer(ctx context.Context, h *hostLook, r *precheck.Readiness, hooks *webhooks, mu *sync.Mutex) error {
	client, err := l.own(h)
	if err != nil {
		return err
	}
	defer client.Close()
	has, err := client.Counted(ctx)
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	for _, u := range has.Deprecated {
		name := u.Name() + " (until " + u.Removed + ")"
		if release.Reached(u.Removed, r.To) {
			r.Removed = append(r.Removed, name)
		} else {
			r.Deprecated = append(r.Deprecated, name)
		}
	}
	hooks.failed = append(hooks.failed, has.Failed...)
	if r.Silent == "" {
		return nil
	}
	if hooks.there, err = client.Webhooks(ctx); err != nil {
		return err
	}
	if err := l.ofAll(ctx, client, r); err != nil {
		return err
	}
	r.Silent = ""
	return nil
}

func (l *looker) ofAll(ctx context.Context, client *kube.Client, r *precheck.Readiness) (err error) {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	if r.Budgets, err = client.HeldBudgets(ctx, upgrade.Drained(nodes)); err != nil {
		return err
	}
	if r.Crowded, err = client.NoRoom(ctx, nodes, upgrade.Drained(nodes)); err != nil {
		return err
	}
	r.Unready, r.Skewed = nil, l.skewed(nodes, r.To)
	for i := range nodes {
		if st := kube.State(&nodes[i]); !st.Ready {
			r.Unready = append(r.Unready, precheck.Trouble{
				Host: nodes[i].Name, Blocks: true, Message: "node " + nodes[i].Name + " is not ready: " + st.Message,
				Hint: "repair the node, or remove it if it is permanently lost: slipway delete node " + nodes[i].Name + " --forget",
			})
		}
	}
	return nil
}

// skewed returns the nodes whose kubelets are too old for the API servers: for the next
// version, because each node is upgraded to it; and for the target version, if Slipway
// does not upgrade the node because it is not in the saved cluster.
func (l *looker) skewed(nodes []corev1.Node, to string) (out []precheck.Trouble) {
	most := l.svc.Catalogue.KubeletSkew()
	for i := range nodes {
		st := kube.State(&nodes[i])
		reached, hint := l.env.Release.Kubernetes, "remove the node and add it again: slipway delete node "+st.Name
		if find(l.env.Cluster.Spec.Hosts, st.Name) < 0 {
			reached, hint = to, "upgrade the node with the tool that manages it, or remove it from the cluster: Slipway does not manage this node"
		}
		if n := release.Behind(st.Version, reached); n > most {
			out = append(out, precheck.Trouble{
				Host: st.Name, Blocks: true, Hint: hint,
				Message: fmt.Sprintf("the kubelet of node %s has version %s, %d minors behind %s, but at most %d are allowed",
					st.Name, st.Version, n, reached, most),
			})
		}
	}
	return out
}

// etcdThrough queries etcd from the first host that gets an answer.
func (l *looker) etcdThrough(ctx context.Context) EtcdInfo {
	in := EtcdInfo{Type: l.env.Cluster.Spec.Etcd.Type, Message: "no host with access to etcd is reachable"}
	for _, h := range l.hosts {
		worker, ok := h.conn.(remote.Worker)
		if !ok || !l.asksEtcd(h.spec) {
			continue
		}
		limited, cancel := context.WithTimeoutCause(ctx, l.svc.looks.over, silent(h.spec.Name, l.svc.looks.over))
		err := because(limited, l.membersThrough(limited, worker, l.etcdClient(), &in))
		cancel()
		if err == nil {
			in.Message = ""
			return in
		}
		in.Message = h.spec.Name + ": " + hostconn.Diagnose(err).Message
	}
	return in
}

// etcdTroubles returns the problems of etcd. An unhealthy member blocks an upgrade,
// because another member will be down for a while.
func etcdTroubles(in *EtcdInfo) (out []precheck.Trouble) {
	const see = "check etcd: slipway etcd health"
	if in.Message != "" {
		return []precheck.Trouble{{Message: "etcd cannot be queried: " + in.Message, Hint: see, Blocks: true}}
	}
	well := map[string]bool{"": true}
	for _, m := range in.Members {
		well[m.called()] = m.Healthy
	}
	judgeEtcd(in, func(_, host, hint, format string, args ...any) {
		if hint == "" {
			hint = see
		}
		out = append(out, precheck.Trouble{Host: host, Message: fmt.Sprintf(format, args...), Hint: hint, Blocks: !well[host]})
	})
	return out
}

// ending returns the certificates that may expire before an upgrade is complete, and
// other warnings about certificates.
func (p *prepared) ending(ctx context.Context) (soonest []precheck.Trouble, warnings diag.List) {
	type found struct {
		*engine.Host
		certificates []Certificate
		err          error
	}
	var hosts []*found
	for _, h := range p.hosts {
		if h.Facts != nil {
			hosts = append(hosts, &found{Host: h})
		}
	}
	hostconn.ForEach(hosts, func(f *found) {
		known := certs.Of(p.env, f.Host.Host)
		states, err := certs.Ask(ctx, f.Conn, known)
		f.err = err
		for i, st := range states {
			if !st.Missing || !known[i].Optional {
				c := asFound(known[i], st)
				c.Host = f.Name
				f.certificates = append(f.certificates, c)
			}
		}
	})
	now := p.svc.Now()
	var rest []Certificate
	for _, f := range hosts {
		if f.err != nil {
			soonest = append(soonest,
				precheck.Trouble{Host: f.Name, Message: "its certificates cannot be read: " + f.err.Error(),
					Hint: "check the certificates: slipway certs check " + p.env.Cluster.Name})
		}
		for _, c := range f.certificates {
			if c.Expires.IsZero() || c.Expires.Sub(now) >= tooLate || c.Rotates && c.Expires.After(now) {
				rest = append(rest, c)
				continue
			}
			soonest = append(soonest, precheck.Trouble{
				Host: f.Name, Message: fmt.Sprintf("%s expires on %s", c.Path, c.Expires.UTC().Format(time.DateTime)),
				Hint: "renew the certificate first: slipway certs renew " + p.env.Cluster.Name, Blocks: true,
			})
		}
	}
	judge := certificateJudge{cluster: p.env.Cluster.Name, now: now, validity: p.env.Validity()}
	judge.all(rest, func(id, host, hint, format string, args ...any) {
		warnings = append(warnings,
			diag.Diagnostic{ID: id, Severity: diag.Warning, Host: host, Message: fmt.Sprintf(format, args...), Hint: hint})
	})
	return soonest, warnings
}
