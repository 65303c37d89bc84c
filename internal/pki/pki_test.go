package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

var now = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// disk is files by path.
type disk map[string]string

func (d disk) readFile(path string) ([]byte, error) { return []byte(d[path]), nil }

// renewIfDue does what is due, and answers why it was.
func (d disk) renewIfDue(t *testing.T, o op.RenewCertificate, at time.Time) (string, error) {
	t.Helper()
	why, err := pki.RenewalReason(d.readFile, o, at)
	if err != nil || why == "" {
		return why, err
	}
	files, err := pki.RenewCertificate(d.readFile, o, at)
	if err != nil {
		return why, err
	}
	for _, f := range files {
		d[f.Path] = string(f.Content)
	}
	return why, nil
}

// newDisk has a certificate in each form, all made a year ago for a year but ten
// days.
func newDisk(t *testing.T) disk {
	begins, ends := now.Add(-year+10*day), now.Add(10*day)
	ca := pkitest.NewAuthority(t, "kubernetes", begins, begins.Add(10*year))
	d := disk{"ca.crt": ca.Cert, "ca.key": ca.Key}
	d["pair.crt"], d["pair.key"] = ca.IssueCertificate(t, "kube-apiserver", ends)
	cert, key := ca.IssueCertificate(t, "system:node:cp1", ends)
	d["both.pem"] = cert + key
	cert, key = ca.IssueCertificate(t, "kubernetes-admin", ends)
	d["admin.conf"] = pkitest.MakeKubeconfig("https://api:6443", ca.Cert, "", cert, key)
	return d
}

func renewalOf(path, key string) op.RenewCertificate {
	return op.RenewCertificate{
		CertificateFile: op.CertificateFile{Path: path, Key: key, CA: "ca.crt"}, CAKey: "ca.key",
		ValiditySeconds: int64(year / time.Second),
	}
}

var forms = map[string]op.RenewCertificate{
	"a pair": renewalOf("pair.crt", "pair.key"), "one file": renewalOf("both.pem", ""), "a kubeconfig": renewalOf("admin.conf", ""),
}

// Renewed, a certificate is the same but for its time, in one file, with the
// same key.
func TestRenew_KeepsKeyAndNames(t *testing.T) {
	for name, o := range forms {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			before := maps.Clone(d)
			was := pki.ReadState(d.readFile, o.CertificateFile)
			old := certificateIn(t, d[o.Path])
			if why, err := d.renewIfDue(t, o, now); err != nil || !strings.Contains(why, "expires soon") {
				t.Fatalf("why %q: %v", why, err)
			}
			for path, text := range before {
				if (d[path] != text) != (path == o.Path) {
					t.Errorf("%s changed: %t", path, d[path] != text)
				}
			}
			is := certificateIn(t, d[o.Path])
			if is.NotAfter != now.Add(year) || is.SerialNumber.Cmp(old.SerialNumber) == 0 {
				t.Errorf("it ends %s, with the number %s", is.NotAfter, is.SerialNumber)
			}
			for what, same := range map[string]bool{
				"subject": string(is.RawSubject) == string(old.RawSubject),
				"key":     string(is.RawSubjectPublicKeyInfo) == string(old.RawSubjectPublicKeyInfo),
				"names":   cmp.Equal(is.DNSNames, old.DNSNames), "addresses": cmp.Equal(is.IPAddresses, old.IPAddresses),
				"purpose": cmp.Equal(is.ExtKeyUsage, old.ExtKeyUsage) && is.KeyUsage == old.KeyUsage, "no authority": !is.IsCA,
			} {
				if !same {
					t.Errorf("%s: another than before", what)
				}
			}
			want := was
			want.Begins, want.Ends = is.NotBefore, is.NotAfter
			if d := cmp.Diff(want, pki.ReadState(d.readFile, o.CertificateFile)); d != "" {
				t.Errorf("its state (-want +got):\n%s", d)
			}
			if why, err := pki.RenewalReason(d.readFile, o, now.Add(time.Hour)); why != "" || err != nil {
				t.Errorf("it is due again: %q, %v", why, err)
			}
		})
	}
}

