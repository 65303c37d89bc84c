package spec

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// selfSignedPair is a certificate that signs itself, valid for a day from begin, and its
// key.
func selfSignedPair(t *testing.T, begin time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd-client"},
		NotBefore: begin, NotAfter: begin.Add(24 * time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

func TestExternalEtcd_RefusesUnusableFiles(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	cert, key := selfSignedPair(t, now.Add(-time.Hour))
	old, oldKey := selfSignedPair(t, now.Add(-25*time.Hour))
	early, earlyKey := selfSignedPair(t, now.Add(time.Hour))
	for _, tc := range []struct {
		name, reason  string
		ca, cert, key string
		mode          os.FileMode
		want          []string
	}{
		{name: "fit", reason: "nothing is said", ca: cert, cert: cert, key: key, mode: 0o600},
		{
			name: "another's key", reason: "every API server would fail to start", ca: cert, cert: cert, key: oldKey,
			mode: 0o600, want: []string{"certificate-unfit spec.etcd.external.keyFile"},
		},
		{
			name: "expired", reason: "the members would refuse it", ca: old, cert: old, key: oldKey, mode: 0o600,
			want: []string{"certificate-unfit spec.etcd.external.caFile", "certificate-unfit spec.etcd.external.certFile"},
		},
		{
			name: "not yet valid", reason: "a clock is wrong", ca: cert, cert: early, key: earlyKey, mode: 0o600,
			want: []string{"certificate-unfit spec.etcd.external.certFile"},
		},
		{
			name: "a key for a certificate", reason: "files are mixed up easily", ca: key, cert: cert, key: key,
			mode: 0o600, want: []string{"certificate-unfit spec.etcd.external.caFile"},
		},
		{
			name: "missing", reason: "what cannot be read is said before anything is touched", cert: cert, key: key,
			mode: 0o600, want: []string{"file-missing spec.etcd.external.caFile"},
		},
		{
			name: "open key", reason: "others may read it", ca: cert, cert: cert, key: key, mode: 0o644,
			want: []string{"file-permissions spec.etcd.external.keyFile"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"ca.crt": tc.ca, "client.crt": tc.cert, "client.key": tc.key} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), tc.mode); err != nil {
					t.Fatal(err)
				}
			}
			c := &v1alpha1.Cluster{}
			c.Spec.Etcd.External = &v1alpha1.ExternalEtcd{CAFile: "ca.crt", CertFile: "client.crt", KeyFile: "client.key"}
			var got []string
			for _, d := range CheckFiles(c, Paths{Dir: dir, Now: now}) {
				got = append(got, d.ID+" "+d.Path)
				if strings.Contains(d.String(), "PRIVATE") {
					t.Errorf("a key is printed: %s", d)
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// TestExternalEtcd_KeepsItsData: members of an external etcd may move, the cluster's data may
// not.
func TestExternalEtcd_KeepsItsData(t *testing.T) {
	for _, tc := range []struct {
		name, old, new, want string
	}{
		{"the same", "https://a:1 https://b:1", "https://b:1 https://a:1", ""},
		{"a member moves", "https://a:1 https://b:1", "https://b:1 https://c:1", ""},
		{"all are others", "https://a:1 https://b:1", "https://c:1", "immutable-field"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := func(endpoints string) *v1alpha1.Cluster {
				c := &v1alpha1.Cluster{}
				c.Spec.Etcd = v1alpha1.Etcd{Type: EtcdExternal, External: &v1alpha1.ExternalEtcd{Endpoints: strings.Fields(endpoints)}}
				return c
			}
			got := ""
			for _, d := range FindForbiddenChanges(cluster(tc.old), cluster(tc.new)) {
				got += d.ID
			}
			if got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

// Hosts log in to copy targets with a private key, which they must be able to use.
func TestCopyTargets_NeedUsableKeys(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"open":   "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
		"locked": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "public": "ssh-ed25519 AAAA\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Validate reports the missing name
	for file, want := range map[string]string{
		"open": "", "locked": idKeyUnreadable, "public": idKeyUnreadable,
		"none": idSecretUnreadable, "": "",
	} {
		c := &v1alpha1.Cluster{}
		c.Spec.Etcd.Backup = &v1alpha1.EtcdBackup{Copies: []v1alpha1.EtcdCopy{
			{Name: "nas", Directory: "/mnt/nas"},
			{Name: "vault", SSH: &v1alpha1.SSHCopy{PrivateKeyFrom: &v1alpha1.SecretSource{File: file}}},
		}}
		got := ""
		for _, d := range CheckFiles(c, Paths{Dir: dir}) {
			if got += d.ID; d.Path != "spec.etcd.backup.copies[1].ssh.privateKeyFrom" || strings.Contains(d.String(), "AAAA") {
				t.Errorf("%s", d)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
		if err := MakePathsAbsolute(c, Paths{Dir: dir}); file != "" &&
			(err != nil || c.Spec.Etcd.Backup.Copies[1].SSH.PrivateKeyFrom.File != filepath.Join(dir, file)) {
			t.Errorf("%s is not made absolute: %v", file, err)
		}
	}
}
