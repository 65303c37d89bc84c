package kubeconfig

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

var (
	begins = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ends   = begins.AddDate(1, 0, 0)
)

// TestVerify_AcceptsOnlyCertificatesOfRecordedCA: root on a control plane can write
// anything into its kubeconfig, but Verify returns only certificates of the recorded CA.
func TestVerify_AcceptsOnlyCertificatesOfRecordedCA(t *testing.T) {
	ca, other := pkitest.NewAuthority(t, "kubernetes", begins, ends), pkitest.NewAuthority(t, "kubernetes", begins, ends)
	renewed := ca.RenewCA(t, ends.AddDate(1, 0, 0))
	cert, key := ca.IssueCertificate(t, "kubernetes-admin", ends)
	foreign, foreignKey := other.IssueCertificate(t, "kubernetes-admin", ends)
	conf := func(ca, cert, key string) string {
		return pkitest.MakeKubeconfig("https://api.prod.internal:6443", ca, "", cert, key)
	}
	good := conf(ca.Cert, cert, key)
	after := func(line, more string) string { return strings.Replace(good, line, line+more, 1) }
	for _, tc := range []struct {
		name, text string
		known, cas string
		wantCA     string // "" is a refusal
		want       string // part of the error
	}{
		{"recorded CA", good, ca.Cert, "", ca.Cert, ""},
		{"no CA recorded", good, "", "", ca.Cert, ""},
		{"text around the PEM blocks", conf("x\n"+ca.Cert+"y\n", "x\n"+cert, "x\n"+key), ca.Cert, "", ca.Cert, ""},
		{"the recorded CA renewed with its key", conf(renewed, cert, key), ca.Cert, "", renewed, ""},
		{"both CAs trusted in a rotation", conf(other.Cert+ca.Cert, cert, key), other.Cert + ca.Cert, "", other.Cert + ca.Cert, ""},
		{"the next CA alone at its end", conf(other.Cert, foreign, foreignKey), other.Cert + ca.Cert, "", other.Cert, ""},
		{"an unknown CA next to the recorded one", conf(ca.Cert+other.Cert, cert, key), ca.Cert, "", ca.Cert, ""},
		{"CAs of this manager's rotation", good, ca.Cert, other.Cert + ca.Cert, other.Cert + ca.Cert, ""},
		{"another CA", conf(other.Cert, foreign, foreignKey), ca.Cert, "", "", "its CA is neither"},
		{"another CA's certificate", conf(ca.Cert+other.Cert, foreign, foreignKey), ca.Cert, "", "", "not signed by"},
		{"another certificate's key", conf(ca.Cert, cert, foreignKey), ca.Cert, "", "", "no key"},
		{"no key", conf(ca.Cert, cert, "x"), ca.Cert, "", "", "no key"},
		{"a certificate that is none", conf(ca.Cert, "x", key), ca.Cert, "", "", "client certificate"},
		{"no certificate", conf(ca.Cert, "", ""), ca.Cert, "", "", "no client certificate"},
		{"CA without a certificate", conf("x", cert, key), ca.Cert, "", "", "CA"},
		{"the CA as a client", conf(ca.Cert, ca.Cert, ca.Key), other.Cert, "", "", "its CA is neither"},
		{"too long", good + strings.Repeat("#\n", maxAdmin/2), ca.Cert, "", "", "limit"},
		{"not YAML", "\x00", ca.Cert, "", "", "not a kubeconfig"},
		{"another kind", strings.Replace(good, "Config", "Pod", 1), ca.Cert, "", "", "not a Config"},
		{"no context", strings.Replace(good, "current-context: someone@prod", "", 1), ca.Cert, "", "", "no current context"},
		{
			"a program",
			after("  user:\n",
				"    exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, canary]}\n"),
			ca.Cert, "", ca.Cert, "",
		},
		{"an auth provider", after("  user:\n", "    auth-provider: {name: oidc, config: {canary: x}}\n"), ca.Cert, "", ca.Cert, ""},
		{
			"files", after("  user:\n", "    tokenFile: /canary\n    client-certificate: /canary\n    client-key: /canary\n"),
			ca.Cert, "", ca.Cert, "",
		},
		{
			"credentials", after("  user:\n", "    token: canary\n    username: canary\n    password: canary\n    as: canary\n"),
			ca.Cert, "", ca.Cert, "",
		},
		{
			"a proxy",
			after("- cluster:\n", "    proxy-url: http://canary\n    insecure-skip-tls-verify: true\n    certificate-authority: /canary\n"),
			ca.Cert, "", ca.Cert, "",
		},
		{"names", strings.ReplaceAll(good, "prod", "canary"), ca.Cert, "", ca.Cert, ""},
		{"extensions", good + "extensions: [{name: canary, extension: {}}]\npreferences: {colors: true}\n", ca.Cert, "", ca.Cert, ""},
		{"another user", strings.Replace(good, "users:\n", "users:\n- name: canary\n  user: {token: canary}\n", 1), ca.Cert, "", ca.Cert, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Untrusted{Text: []byte(tc.text), CAs: []byte(tc.cas)}.Verify([]byte(tc.known))
			if tc.wantCA == "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrOtherCA) != strings.HasPrefix(tc.want, "its CA is") {
					t.Errorf("got %v, want an error with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantCert, wantKey := cert, key
			if tc.wantCA == other.Cert {
				wantCert, wantKey = foreign, foreignKey
			}
			want := Admin{CA: []byte(tc.wantCA), Certificate: []byte(wantCert), Key: []byte(wantKey)}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			wantUsableAdmin(t, got)
		})
	}
}

