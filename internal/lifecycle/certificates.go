package lifecycle

import (
	"cmp"
	"context"
	"errors"
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
	// Name is what it is: apiserver, etcd-peer, admin.conf.
	Name    string `json:"name"`
	Path    string `json:"path"`
	Subject string `json:"subject"`
	// Authority is who has signed it: itself, if it is one.
	Authority string    `json:"authority"`
	CA        bool      `json:"ca,omitempty"`
	Begins    time.Time `json:"begins,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	// SecondsLeft is how long it is valid yet; less than 0 is that it is not.
	SecondsLeft int64 `json:"secondsLeft"`
	// Rotates says that who uses it gets another one in time, by itself.
	Rotates bool `json:"rotates,omitempty"`
	// External says that the user has brought it, and looks after it.
	External bool `json:"external,omitempty"`
	// Problem is why it is of no use, whatever its time.
	Problem string `json:"problem,omitempty"`
	// NoKey says that it is an authority that can sign nothing: its key is not
	// on this host, and should be.
	NoKey bool `json:"noKey,omitempty"`
	// Beside is how many other authorities are trusted with one, while it is
	// exchanged.
	Beside int `json:"beside,omitempty"`
	// Due says that something is to be done about it.
	Due bool `json:"due"`
}

// Certificates are all of a cluster, as its hosts have them.
type Certificates struct {
	Name    string             `json:"name"`
	Verdict CertificateVerdict `json:"verdict"`
	Summary string             `json:"summary"` // the verdict in one line
	// Warnings are what is wrong, hosts that could not be asked among them.
	Warnings diag.List `json:"warnings"`
	// Certificates come soonest first.
	Certificates []Certificate `json:"certificates"`
	// Automatic is what hosts do about them by themselves; none if that is
	// switched off.
	Automatic []AutoRenewal `json:"automatic"`
	// Unasked are the hosts that could not be asked.
	Unasked []string `json:"unasked"`
	// Next is what to type now.
	Next string `json:"next"`
}

// A CertificateVerdict is how certificates are in one word.
type CertificateVerdict string

// The verdicts.
const (
	CertificatesFine    CertificateVerdict = "fine"
	CertificatesExpire  CertificateVerdict = "expiring" // or something else is wrong with one
	CertificatesExpired CertificateVerdict = "expired"
	CertificatesUnknown CertificateVerdict = "unknown" // hosts could not be asked; the others' are fine
)

// Certificates looks at the certificates on every host. Those count that end
// within a time; 0 is the usual one.
func (s *service) Certificates(ctx context.Context, r Request, within time.Duration, progress event.Sink) (*Certificates, error) {
	c, err := s.described(ctx, r)
	if err != nil {
		return nil, err
	}
	ctx, l, done, err := s.look(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	l.lookAt(ctx, s.looks.host, progress, func(ctx context.Context, h *hostLook) {
		if h.certs, h.err = l.certificates(ctx, h); h.err == nil {
			h.auto, h.err = l.autoRenewal(ctx, h)
		}
	})
	out := &Certificates{Name: c.Name, Warnings: diag.List{}, Certificates: []Certificate{}, Automatic: []AutoRenewal{}, Unasked: []string{}}
	warn := func(id, host, hint, format string, args ...any) {
		out.Warnings = append(out.Warnings, diag.Diagnostic{ID: id, Severity: diag.Warning, Host: host, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	for _, h := range l.hosts {
		out.Certificates = append(out.Certificates, h.certs...)
		if h.auto != nil {
			out.Automatic = append(out.Automatic, *h.auto)
		}
		if h.err != nil {
			d := why(h.err)
			warn(cmp.Or(d.ID, idNodeNotReady), h.spec.Name, d.Hint, "%s", d.Message)
			out.Unasked = append(out.Unasked, h.spec.Name)
		}
	}
	sortCertificates(out.Certificates)
	certificateJudge{cluster: c.Name, now: s.Now(), validity: l.env.Validity(), within: within}.all(out.Certificates, warn)
	out.conclude(within, out.judgeAutoRenewals(s.Now(), certs.LooksEvery(l.env), warn))
	return out, nil
}

// described is the cluster that a request is about, as its file or else the
// record describes it, with all that a file leaves open. One that has not come to
// run has no certificates to speak of.
func (s *service) described(ctx context.Context, r Request) (*v1alpha1.Cluster, error) {
	if r.Cluster == nil {
		c, err := s.Cluster(ctx, r.Name)
		return c, errors.Join(err, unrecorded(c))
	}
	recorded, err := s.record(r.Cluster.Name)
	if err != nil {
		return nil, err
	}
	return s.asRecorded(r.Cluster, recorded), nil
}

// certificates are those that a host is to have, as they were found there. One
// that may be missing, and is, is left out.
func (l *looker) certificates(ctx context.Context, h *hostLook) ([]Certificate, error) {
	known := certs.Of(l.env, h.spec)
	found, err := certs.Ask(ctx, h.conn, known)
	if err != nil {
		return nil, err
	}
	var out []Certificate
	for i, st := range found {
		if st.Missing && known[i].Optional {
			continue
		}
		c := asFound(known[i], st)
		c.Host, c.SecondsLeft = h.spec.Name, int64(st.Ends.Sub(l.svc.Now())/time.Second)
		if st.Ends.IsZero() {
			c.SecondsLeft = 0
		}
		out = append(out, c)
	}
	return out, nil
}

// asFound is one that is to be there, as it was found.
func asFound(k certs.Known, st op.CertificateState) Certificate {
	c := Certificate{Name: k.Name, Path: k.Path, Subject: st.Subject, Authority: st.Issuer, CA: k.Authority, Begins: st.Begins, Expires: st.Ends, Rotates: k.Rotates, External: k.Theirs}
	keyMatters := !k.KeyElsewhere && !k.Authority
	switch {
	case st.Missing:
		c.Problem = "it is missing"
	case st.Problem != "":
		c.Problem = "it cannot be read: " + st.Problem
	case st.Foreign:
		c.Problem = "the authority on this host has not signed it: " + k.CA
	case keyMatters && st.NoKey:
		c.Problem = "its key is missing"
	case !k.KeyElsewhere && st.OtherKey:
		c.Problem = "the key beside it is that of another"
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
	// soon is when a certificate's end is warned of, if the last fifth of its
	// time is not shorter; to have another authority takes longer.
	soon   = 30 * 24 * time.Hour
	soonCA = 90 * 24 * time.Hour
	// soonPart is that fifth, and latePart the part of its time in which a
	// certificate that is renewed by who uses it ought to have been.
	soonPart, latePart = 5, 20
)

// certificateJudge says which certificates are something to be told of.
type certificateJudge struct {
	cluster string
	now     time.Time
	// validity is how long certificates are made for; within, if not 0, how
	// long before its end each is told of.
	validity, within time.Duration
}

// ahead is how long before its end a certificate is told of.
func (j certificateJudge) ahead(c Certificate) time.Duration {
	life := c.Expires.Sub(c.Begins)
	switch {
	case c.Rotates:
		return life / latePart
	case j.within > 0:
		return j.within
	case c.CA:
		return min(soonCA, life/soonPart)
	}
	if j.validity > 0 { // kubeadm has them begin with their authority
		life = min(life, j.validity)
	}
	return min(soon, life/soonPart)
}

// rotationOf is what exchanges the authority in a file.
func rotationOf(file string) string {
	switch file {
	case certs.AuthorityCert:
		return certs.Cluster
	case module.EtcdCA:
		return certs.Etcd
	}
	return certs.FrontProxy
}

// all warns of those that end, or are of no use, and marks them. An authority is
// on many hosts, and told of once.
func (j certificateJudge) all(list []Certificate, warn warner) {
	told := map[string]bool{}
	for i := range list {
		c := &list[i]
		if c.Problem != "" {
			c.Due = true
			warn(idCertificateUnusable, c.Host, "", "%s: %s", c.Path, c.Problem)
		}
		if c.NoKey {
			c.Due = true
			warn(idAuthorityNoKey, c.Host, "put it back from a backup, or from another host that has it",
				"the authority %s is without its key: nothing can be renewed under it", c.Path)
		}
		if c.Beside > 0 && !c.External && !told[c.Path] {
			c.Due, told[c.Path] = true, true
			warn(idExchangeUnfinished, c.Host, "go on with it: slipway certs rotate-ca "+j.cluster+" --which "+rotationOf(c.Path),
				"%s has %d authorities in it: one is being exchanged for another, and both count", c.Path, c.Beside+1)
		}
		left := c.Expires.Sub(j.now)
		if c.Expires.IsZero() || left >= j.ahead(*c) && left >= 0 {
			continue
		}
		c.Due = true
		if same := c.Subject + c.Expires.String(); c.CA {
			if told[same] {
				continue
			}
			told[same] = true
		}
		also, hint := j.advice(*c)
		word := "expires"
		if left < 0 {
			word = "expired"
		}
		warn(idCertificateExpires, c.Host, hint, "%s %s on %s%s", c.Path, word, c.Expires.Format(time.DateOnly), also)
	}
}

// advice is what else ends with a certificate, and what to do about it.
func (j certificateJudge) advice(c Certificate) (also, hint string) {
	switch {
	case c.External:
		hint = "you have brought it: have another one made, put it where spec.etcd.external of the file names it, and: slipway apply -f FILE"
	case c.CA:
		also = ", and with it all that this authority has signed, on all hosts"
		hint = "an authority is not renewed, but exchanged for another: plan for it"
	case c.Rotates && c.Expires.After(j.now):
		also = "; its kubelet should have renewed it by now"
		hint = "see why not: slipway exec " + j.cluster + "@" + c.Host + " --sudo -- journalctl -u kubelet -n 30 --no-pager"
	default:
		hint = "renew it: slipway certs renew " + j.cluster
	}
	return also, hint
}

// conclude says it in one word, one line, and one command. unattended are hosts
// that do not look after their own.
func (c *Certificates) conclude(within time.Duration, unattended int) {
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
	all := count(len(c.Certificates), "certificate")
	c.Next = "slipway certs check " + c.Name + " --within 2160h"
	switch {
	case expired > 0:
		c.Verdict, c.Summary = CertificatesExpired, fmt.Sprintf("%d of %s have expired", expired, all)
		if more := due - expired; more > 0 {
			c.Summary += fmt.Sprintf(", and %d more want something done", more)
		}
	case due > 0:
		c.Verdict, c.Summary = CertificatesExpire, fmt.Sprintf("%d of %s end soon, or are of no use", due, all)
	case unattended > 0:
		c.Verdict, c.Summary = CertificatesExpire, "all "+all+" are valid, and on "+count(unattended, "host")+" nobody renews them"
		c.Next = "slipway apply " + c.Name
	case len(c.Unasked) > 0:
		c.Verdict, c.Summary = CertificatesUnknown, "hosts could not be asked: "+strings.Join(c.Unasked, ", ")
		c.Next = "slipway precheck " + c.Name
	default:
		c.Verdict, c.Summary = CertificatesFine, "all "+all+" are valid"
		if len(c.Certificates) > 0 {
			first := c.Certificates[0]
			c.Summary += ", the first of them until " + first.Expires.Format(time.DateOnly)
		}
	}
	if renewable > 0 {
		c.Next = "slipway certs renew " + c.Name
		if within > 0 {
			c.Next += " --within " + within.String()
		}
	}
}
