package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pipeline"
	"slipway.dev/slipway/internal/plan"
)

// Renewal selects the certificates to renew.
type Renewal = module.Renewal

// CertificateNames returns the names of the certificates that can be renewed.
func CertificateNames() []string { return certs.RenewableNames() }

// unknownNames refuses unknown certificate names.
func unknownNames(names []string) error {
	var list diag.List
	for _, name := range names {
		if slices.Contains(certs.RenewableNames(), name) {
			continue
		}
		hint := diag.DidYouMean(name, certs.RenewableNames())
		if hint == "" {
			hint = "list the names: slipway certs check"
		}
		list = append(list,
			diag.Diagnostic{ID: idUnknownCertificate, Severity: diag.Error, Message: fmt.Sprintf("unknown certificate %q", name), Hint: hint})
	}
	return list.Err()
}

// A RenewCertsRequest asks to renew certificates of a saved cluster.
type RenewCertsRequest struct {
	Name string
	Options
	// Renewal selects the certificates.
	Renewal
}

func (r RenewCertsRequest) shared() sharedRequest {
	return sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options}
}

func (r RenewCertsRequest) behaviour() behaviour { return renewCerts(r.Renewal) }

// A renewing is a renewal of certificates: which ones, on which hosts.
type renewing struct{ wish certs.RenewalRequest }

// renewCerts renews certificates.
func renewCerts(r Renewal) behaviour {
	w := &renewing{wish: certs.RenewalRequest{Renewal: r}}
	b := usual()
	b.wanted = func(_ context.Context, p *prepared) (*v1alpha1.Cluster, bool, error) {
		return p.recorded.DeepCopy(), true, errors.Join(unrecorded(p.recorded), unknownNames(w.wish.Names))
	}
	b.observe = w.observe
	b.pipeline = func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.RenewCerts(p.env, parts, w.wish), nil
	}
	b.summary = w.renewed
	b.save = func(_ *prepared, o *v1alpha1.OperationParameters) {
		is := w.wish.Renewal
		o.Certificates, o.AllCertificates, o.Within = is.Names, is.All, metav1.Duration{Duration: is.Within}
	}
	b.resume = func(o *v1alpha1.OperationParameters) {
		w.wish.Renewal = Renewal{All: o.AllCertificates, Within: o.Within.Duration, Names: o.Certificates}
	}
	return b
}

// A certLook has the certificates of one host.
type certLook struct {
	*engine.Host
	found     []inspect.Certificate
	concerned bool // something would be renewed on it
	err       error
}

// observe determines what to renew, from which the pipeline is built. It does not use the
// API.
func (w *renewing) observe(ctx context.Context, p *prepared) error {
	w.wish.Continues = p.continues != nil
	var looks []*certLook
	for _, h := range p.hosts {
		looks = append(looks, &certLook{Host: h})
	}
	hostconn.ForEach(looks, func(l *certLook) { l.err = l.queryCerts(ctx, p.env, w.wish) })
	now := p.svc.Now()
	for _, l := range looks {
		if l.err != nil {
			return fmt.Errorf("checking the certificates of %s: %w", l.Name, l.err)
		}
		if l.concerned {
			w.wish.Concerned = append(w.wish.Concerned, l.Name)
		}
		w.wish.Lapsed = w.wish.Lapsed || l.lapsed(now)
		if l.readmit(now) {
			w.wish.Readmit = append(w.wish.Readmit, l.Name)
		}
	}
	p.findings = append(p.findings, warnBeyondAuthority(looks, now, p.env.CertValidity())...)
	return nil
}

// queryCerts reads the certificates of a host and determines whether any would be renewed. The
// plan reports certificates that cannot be renewed.
func (l *certLook) queryCerts(ctx context.Context, env module.Env, w certs.RenewalRequest) error {
	known := certs.ExpectedCerts(env, l.Host.Host)
	states, err := certs.QueryCerts(ctx, l.Conn, known)
	if err != nil {
		return err
	}
	for i, st := range states {
		l.found = append(l.found, inspect.NewCertificate(known[i], st))
	}
	results, err := l.Conn.Check(ctx, w.PreviewRenewal(env, l.Host.Host))
	l.concerned = slices.ContainsFunc(results, func(r op.Result) bool { return r.Status == op.Changed })
	return err
}