// wantUsableAdmin checks that an Admin from a host keeps the promises of Verify.
func wantUsableAdmin(t *testing.T, a Admin) {
	t.Helper()
	if a.Cluster != "" || a.Server != "" || a.TLSServerName != "" {
		t.Errorf("the result has a name or a server of the host: %+v", a)
	}
	cert, err := pki.ParseCertificate(a.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.ParseKey(a.Key)
	if err != nil || !pki.IsPair(cert, key) || !isSignedByAny(cert, a.CA) {
		t.Errorf("certificate, key and CA do not belong together: %v", err)
	}
	a.Cluster, a.Server = "prod", "https://192.0.2.11:6443"
	text, err := a.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "canary") {
		t.Errorf("the result contains text of the host:\n%s", text)
	}
	again, err := ParseAdmin(text)
	if d := cmp.Diff(a, again); err != nil || d != "" {
		t.Errorf("the written file is read with other content: %v\n%s", err, d)
	}
}

// TestParseAdmin_AcceptsOnlyFilesThatSlipwayWrites: Slipway saves and merges only its own
// form of a kubeconfig, and passes only that form to kubectl.
func TestParseAdmin_AcceptsOnlyFilesThatSlipwayWrites(t *testing.T) {
	text, err := Admin{
		Cluster: "prod", Server: "https://192.0.2.11:6443", TLSServerName: "api.prod.internal",
		CA: []byte("a"), Certificate: []byte("b"), Key: []byte("c"),
	}.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	after := func(line, more string) string { return strings.Replace(good, line, line+more, 1) }
	for _, tc := range []struct {
		name, text string
		ok         bool
	}{
		{"what is written", good, true},
		{"as older versions wrote it", good + "preferences: {}\n", true},
		{"a program", after("  user:\n", "    exec: {command: sh}\n"), false},
		{"an auth provider", after("  user:\n", "    auth-provider: {name: oidc}\n"), false},
		{"a file with a token", after("  user:\n", "    tokenFile: /x\n"), false},
		{"a token", after("  user:\n", "    token: x\n"), false},
		{"a file with a certificate", after("  user:\n", "    client-certificate: /x\n"), false},
		{"a file with a key", after("  user:\n", "    client-key: /x\n"), false},
		{"another user's rights", after("  user:\n", "    as: x\n"), false},
		{"a file with the CA", after("- cluster:\n", "    certificate-authority: /x\n"), false},
		{"a proxy", after("- cluster:\n", "    proxy-url: http://x\n"), false},
		{"no verification", after("- cluster:\n", "    insecure-skip-tls-verify: true\n"), false},
		{"http", strings.Replace(good, "https://", "http://", 1), false},
		{"a password in the URL", strings.Replace(good, "https://", "https://a:b@", 1), false},
		{"no server", strings.Replace(good, "server: https://192.0.2.11:6443", "server: ''", 1), false},
		{"no CA", strings.Replace(good, "certificate-authority-data: YQ==", "certificate-authority-data: ''", 1), false},
		{"no key", strings.Replace(good, "client-key-data: Yw==", "client-key-data: ''", 1), false},
		{"preferences", good + "preferences: {colors: true}\n", false},
		{"extensions", good + "extensions: []\n", false},
		{"a second user", strings.Replace(good, "users:\n", "users:\n- name: x\n", 1), false},
		{"a field twice", strings.Replace(good, "kind: Config\n", "kind: Config\nkind: Config\n", 1), false},
		{"nothing", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := ParseAdmin([]byte(tc.text)); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
			path := filepath.Join(t.TempDir(), "config")
			if err := Merge(t.Context(), path, Access{Cluster: "prod", Admin: []byte(tc.text)}, MergeOptions{}, nil); (err == nil) != tc.ok {
				t.Errorf("merging: %v", err)
			}
			if _, err := os.Stat(path); (err == nil) != tc.ok {
				t.Errorf("the file after merging: %v", err)
			}
		})
	}
}

// FuzzVerify: each kubeconfig of a host is refused, or gives a certificate of the
// recorded CA and nothing else. The corpus in testdata has a CA that is recorded here.
func FuzzVerify(f *testing.F) {
	known, err := os.ReadFile("testdata/ca.crt")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := Untrusted{Text: text}.Verify(known)
		if err != nil {
			return
		}
		wantUsableAdmin(t, a)
		if string(a.CA) != string(known) {
			t.Errorf("the CA differs:\n%s", a.CA)
		}
	})
}
