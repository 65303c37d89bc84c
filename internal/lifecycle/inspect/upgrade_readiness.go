package inspect

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/module/upgrade"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// minValidity is the minimum remaining validity of a certificate when an upgrade begins: a
// certificate that expires during an upgrade makes it fail.
const minValidity = 24 * time.Hour

// CheckUpgrade adds to r what could obstruct an upgrade: in the cluster, in etcd and on the
// hosts of the session. It returns warnings about certificates.
func (s *Session) CheckUpgrade(ctx context.Context, r *precheck.Readiness) (warnings diag.List) {
	var etcd EtcdInfo
	var queries sync.WaitGroup
	queries.Go(func() { etcd = s.queryEtcdInOrder(ctx) })
	queries.Go(func() { r.Certificates, warnings = s.findExpiringCertificates(ctx) })
	s.queryAPIServers(ctx, r)
	queries.Wait()
	r.Etcd = listEtcdTroubles(&etcd)
	return warnings
}

// WaitMovedPods waits for a limited time for pods that the upgrade to the previous minor has
// moved, if a disruption budget needs them. The check of budgets afterwards reports
// budgets that still allow no disruption.
func (s *Session) WaitMovedPods(ctx context.Context, limit time.Duration, progress event.Sink) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, h := range s.Hosts {
		if spec.HasRole(h.Spec, v1alpha1.RoleControlPlane) && s.waitMovedPodsOf(ctx, h, progress) == nil || ctx.Err() != nil {
			return
		}
	}
}

func (s *Session) waitMovedPodsOf(ctx context.Context, h *Host, progress event.Sink) error {
	client, err := s.ControlPlaneClient(h)
	if err != nil {
		return err
	}
	defer client.Close()
	asked, cancel := context.WithTimeout(ctx, s.in.Limits.Through)
	nodes, err := client.Nodes().List(asked)
	cancel()
	if err != nil {
		return err // the next control plane is asked
	}
	return client.Budgets().Wait(ctx, upgrade.NodesToDrain(nodes), func(missing string) {
		event.SendNote(progress, "", "waiting for pods that the previous minor moved: "+missing)
	})
}

// webhooks are the admission webhooks of a cluster, and the calls that failed.
type webhooks struct {
	there  []kube.Webhook
	failed []kube.FailedCall
}

// listDead returns the webhooks that make requests fail. listFailed returns the other
// webhooks whose calls have failed, each with the consequence.
func (w webhooks) listDead() (out []string) {
	for _, h := range w.there {
		if h.Dead != "" {
			out = append(out, h.String()+": "+h.Dead)
		}
	}
	return out
}