// over reports whether a certificate exists and has expired.
func over(c inspect.Certificate, now time.Time) bool {
	return !c.Expires.IsZero() && now.After(c.Expires)
}

// lapsed reports whether a host cannot work or be checked because a certificate of etcd,
// or of the kubelet on a control plane, has expired.
func (l *certLook) lapsed(now time.Time) bool {
	return slices.ContainsFunc(l.found, func(c inspect.Certificate) bool {
		etcds := slices.Contains([]string{"etcd-server", "etcd-peer", "etcd-healthcheck-client"}, c.Name)
		return over(c, now) && (etcds || c.Name == "kubelet-client" && l.HasRole(v1alpha1.RoleControlPlane))
	})
}

// readmit reports whether a worker's kubelet needs new credentials from the cluster,
// because its certificate has expired and the host has no CA key, or because an earlier
// attempt to get them was interrupted.
func (l *certLook) readmit(now time.Time) bool {
	if l.HasRole(v1alpha1.RoleControlPlane) {
		return false
	}
	return slices.ContainsFunc(l.found, func(c inspect.Certificate) bool { return c.Name == "kubelet-client" && over(c, now) }) ||
		l.Facts != nil && l.Facts.Ledger && slices.Contains(l.Facts.Present, facts.BootstrapConf)
}

// warnBeyondAuthority warns if certificates cannot be valid for the configured time.
func warnBeyondAuthority(looks []*certLook, now time.Time, valid time.Duration) (list diag.List) {
	told := map[string]bool{}
	for _, l := range looks {
		for _, c := range l.found {
			if !c.CA || c.Expires.IsZero() || over(c, now) || told[c.Name] || now.Add(valid).Before(c.Expires) {
				continue
			}
			told[c.Name] = true
			list = append(list, diag.Diagnostic{
				ID: idBeyondAuthority, Severity: diag.Warning, Host: l.Name,
				Message: fmt.Sprintf("certificates are configured to be valid for %s, but CA %s expires on %s: "+
					"certificates that it signs expire then too",
					valid, c.Name, c.Expires.Format(time.DateOnly)),
				Hint: "plan a rotation of the CA: a CA cannot be renewed",
			})
		}
	}
	return list
}

// renewed describes what was renewed.
func (w *renewing) renewed(_ context.Context, p *prepared, res *Result) []string {
	files, on := 0, map[string]bool{}
	for _, s := range p.plan.Steps {
		for _, c := range s.Changes {
			if (c.Kind == op.KindRenewCertificate || c.Kind == op.KindCertificate) && !res.isUndone(s.Host) {
				files++
				on[s.Host] = true
			}
		}
	}
	out := []string{strconv.Itoa(files) + " certificates renewed on " + count(len(on), "host")}
	if files == 1 {
		out[0] = "1 certificate renewed"
	}
	if again := slices.DeleteFunc(slices.Clone(w.wish.Readmit), res.isUndone); len(again) > 0 {
		out = append(out, count(len(again), "kubelet")+" with new credentials")
	}
	if slices.ContainsFunc(p.plan.Steps, func(s plan.Step) bool { return s.Task == "record.kubeconfig" }) {
		out = append(out, "The saved admin kubeconfig was renewed; copies of the old one are valid until it expires")
	}
	return out
}

// unrecorded refuses a cluster whose creation has not finished.
func unrecorded(recorded *v1alpha1.Cluster) error {
	if savedstate.IsCreated(recorded) || recorded == nil {
		return nil
	}
	return diag.Refuse(idNotCreated, "cluster "+recorded.Name+" is not running yet: its creation has not finished",
		"finish the creation: slipway resume "+recorded.Name)
}
