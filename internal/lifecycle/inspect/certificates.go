package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
)

// Certificate is a certificate on a host.
type Certificate struct {
	Host string `json:"host"`
	// Name identifies the certificate: apiserver, etcd-peer, admin.conf.
	Name    string `json:"name"`
	Path    string `json:"path"`
	Subject string `json:"subject"`
	// Authority is the issuer; for a CA certificate, the CA itself.
	Authority string    `json:"authority"`
	CA        bool      `json:"ca,omitempty"`
	Begins    time.Time `json:"begins,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	// SecondsLeft is the remaining validity; negative if the certificate has expired.
	SecondsLeft int64 `json:"secondsLeft"`
	// Rotates reports whether its user renews it automatically.
	Rotates bool `json:"rotates,omitempty"`
	// External reports whether the user provides and maintains it.
	External bool `json:"external,omitempty"`
	// Problem is the reason why it cannot be used, apart from its validity.
	Problem string `json:"problem,omitempty"`
	// NoKey reports whether it is a CA that cannot sign, because its key is missing on
	// this host.
	NoKey bool `json:"noKey,omitempty"`
	// Beside is the number of other CAs in the same file, during a CA rotation.
	Beside int `json:"beside,omitempty"`
	// Due reports whether the certificate needs an action.
	Due bool `json:"due"`
}

// Certificates describes all certificates on the hosts of a cluster.
type Certificates struct {
	Name    string             `json:"name"`
	Verdict CertificateVerdict `json:"verdict"`
	Summary string             `json:"summary"` // the verdict in one line
	// Warnings are the problems, including hosts that could not be queried.
	Warnings diag.List `json:"warnings"`
	// Certificates are sorted by their expiry, earliest first.
	Certificates []Certificate `json:"certificates"`
	// Automatic is the automatic renewal of each host; empty if it is switched off.
	Automatic []AutoRenewal `json:"automatic"`
	// Unasked are the hosts that could not be queried.
	Unasked []string `json:"unasked"`
	// Next is the next command.
	Next string `json:"next"`
}

// A CertificateVerdict is the state of certificates in one word.
type CertificateVerdict string

// The verdicts.
const (
	CertificatesFine    CertificateVerdict = "fine"
	CertificatesExpire  CertificateVerdict = "expiring" // or there is another problem
	CertificatesExpired CertificateVerdict = "expired"
	CertificatesUnknown CertificateVerdict = "unknown" // hosts could not be queried; the certificates of all others are fine
)

// CheckCertificates returns the certificates on every host of a cluster. It warns about certificates that
// expire within a time; 0 selects the default.
func (in *Inspector) CheckCertificates(ctx context.Context, c *v1alpha1.Cluster, within time.Duration,
	progress event.Sink,
) (*Certificates, error) {
	ctx, s, done, err := in.StartSession(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	s.QueryHosts(ctx, in.Limits.Host, progress, func(ctx context.Context, h *Host) {
		if h.certificates, h.Err = s.readCertificates(ctx, h); h.Err == nil {
			h.autoRenewal, h.Err = s.readAutoRenewal(ctx, h)
		}
	})
	out := &Certificates{Name: c.Name, Warnings: diag.List{}, Certificates: []Certificate{}, Automatic: []AutoRenewal{}, Unasked: []string{}}
	warn := warnInto(&out.Warnings)
	for _, h := range s.Hosts {
		out.Certificates = append(out.Certificates, h.certificates...)
		if h.autoRenewal != nil {
			out.Automatic = append(out.Automatic, *h.autoRenewal)
		}
		if h.Err != nil {
			h.warnUnreachable(idNodeNotReady, warn)
			out.Unasked = append(out.Unasked, h.Spec.Name)
		}
	}
	sortCertificates(out.Certificates)
	certificateCheck{cluster: c.Name, now: in.c.Now(), validity: s.Env.CertValidity(), within: within}.evaluate(out.Certificates, warn)
	out.setVerdict(within, out.evaluateAutoRenewals(in.c.Now(), certs.CheckInterval(s.Env), warn))
	return out, nil
}

// readCertificates returns the certificates that a host should have, as found there. It
// leaves out optional certificates that are missing.
func (s *Session) readCertificates(ctx context.Context, h *Host) ([]Certificate, error) {
	known := certs.ExpectedCerts(s.Env, h.Spec)
	found, err := certs.QueryCerts(ctx, h.Conn, known)
	if err != nil {
		return nil, err
	}
	var out []Certificate
	for i, st := range found {
		if st.Missing && known[i].Optional {
			continue
		}
		c := NewCertificate(known[i], st)
		c.Host, c.SecondsLeft = h.Spec.Name, int64(st.Ends.Sub(s.in.c.Now())/time.Second)
		if st.Ends.IsZero() {
			c.SecondsLeft = 0
		}
		out = append(out, c)
	}
	return out, nil
}

// NewCertificate returns an expected certificate as it was found.
func NewCertificate(k certs.Known, st op.CertificateState) Certificate {
	c := Certificate{
		Name: k.Name, Path: k.Path, Subject: st.Subject, Authority: st.Issuer, CA: k.Authority,
		Begins: st.Begins, Expires: st.Ends, Rotates: k.Rotates, External: k.Theirs,
	}
	keyMatters := !k.KeyElsewhere && !k.Authority
	switch {
	case st.Missing:
		c.Problem = "it is missing"
	case st.Problem != "":
		c.Problem = "it cannot be read: " + st.Problem
	case st.Foreign:
		c.Problem = "it was not signed by the CA on this host: " + k.CA
	case keyMatters && st.NoKey:
		c.Problem = "its key is missing"
	case !k.KeyElsewhere && st.OtherKey:
		c.Problem = "its key belongs to another certificate"
	}
	c.NoKey = k.Authority && !k.KeyElsewhere && st.NoKey
	if !k.Theirs {
		c.Beside = st.Beside
	}
	return c
}

func sortCertificates(list []Certificate) {
	slices.SortStableFunc(list, func(a, b Certificate) int { return a.Expires.Compare(b.Expires) })
}

const (
	// soon is how long before its expiry a certificate is warned about, unless the
	// last fifth of its lifetime is shorter. soonCA is the same for a CA, whose
	// rotation takes longer.
	soon   = 30 * 24 * time.Hour
	soonCA = 90 * 24 * time.Hour
	// soonPart is that fifth. latePart is the last part of the lifetime, in which a
	// certificate that is renewed automatically should have been renewed already.
	soonPart, latePart = 5, 20
)

// certificateCheck decides which certificates to warn about.
type certificateCheck struct {
	cluster string
	now     time.Time
	// validity is the validity of new certificates. within, if not 0, is how long
	// before its expiry a certificate is warned about.
	validity, within time.Duration
}

// warningTime returns how long before its expiry a certificate is warned about.
func (j certificateCheck) warningTime(c Certificate) time.Duration {
	life := c.Expires.Sub(c.Begins)
	switch {
	case c.Rotates:
		return life / latePart
	case j.within > 0:
		return j.within
	case c.CA:
		return min(soonCA, life/soonPart)
	}
	if j.validity > 0 { // kubeadm makes certificates begin with their CA
		life = min(life, j.validity)
	}
	return min(soon, life/soonPart)
}

// rotationName returns the name of the rotation of the CA in a file.
func rotationName(file string) string {
	switch file {
	case certs.AuthorityCert:
		return certs.Cluster
	case module.EtcdCA:
		return certs.Etcd
	}
	return certs.FrontProxy
}

// evaluate warns about certificates that expire soon or cannot be used, and marks them. A CA
// is on many hosts and is reported once.
func (j certificateCheck) evaluate(list []Certificate, warn warnFunc) {
	told := map[string]bool{}
	for i := range list {
		c := &list[i]
		if c.Problem != "" {
			c.Due = true
			warn(idCertificateUnusable, c.Host, "", "%s: %s", c.Path, c.Problem)
		}
		if c.NoKey {
			c.Due = true
			warn(idAuthorityNoKey, c.Host, "restore the key from a backup or from another host that has it",
				"the key of CA %s is missing: its certificates cannot be renewed", c.Path)
		}
		if c.Beside > 0 && !c.External && !told[c.Path] {
			c.Due, told[c.Path] = true, true
			warn(idExchangeUnfinished, c.Host, "continue the rotation: slipway certs rotate-ca "+j.cluster+" --which "+rotationName(c.Path),
				"%s contains %d CAs: a CA rotation is unfinished, and all of them are trusted", c.Path, c.Beside+1)
		}
		left := c.Expires.Sub(j.now)
		if c.Expires.IsZero() || left >= j.warningTime(*c) && left >= 0 {
			continue
		}
		c.Due = true
		if same := c.Subject + c.Expires.String(); c.CA {
			if told[same] {
				continue
			}
			told[same] = true
		}
		also, hint := j.adviseOn(*c)
		word := "expires"
		if left < 0 {
			word = "expired"
		}
		warn(idCertificateExpires, c.Host, hint, "%s %s on %s%s", c.Path, word, c.Expires.Format(time.DateOnly), also)
	}
}

// adviseOn returns the consequence of a certificate's expiry and what to do about it.
func (j certificateCheck) adviseOn(c Certificate) (also, hint string) {
	switch {
	case c.External:
		hint = "get a new certificate from its issuer, save it at the path that spec.etcd.external of the file names, " +
			"then run: slipway apply -f FILE"
	case c.CA:
		also = "; after that date, all certificates of this CA, on all hosts, are invalid"
		hint = "plan a rotation of the CA: a CA cannot be renewed"
	case c.Rotates && c.Expires.After(j.now):
		also = "; its kubelet should have renewed it by now"
		hint = "find the cause: slipway exec " + j.cluster + "@" + c.Host + " --sudo -- journalctl -u kubelet -n 30 --no-pager"
	default:
		hint = "renew it: slipway certs renew " + j.cluster
	}
	return also, hint
}

// setVerdict sets the verdict, the summary and the next command. unattended is the number
// of hosts whose automatic renewal does not work.
func (c *Certificates) setVerdict(within time.Duration, unattended int) {
	expired, due, renewable := 0, 0, 0
	for _, cert := range c.Certificates {
		if !cert.Due {
			continue
		}
		due++
		if !cert.Expires.IsZero() && cert.SecondsLeft < 0 {
			expired++
		}
		if over := cert.SecondsLeft < 0; !cert.CA && !cert.External && !cert.Expires.IsZero() && cert.Problem == "" && (over || !cert.Rotates) {
			renewable++
		}
	}
	all := countOf(len(c.Certificates), "certificate")
	c.Next = "slipway certs check " + c.Name + " --within 2160h"
	switch {
	case expired > 0:
		c.Verdict, c.Summary = CertificatesExpired, fmt.Sprintf("%d of %s have expired", expired, all)
		if more := due - expired; more > 0 {
			c.Summary += fmt.Sprintf("; further certificates that need attention: %d", more)
		}
	case due > 0:
		c.Verdict = CertificatesExpire
		c.Summary = fmt.Sprintf("certificates that expire soon or cannot be used: %d of %d", due, len(c.Certificates))
	case unattended > 0:
		c.Verdict, c.Summary = CertificatesExpire, "all "+all+" are valid, but the automatic renewal does not work on "+
			countOf(unattended, "host")
		c.Next = "slipway apply " + c.Name
	case len(c.Unasked) > 0:
		c.Verdict, c.Summary = CertificatesUnknown, "hosts could not be queried: "+strings.Join(c.Unasked, ", ")
		c.Next = "slipway precheck " + c.Name
	default:
		c.Verdict, c.Summary = CertificatesFine, "all "+all+" are valid"
		if len(c.Certificates) > 0 {
			first := c.Certificates[0]
			c.Summary += "; the earliest expires on " + first.Expires.Format(time.DateOnly)
		}
	}
	if renewable > 0 {
		c.Next = "slipway certs renew " + c.Name
		if within > 0 {
			c.Next += " --within " + within.String()
		}
	}
}
