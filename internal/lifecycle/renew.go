package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
)

// Renewal says which certificates are renewed.
type Renewal = module.Renewal

// CertificateNames are the certificates that can be renewed by name.
func CertificateNames() []string { return certs.Names() }

// unknownNames refuses names of certificates that there are none of.
func unknownNames(names []string) error {
	var list diag.List
	for _, name := range names {
		if slices.Contains(certs.Names(), name) {
			continue
		}
		hint := diag.DidYouMean(name, certs.Names())
		if hint == "" {
			hint = "see their names: slipway certs check; authorities are not renewed, and kubelets renew their own"
		}
		list = append(list, diag.Diagnostic{ID: idUnknownCertificate, Severity: diag.Error, Message: fmt.Sprintf("there is no certificate %q to renew", name), Hint: hint})
	}
	return list.Err()
}

// A certLook is what one host answered.
type certLook struct {
	*engine.Host
	found     []Certificate
	concerned bool // something would be renewed on it
	err       error
}

// lookAtCertificates finds out what there is to renew: what the pipeline is made
// of. Nothing of it is asked of the API.
func (p *prepared) lookAtCertificates(ctx context.Context) error {
	if p.request.Kind != Renew {
		return nil
	}
	p.wish = certs.Wish{Renewal: p.request.Renew, Continues: p.continues != nil}
	var looks []*certLook
	for _, h := range p.hosts {
		looks = append(looks, &certLook{Host: h})
	}
	each(looks, func(l *certLook) { l.err = l.ask(ctx, p.env, p.wish) })
	now := p.svc.Now()
	for _, l := range looks {
		if l.err != nil {
			return fmt.Errorf("looking at the certificates of %s: %w", l.Name, l.err)
		}
		if l.concerned {
			p.wish.Concerned = append(p.wish.Concerned, l.Name)
		}
		p.wish.Lapsed = p.wish.Lapsed || l.lapsed(now)
		if l.readmit(now) {
			p.wish.Readmit = append(p.wish.Readmit, l.Name)
		}
	}
	p.findings = append(p.findings, p.beyond(looks, now)...)
	return nil
}

// ask asks a host what it has, and what would be renewed of it. What cannot be
// renewed is told by the plan.
func (l *certLook) ask(ctx context.Context, env module.Env, w certs.Wish) error {
	known := certs.Of(env, l.Host.Host)
	states, err := certs.Ask(ctx, l.Conn, known)
	if err != nil {
		return err
	}
	for i, st := range states {
		l.found = append(l.found, asFound(known[i], st))
	}
	results, err := l.Conn.Check(ctx, w.Look(env, l.Host.Host))
	l.concerned = slices.ContainsFunc(results, func(r op.Result) bool { return r.Status == op.Changed })
	return err
}

// over says that a certificate is there, and its time is not.
func over(c Certificate, now time.Time) bool { return !c.Expires.IsZero() && now.After(c.Expires) }

// lapsed says that a host cannot serve, nor be asked whether it does, with what
// it has of etcd or of the kubelet that runs it.
func (l *certLook) lapsed(now time.Time) bool {
	return slices.ContainsFunc(l.found, func(c Certificate) bool {
		etcds := slices.Contains([]string{"etcd-server", "etcd-peer", "etcd-healthcheck-client"}, c.Name)
		return over(c, now) && (etcds || c.Name == "kubelet-client" && l.HasRole(v1alpha1.RoleControlPlane))
	})
}

// readmit says that a host's kubelet cannot speak with the cluster any more, and
// has no authority beside it: or that it was cut off while it was let in again.
func (l *certLook) readmit(now time.Time) bool {
	if l.HasRole(v1alpha1.RoleControlPlane) {
		return false
	}
	return slices.ContainsFunc(l.found, func(c Certificate) bool { return c.Name == "kubelet-client" && over(c, now) }) ||
		l.Facts != nil && l.Facts.Ledger && slices.Contains(l.Facts.Present, facts.BootstrapConf)
}

// beyond warns where certificates cannot be valid for as long as is wanted.
func (p *prepared) beyond(looks []*certLook, now time.Time) (list diag.List) {
	told := map[string]bool{}
	for _, l := range looks {
		for _, c := range l.found {
			if !c.CA || c.Expires.IsZero() || over(c, now) || told[c.Name] || now.Add(p.env.Validity()).Before(c.Expires) {
				continue
			}
			told[c.Name] = true
			list = append(list, diag.Diagnostic{
				ID: idBeyondAuthority, Severity: diag.Warning, Host: l.Name,
				Message: fmt.Sprintf("certificates are to be valid for %s, and the authority %s ends on %s: no longer than that", p.env.Validity(), c.Name, c.Expires.Format(time.DateOnly)),
				Hint:    "an authority is not renewed, but exchanged for another: plan for it",
			})
		}
	}
	return list
}

// renewed says what was renewed.
func (p *prepared) renewed(res *Result) []string {
	files, on := 0, map[string]bool{}
	for _, s := range p.plan.Steps {
		for _, c := range s.Changes {
			if (c.Kind == op.KindRenewal || c.Kind == op.KindCertificate) && !res.isUndone(s.Host) {
				files++
				on[s.Host] = true
			}
		}
	}
	out := []string{strconv.Itoa(files) + " certificates renewed on " + count(len(on), "host")}
	if files == 1 {
		out[0] = "1 certificate renewed"
	}
	if again := slices.DeleteFunc(slices.Clone(p.wish.Readmit), res.isUndone); len(again) > 0 {
		out = append(out, count(len(again), "kubelet")+" let in again")
	}
	if slices.ContainsFunc(p.plan.Steps, func(s plan.Step) bool { return s.Task == "record.kubeconfig" }) {
		out = append(out, "The admin kubeconfig kept here is new; copies of the old one are worth something until it ends")
	}
	return out
}

// unrecorded refuses to renew what has not come to run.
func unrecorded(recorded *v1alpha1.Cluster) error {
	if created(recorded) || recorded == nil {
		return nil
	}
	return refused(idNotCreated, "cluster "+recorded.Name+" has not come to run yet",
		"go on with: slipway resume "+recorded.Name+"; or change its file, and: slipway apply -f FILE")
}
