package pki_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

func authority(t *testing.T) *pkitest.Authority {
	t.Helper()
	return pkitest.NewAuthority(t, "front-proxy-ca", now.Add(-year), now.Add(9*year))
}

func parseBundle(t *testing.T, text string) []pki.Authority {
	t.Helper()
	list, err := pki.ParseAuthorities([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAuthorities_ParseInOrder: a bundle has each CA once, in order, and distinguishes CAs with
// the same name.
func TestAuthorities_ParseInOrder(t *testing.T) {
	one, two := authority(t), authority(t)
	both := parseBundle(t, "what it is for\n"+one.Cert+one.Key+two.Cert+one.Cert)
	if len(both) != 3 || both[0].ID != both[2].ID || both[0].ID == both[1].ID {
		t.Fatalf("%d of them: %v", len(both), both)
	}
	if diff := cmp.Diff(one.Cert+two.Cert, string(pki.BundleCAs(both...))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if !pki.TrustsCA(both, parseBundle(t, two.Cert)[0].ID) || pki.TrustsCA(both[:1], both[1].ID) || pki.TrustsCA(nil, "") {
		t.Error("it is not known what is trusted")
	}
	for name, bad := range map[string]string{
		"nothing": "", "a key": one.Key, "no certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"half of them": one.Cert + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	} {
		if list, err := pki.ParseAuthorities([]byte(bad)); err == nil {
			t.Errorf("%s: %d authorities", name, len(list))
		}
	}
}

// TestHasSigned_FindsValidCertificates: valid certificates that a CA has signed for others are found in a text.
// The CA's own certificate, and certificates of another CA with the same name, are not.
func TestHasSigned_FindsValidCertificates(t *testing.T) {
	old, other := authority(t), authority(t)
	cert, key := old.IssueCertificate(t, "somebody", now.Add(day))
	ended, _ := old.IssueCertificate(t, "somebody", now.Add(-day))
	theirs, theirKey := other.IssueCertificate(t, "somebody", now.Add(day))
	kubeconfig := pkitest.MakeKubeconfig("https://api:6443", "", "", cert, key)
	encoded := base64.StdEncoding.EncodeToString([]byte(cert))
	for _, tc := range []struct {
		name, text string
		want       bool
	}{
		{"a certificate", cert, true},
		{"behind a key", key + cert, true},
		{
			"behind others, and what cannot be read",
			"words\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + other.Cert + theirs + cert, true,
		},
		{"before its authority", cert + old.Cert, true},
		{"a kubeconfig's user", kubeconfig, true},
		{"one of several users", pkitest.MakeKubeconfig("https://api:6443", other.Cert, "", theirs, theirKey) + kubeconfig, true},
		{"a user in JSON", `{"users":[{"name":"a","user":{"client-certificate-data":"` + encoded + `"}}]}`, true},
		{"a user in braces", "users: [{name: a, user: {client-certificate-data: " + encoded + "}}]", true},
		{"one that has ended", ended, false},
		{"a user whose certificate has ended", pkitest.MakeKubeconfig("https://api:6443", other.Cert, "", ended, key), false},
		{"another authority's", theirs, false},
		{"the authority itself", old.Cert + other.Cert, false},
		{"a kubeconfig that trusts it", pkitest.MakeKubeconfig("https://api:6443", old.Cert, "", theirs, theirKey), false},
		{"a user with a token", "users: [{name: a, user: {token: a}}]", false},
		{"nothing", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := parseBundle(t, old.Cert)[0].HasSigned([]byte(tc.text), now); got != tc.want {
				t.Errorf("it is %t", got)
			}
		})
	}
}

// TestRenew_SignsForeignCertificateOnce: a certificate of another CA is signed once by the present CA,
// with the same names and the same key.
func TestRenew_SignsForeignCertificateOnce(t *testing.T) {
	for name, o := range forms {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			o.Due = op.DueForeign
			if why, err := d.renewIfDue(t, o, now); why != "" || err != nil {
				t.Fatalf("what its authority has signed is due: %q, %v", why, err)
			}
			was, old := certificateIn(t, d[o.Path]), d["ca.crt"]
			next := pkitest.NewAuthority(t, "kubernetes", now, now.Add(10*year))
			d["ca.crt"], d["ca.key"] = next.Cert+old, next.Key
			if why, err := d.renewIfDue(t, o, now); err != nil || !strings.Contains(why, "its CA has changed") {
				t.Fatalf("why %q: %v", why, err)
			}
			is := certificateIn(t, d[o.Path])
			ca := certificateIn(t, next.Cert)
			if err := is.CheckSignatureFrom(ca); err != nil {
				t.Error(err)
			}
			if string(is.RawSubjectPublicKeyInfo) != string(was.RawSubjectPublicKeyInfo) || string(is.RawSubject) != string(was.RawSubject) {
				t.Error("it is for somebody else")
			}
			if why, err := d.renewIfDue(t, o, now); why != "" || err != nil {
				t.Errorf("it is due again: %q, %v", why, err)
			}
		})
	}
}