func (w webhooks) listFailed() (out []string) {
	for _, h := range w.there {
		for _, f := range w.failed {
			switch {
			case h.Dead != "" || !f.IsOf(h):
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

// queryAPIServers queries the API for what could obstruct an upgrade. It queries every API
// server, because each counts deprecated requests and failed webhook calls separately.
func (s *Session) queryAPIServers(ctx context.Context, r *precheck.Readiness) {
	r.Silent = "no control plane is reachable"
	var mu sync.Mutex
	var hooks webhooks
	var control []*Host
	for _, h := range s.Hosts {
		if slices.Contains(h.Spec.Roles, v1alpha1.RoleControlPlane) {
			control = append(control, h)
		}
	}
	hostconn.ForEach(control, func(h *Host) {
		ctx, cancel := context.WithTimeoutCause(ctx, s.in.Limits.Through, hostconn.Unresponsive(h.Spec.Name, s.in.Limits.Through))
		defer cancel()
		err := s.queryAPIServer(ctx, h, r, &hooks, &mu)
		mu.Lock()
		defer mu.Unlock()
		if err = hostconn.TimeoutCause(ctx, err); err != nil && r.Silent != "" {
			r.Silent = "on " + h.Spec.Name + ": " + describeAPIError(err)
		}
	})
	slices.Sort(r.Removed)
	slices.Sort(r.Deprecated)
	r.Removed, r.Deprecated = slices.Compact(r.Removed), slices.Compact(r.Deprecated)
	r.Webhooks, r.Uncalled = hooks.listDead(), hooks.listFailed()
}

// queryAPIServer queries one API server. Data that is the same on all of them is read from the
// first that responds.
func (s *Session) queryAPIServer(ctx context.Context, h *Host, r *precheck.Readiness, hooks *webhooks, mu *sync.Mutex) error {
	client, err := s.ControlPlaneClient(h)
	if err != nil {
		return err
	}
	defer client.Close()
	has, err := client.APIServer().ReadMetrics(ctx)
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	for _, u := range has.Deprecated {
		name := u.FullName() + " (until " + u.Removed + ")"
		if release.HasReached(u.Removed, r.To) {
			r.Removed = append(r.Removed, name)
		} else {
			r.Deprecated = append(r.Deprecated, name)
		}
	}
	hooks.failed = append(hooks.failed, has.Failed...)
	if r.Silent == "" {
		return nil
	}
	if hooks.there, err = client.APIServer().ListWebhooks(ctx); err != nil {
		return err
	}
	if err := s.queryCluster(ctx, client, r); err != nil {
		return err
	}
	r.Silent = ""
	return nil
}

func (s *Session) queryCluster(ctx context.Context, client *kube.Client, r *precheck.Readiness) (err error) {
	nodes, err := client.Nodes().List(ctx)
	if err != nil {
		return err
	}
	if r.Budgets, err = client.Budgets().ListBlocking(ctx, upgrade.NodesToDrain(nodes)); err != nil {
		return err
	}
	if r.Crowded, err = client.Nodes().InsufficientCapacity(ctx, nodes, upgrade.NodesToDrain(nodes)); err != nil {
		return err
	}
	r.Unready, r.Skewed = nil, s.findOldKubelets(nodes, r.To)
	for i := range nodes {
		if st := kube.NodeStateOf(&nodes[i]); !st.Ready {
			r.Unready = append(r.Unready, precheck.Trouble{
				Host: nodes[i].Name, Blocks: true, Message: "node " + nodes[i].Name + " is not ready: " + st.Message,
				Hint: "repair the node, or remove it if it is permanently lost: slipway delete node " + nodes[i].Name + " --forget",
			})
		}
	}
	return nil
}

// findOldKubelets returns the nodes whose kubelets are too old for the API servers: for the next
// version, because each node is upgraded to it; and for the target version, if Slipway
// does not upgrade the node because it is not in the saved cluster.
func (s *Session) findOldKubelets(nodes []corev1.Node, to string) (out []precheck.Trouble) {
	most := s.in.c.Catalogue.KubeletSkew()
	for i := range nodes {
		st := kube.NodeStateOf(&nodes[i])
		reached, hint := s.Env.Release.Kubernetes, "remove the node and add it again: slipway delete node "+st.Name
		if !slices.ContainsFunc(s.Env.Cluster.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == st.Name }) {
			reached, hint = to, "upgrade the node with the tool that manages it, or remove it from the cluster: Slipway does not manage this node"
		}
		if n := release.MinorsBehind(st.Version, reached); n > most {
			out = append(out, precheck.Trouble{
				Host: st.Name, Blocks: true, Hint: hint,
				Message: fmt.Sprintf("the kubelet of node %s has version %s, %d minors behind %s, but at most %d are allowed",
					st.Name, st.Version, n, reached, most),
			})
		}
	}
	return out
}

// queryEtcdInOrder queries etcd from the first host that gets an answer.
func (s *Session) queryEtcdInOrder(ctx context.Context) EtcdInfo {
	in := EtcdInfo{Type: s.Env.Cluster.Spec.Etcd.Type, Message: "no host with access to etcd is reachable"}
	for _, h := range s.Hosts {
		worker, ok := h.Conn.(remote.Worker)
		if !ok || !s.CanQueryEtcd(h.Spec) {
			continue
		}
		limited, cancel := context.WithTimeoutCause(ctx, s.in.Limits.Through, hostconn.Unresponsive(h.Spec.Name, s.in.Limits.Through))
		err := hostconn.TimeoutCause(limited, s.queryMembers(limited, worker, s.etcdClient(), &in))
		cancel()
		if err == nil {
			in.Message = ""
			return in
		}
		in.Message = h.Spec.Name + ": " + hostconn.Diagnose(err).Message
	}
	return in
}

// listEtcdTroubles returns the problems of etcd. An unhealthy member blocks an upgrade,
// because another member will be down for a while.
func listEtcdTroubles(in *EtcdInfo) (out []precheck.Trouble) {
	const see = "check etcd: slipway etcd health"
	if in.Message != "" {
		return []precheck.Trouble{{Message: "etcd cannot be queried: " + in.Message, Hint: see, Blocks: true}}
	}
	well := map[string]bool{"": true}
	for _, m := range in.Members {
		well[m.Label()] = m.Healthy
	}
	evaluateEtcd(in, func(_, host, hint, format string, args ...any) {
		if hint == "" {
			hint = see
		}
		out = append(out, precheck.Trouble{Host: host, Message: fmt.Sprintf(format, args...), Hint: hint, Blocks: !well[host]})
	})
	return out
}

// findExpiringCertificates returns the certificates that may expire before an upgrade is complete, and
// other warnings about certificates.
func (s *Session) findExpiringCertificates(ctx context.Context) (soonest []precheck.Trouble, warnings diag.List) {
	type found struct {
		*Host
		certificates []Certificate
		err          error
	}
	var hosts []*found
	for _, h := range s.Hosts {
		hosts = append(hosts, &found{Host: h})
	}
	hostconn.ForEach(hosts, func(f *found) {
		known := certs.ExpectedCerts(s.Env, f.Spec)
		states, err := certs.QueryCerts(ctx, f.Conn, known)
		f.err = err
		for i, st := range states {
			if !st.Missing || !known[i].Optional {
				c := NewCertificate(known[i], st)
				c.Host = f.Spec.Name
				f.certificates = append(f.certificates, c)
			}
		}
	})
	now := s.in.c.Now()
	var rest []Certificate
	for _, f := range hosts {
		if f.err != nil {
			soonest = append(soonest,
				precheck.Trouble{
					Host: f.Spec.Name, Message: "its certificates cannot be read: " + f.err.Error(),
					Hint: "check the certificates: slipway certs check " + s.Env.Cluster.Name,
				})
		}
		for _, c := range f.certificates {
			if c.Expires.IsZero() || c.Expires.Sub(now) >= minValidity || c.Rotates && c.Expires.After(now) {
				rest = append(rest, c)
				continue
			}
			soonest = append(soonest, precheck.Trouble{
				Host: f.Spec.Name, Message: fmt.Sprintf("%s expires on %s", c.Path, c.Expires.UTC().Format(time.DateTime)),
				Hint: "renew the certificate first: slipway certs renew " + s.Env.Cluster.Name, Blocks: true,
			})
		}
	}
	check := certificateCheck{cluster: s.Env.Cluster.Name, now: now, validity: s.Env.CertValidity()}
	check.evaluate(rest, warnInto(&warnings))
	return soonest, warnings
}