// certificateIn is that in a file of any form.
func certificateIn(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	if _, value, ok := strings.Cut(text, "client-certificate-data: "); ok {
		value, _, _ = strings.Cut(value, "\n")
		text = decodeBase64(t, value)
	}
	c, err := pki.ParseCertificate([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A lost or damaged key is created again, in each form.
func TestRenew_ReplacesLostKey(t *testing.T) {
	for name, change := range map[string]func(disk){
		"missing": func(d disk) { delete(d, "pair.key") }, "half": func(d disk) { d["pair.key"] = "-----BEGIN PRIV" },
		"another": func(d disk) { d["pair.key"] = d["ca.key"] },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			o := forms["a pair"]
			o.WithinSeconds = 60
			change(d)
			if why, err := d.renewIfDue(t, o, now); err != nil || why != "renew: its key has changed or is missing" {
				t.Fatalf("why %q: %v", why, err)
			}
			if _, err := tls.X509KeyPair([]byte(d["pair.crt"]), []byte(d["pair.key"])); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDue_ReturnsTheReason(t *testing.T) {
	const expired, nearly = 11 * day, "renew: it expires soon or has expired"
	for _, tc := range []struct {
		name, reason string
		change       func(disk, *op.RenewCertificate)
		after        time.Duration
		why, refused string
	}{
		{"last fifth", "73 days before the end of a year", func(disk, *op.RenewCertificate) {}, -62 * day, nearly, ""},
		{"before", "it is good for longer", func(disk, *op.RenewCertificate) {}, -64 * day, "", ""},
		{"expired", "the more so", func(disk, *op.RenewCertificate) {}, expired, nearly, ""},
		{"old authority", "kubeadm has it begin with that: only its own time counts", func(d disk, _ *op.RenewCertificate) {
			ca := pkitest.NewAuthority(t, "kubernetes", now.Add(-5*year), now.Add(5*year))
			d["ca.crt"], d["ca.key"] = ca.Cert, ca.Key
			d["pair.crt"], d["pair.key"] = ca.IssueCertificate(t, "a", now.Add(100*day))
		}, 0, "", ""},
		{"only expired", "who uses it renews it", func(_ disk, o *op.RenewCertificate) { o.Due = op.DueExpired }, 9 * day, "", ""},
		{
			"only expired, and it is", "it cannot do so any more",
			func(_ disk, o *op.RenewCertificate) { o.Due = op.DueExpired }, expired, nearly, "",
		},
		{"late", "36 days before the end of a year", func(_ disk, o *op.RenewCertificate) { o.Due = op.DueLate }, -25 * day, nearly, ""},
		{"not late", "it is worth waiting yet", func(_ disk, o *op.RenewCertificate) { o.Due = op.DueLate }, -27 * day, "", ""},
		{
			"within", "as long as that is asked for", func(_ disk, o *op.RenewCertificate) { o.WithinSeconds = 100 * 24 * 3600 },
			-89 * day, nearly, "",
		},
		{"not within", "it ends later", func(_ disk, o *op.RenewCertificate) { o.WithinSeconds = 3600 }, 0, "", ""},
		{"always", "whatever is left", func(_ disk, o *op.RenewCertificate) { o.Due = op.DueAlways }, -300 * day, "renew", ""},
		{
			"always, and just made", "it was cut off, and is gone on with",
			func(_ disk, o *op.RenewCertificate) { o.Due = op.DueAlways }, -year + 10*day + 50*time.Minute, "", "",
		},
		{"missing", "there is nothing to go by", func(d disk, _ *op.RenewCertificate) { delete(d, "pair.crt") }, expired, "", ""},
		{
			"unreadable", "it may be worth something", func(d disk, _ *op.RenewCertificate) { d["pair.crt"] = "what?" }, expired,
			"", "reading pair.crt: the file has no certificate",
		},
		{
			"authority without its key", "said before anything is touched",
			func(d disk, _ *op.RenewCertificate) { delete(d, "ca.key") }, expired, "", op.IDAuthorityNoKey,
		},
		{
			"key of another authority", "it would sign what nobody believes",
			func(d disk, _ *op.RenewCertificate) { d["ca.key"] = d["pair.key"] }, expired, "", op.IDAuthorityNoKey,
		},
		{
			"authority without its key, not due", "nothing is to be signed",
			func(d disk, _ *op.RenewCertificate) { delete(d, "ca.key") }, -100 * day, "", "",
		},
		{"another authority", "who trusts that one does not trust ours", func(d disk, _ *op.RenewCertificate) {
			ca := pkitest.NewAuthority(t, "theirs", now.Add(-year), now.Add(5*year))
			d["ca.crt"], d["ca.key"] = ca.Cert, ca.Key
		}, expired, "", op.IDCertificateForeign},
		{"authority expired", "nothing that it signs is valid", func(disk, *op.RenewCertificate) {}, 10 * year, "", op.IDAuthorityExpired},
		{"authority ends as soon", "nothing would be won", func(d disk, _ *op.RenewCertificate) {
			ca := pkitest.NewAuthority(t, "kubernetes", now.Add(-year), now.Add(10*day))
			d["ca.crt"], d["ca.key"] = ca.Cert, ca.Key
			d["pair.crt"], d["pair.key"] = ca.IssueCertificate(t, "a", now.Add(10*day))
		}, 9 * day, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDisk(t)
			o := forms["a pair"]
			tc.change(d, &o)
			why, err := pki.RenewalReason(d.readFile, o, now.Add(tc.after))
			said := ""
			var oe *op.Error
			if errors.As(err, &oe) {
				said = oe.Reason
			} else if err != nil {
				said = err.Error()
			}
			if why != tc.why && tc.refused == "" || said != tc.refused {
				t.Errorf("due: %q, refused: %q (%v), want %q, %q: %s", why, said, err, tc.why, tc.refused, tc.reason)
			}
		})
	}
}

// A certificate is never valid for longer than its CA.
func TestRenew_EndsWithItsCA(t *testing.T) {
	d := newDisk(t)
	o := forms["a pair"]
	o.ValiditySeconds = int64(100 * year / time.Second)
	if _, err := d.renewIfDue(t, o, now); err != nil {
		t.Fatal(err)
	}
	if is, ca := certificateIn(t, d["pair.crt"]), certificateIn(t, d["ca.crt"]); is.NotAfter != ca.NotAfter {
		t.Errorf("it ends %s, its authority %s", is.NotAfter, ca.NotAfter)
	}
}

func TestState_DescribesCertificates(t *testing.T) {
	d := newDisk(t)
	other := pkitest.NewAuthority(t, "other", now, now.Add(year))
	ca := certificateIn(t, d["ca.crt"])
	good := op.CertificateState{
		Path: "pair.crt", Subject: "kube-apiserver", Issuer: "kubernetes",
		Begins: ca.NotBefore, Ends: now.Add(10 * day),
	}
	for _, tc := range []struct {
		name   string
		change func(disk)
		file   op.CertificateFile
		want   func(*op.CertificateState)
	}{
		{"as it is to be", func(disk) {}, forms["a pair"].CertificateFile, func(*op.CertificateState) {}},
		{"an authority", func(disk) {}, op.CertificateFile{Path: "ca.crt", Key: "ca.key"}, func(s *op.CertificateState) {
			s.Path, s.Subject, s.Authority, s.Ends = "ca.crt", "kubernetes", true, ca.NotAfter
		}},
		{
			"an authority beside the next one", func(d disk) { d["ca.crt"] += other.Cert },
			op.CertificateFile{Path: "ca.crt", Key: "ca.key"},
			func(s *op.CertificateState) {
				s.Path, s.Subject, s.Authority, s.Ends, s.Beside = "ca.crt", "kubernetes", true, ca.NotAfter, 1
			},
		},
		{
			"missing", func(d disk) { delete(d, "pair.crt") }, forms["a pair"].CertificateFile,
			func(s *op.CertificateState) { *s = op.CertificateState{Path: "pair.crt", Missing: true} },
		},
		{"no key", func(d disk) { delete(d, "pair.key") }, forms["a pair"].CertificateFile, func(s *op.CertificateState) { s.NoKey = true }},
		{
			"the key of the next one", func(d disk) { d["ca.crt"] += other.Cert; d["ca.key"] = other.Key },
			op.CertificateFile{Path: "ca.crt", Key: "ca.key"},
			func(s *op.CertificateState) {
				s.Path, s.Subject, s.Authority, s.Ends, s.Beside, s.OtherKey, s.KeyBeside = "ca.crt", "kubernetes", true, ca.NotAfter, 1, true, true
			},
		},
		{
			"another key", func(d disk) { d["pair.key"] = other.Key }, forms["a pair"].CertificateFile,
			func(s *op.CertificateState) { s.OtherKey = true },
		},
		{
			"another authority", func(d disk) { d["ca.crt"] = other.Cert }, forms["a pair"].CertificateFile,
			func(s *op.CertificateState) { s.Foreign = true },
		},
		{"no authority to compare with", func(d disk) { delete(d, "ca.crt") }, forms["a pair"].CertificateFile, func(*op.CertificateState) {}},
		{"half", func(d disk) { d["pair.crt"] = d["pair.crt"][:100] }, forms["a pair"].CertificateFile, func(s *op.CertificateState) {
			*s = op.CertificateState{Path: "pair.crt", Problem: "the file has no certificate"}
		}},
		{
			"a kubeconfig that names files",
			func(d disk) { d["pair.crt"] = "kind: Config\nusers:\n- user: {client-certificate: /a.pem}\n" },
			forms["a pair"].CertificateFile, func(s *op.CertificateState) {
				*s = op.CertificateState{Path: "pair.crt", Missing: true}
			},
		},
		{
			"a kubeconfig of several users", func(d disk) { d["pair.crt"] = d["admin.conf"] + d["admin.conf"] },
			forms["a pair"].CertificateFile, func(s *op.CertificateState) {
				*s = op.CertificateState{Path: "pair.crt", Problem: "the kubeconfig has more than one user or cluster"}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			on := maps.Clone(d)
			tc.change(on)
			want := good
			tc.want(&want)
			if diff := cmp.Diff(want, pki.ReadState(on.readFile, tc.file)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func decodeBase64(t *testing.T, value string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Keys are read in every format that Kubernetes programs write, and a CA with any of these
// keys can sign.
func TestKey_ReadsEveryFormat(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, raw []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
	}
	der := func(raw []byte, err error) (string, []byte, error) { return "PRIVATE KEY", raw, err }
	sec1 := func(raw []byte, err error) (string, []byte, error) { return "EC PRIVATE KEY", raw, err }
	for name, tc := range map[string]struct {
		key  crypto.Signer
		text string
	}{
		"RSA as kubeadm writes it":  {small, encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(small), nil)},
		"RSA":                       {small, encode(der(x509.MarshalPKCS8PrivateKey(small)))},
		"ECDSA as a kubelet writes": {curve, encode(sec1(x509.MarshalECPrivateKey(curve)))},
		"ECDSA":                     {curve, encode(der(x509.MarshalPKCS8PrivateKey(curve)))},
		"Ed25519":                   {edwards, encode(der(x509.MarshalPKCS8PrivateKey(edwards)))},
	} {
		t.Run(name, func(t *testing.T) {
			d := disk{"ca.key": "some text before\n" + tc.text}
			template := &x509.Certificate{
				Subject: pkix.Name{CommonName: "ca"}, NotBefore: now,
				NotAfter: now.Add(10 * year), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			}
			ca, err := pki.SignCertificate(template, template, tc.key.Public(), tc.key)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := pki.ParseCertificate(ca)
			if err != nil {
				t.Fatal(err)
			}
			read, err := pki.ParseKey([]byte(d["ca.key"]))
			if err != nil || !pki.IsPair(parsed, read) {
				t.Fatalf("the key is not that of its certificate: %v", err)
			}
			leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "leaf"}, NotBefore: now, NotAfter: now.Add(day)}
			text, err := pki.SignCertificate(leaf, parsed, tc.key.Public(), read)
			if err != nil {
				t.Fatal(err)
			}
			d["ca.crt"], d["pair.crt"], d["pair.key"] = string(ca), string(text), tc.text
			if why, err := d.renewIfDue(t, renewalOf("pair.crt", "pair.key"), now.Add(23*time.Hour)); err != nil || why == "" {
				t.Fatalf("why %q: %v", why, err)
			}
			if err := certificateIn(t, d["pair.crt"]).CheckSignatureFrom(parsed); err != nil {
				t.Error(err)
			}
		})
	}
	for name, text := range map[string]string{
		"nothing":       "",
		"a certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"garbage":       "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
	} {
		if key, err := pki.ParseKey([]byte(text)); err == nil {
			t.Errorf("%s is taken for a key: %v", name, key)
		}
	}
}
