package ssh_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/remote/ssh"
)

// signCertificate signs a key; change may spoil the certificate first.
func signCertificate(t testing.TB, ca gossh.Signer, key gossh.PublicKey, kind uint32, principal string,
	change func(*gossh.Certificate),
) *gossh.Certificate {
	t.Helper()
	cert := &gossh.Certificate{
		Key: key, CertType: kind, KeyId: "id-1", ValidPrincipals: []string{principal}, ValidBefore: gossh.CertTimeInfinity,
		Permissions: gossh.Permissions{Extensions: map[string]string{"permit-pty": ""}},
	}
	if change != nil {
		change(cert)
	}
	if err := cert.SignCert(rand.Reader, ca); err != nil {
		t.Fatal(err)
	}
	return cert
}

func writeFile(t testing.TB, file string, raw []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func authorizedKey(key gossh.PublicKey) string {
	return strings.TrimSpace(string(gossh.MarshalAuthorizedKey(key)))
}

// serveAgent is an SSH agent; it returns its socket.
func serveAgent(t *testing.T, keyring agent.Agent) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(keyring, conn) }()
		}
	}()
	return socket
}

func TestHostCertificates_AreVerified(t *testing.T) {
	path, pub := keyFile(t, t.TempDir(), "")
	ca, other, host := remotetest.NewKey(t), remotetest.NewKey(t), remotetest.NewKey(t)
	hour := uint64(time.Now().Add(-time.Hour).Unix())
	tests := map[string]struct {
		reason  string
		cert    func(*gossh.Certificate)
		signer  gossh.Signer // nil: ca
		plain   bool         // the host has no certificate
		known   func(at string) string
		hostKey string
		is      remote.Reason // "" connects
		says    string
	}{
		"signed":  {reason: "nothing else is known of the host"},
		"pattern": {reason: "as OpenSSH has it", cert: func(c *gossh.Certificate) { c.ValidPrincipals = []string{"x", "127.*"} }},
		"other name": {
			reason: "the certificate of another host",
			cert:   func(c *gossh.Certificate) { c.ValidPrincipals = []string{"10.0.0.1"} }, is: remote.HostKeyUnknown,
			says: `principal "127.0.0.1" not in the set`,
		},
		"expired": {
			reason: "its time is over", cert: func(c *gossh.Certificate) { c.ValidBefore = hour },
			is: remote.HostKeyUnknown, says: "its certificate is not valid: cert has expired",
		},
		"other CA": {reason: "no line names it", signer: other, is: remote.HostKeyUnknown, says: "no authorities for hostname"},
		"of a user": {
			reason: "a user's certificate is not a host's",
			cert:   func(c *gossh.Certificate) { c.CertType = gossh.UserCert },
			is:     remote.HostKeyUnknown, says: "presented as a host key has type 1",
		},
		"none": {
			reason: "a plain key is not trusted on first use where a CA should have signed it",
			plain:  true, is: remote.HostKeyUnknown, says: "must have a host certificate from the CA in line 1 of ",
		},
		"known": {
			reason: "the plain key is known", plain: true,
			known: func(at string) string { return at + " " + authorizedKey(host.PublicKey()) },
		},
		"expired but known": {
			reason: "ssh, too, takes the plain key then",
			cert:   func(c *gossh.Certificate) { c.ValidBefore = hour },
			known:  func(at string) string { return at + " " + authorizedKey(host.PublicKey()) },
		},
		"expired, changed": {
			reason: "both reasons are said", cert: func(c *gossh.Certificate) { c.ValidBefore = hour },
			known: func(at string) string { return at + " " + authorizedKey(other.PublicKey()) },
			is:    remote.HostKeyChanged, says: "a certificate that is not valid (cert has expired)",
		},
		"revoked key": {
			reason: "the key in the certificate",
			known:  func(string) string { return "@revoked * " + authorizedKey(host.PublicKey()) },
			is:     remote.HostKeyChanged, says: "is revoked in line 2",
		},
		"revoked CA": {
			reason: "nothing that it signed counts",
			known:  func(string) string { return "@revoked * " + authorizedKey(ca.PublicKey()) }, is: remote.HostKeyChanged,
			says: "is revoked in line 2",
		},
		"pinned": {reason: "a pin names the plain key", hostKey: gossh.FingerprintSHA256(host.PublicKey())},
		"pinned to another": {
			reason: "the pin is stronger than the CA", hostKey: authorizedKey(other.PublicKey()),
			is: remote.HostKeyChanged, says: "does not match ssh.hostKey",
		},
		"known by old first": {
			reason: "a valid certificate is enough, whatever key was known",
			known:  func(at string) string { return at + " " + authorizedKey(other.PublicKey()) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := remotetest.StartServer(t, remotetest.Config{
				Machine: remotetest.Machine{Handler: checkHandler}, HostKey: host,
				Users: []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}},
			})
			if !tc.plain {
				signer := ca
				if tc.signer != nil {
					signer = tc.signer
				}
				certified, err := gossh.NewCertSigner(signCertificate(t, signer, host.PublicKey(), gossh.HostCert, "127.0.0.1", tc.cert), host)
				if err != nil {
					t.Fatal(err)
				}
				s.AddHostKey(certified)
			}
			opts := testOptions(t)
			at := fmt.Sprintf("[127.0.0.1]:%d", s.Port())
			text := "@cert-authority [127.0.0.*]:* " + authorizedKey(ca.PublicKey()) + "\n"
			if tc.known != nil {
				text += tc.known(at) + "\n"
			}
			writeFile(t, filepath.Join(opts.Home, ".ssh", "known_hosts"), []byte(text))
			d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
			h, err := d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path, HostKey: tc.hostKey}), opts)
			if tc.is != "" {
				checkRefusal(t, err, tc.is, tc.says)
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(opts.KnownHosts); !errors.Is(err, os.ErrNotExist) {
				t.Error("the key of a host that a CA has signed is kept")
			}
		})
	}
}

func TestUserCertificates_AreOffered(t *testing.T) {
	ca, other := remotetest.NewKey(t), remotetest.NewKey(t)
	s := remotetest.StartServer(t, remotetest.Config{
		Machine: remotetest.Machine{Handler: checkHandler}, Users: []remotetest.User{{Name: "root", CA: ca.PublicKey()}},
	})
	connect := func(login v1alpha1.SSH, opts remote.Options) error {
		d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
		h, err := d.Connect(t.Context(), s.HostWith("h1", login), opts)
		if err == nil {
			err = h.Close()
		}
		return err
	}
	t.Setenv("SSH_AUTH_SOCK", "")
	dir := t.TempDir()
	path, pub := keyFile(t, dir, "")
	beside := func(cert gossh.PublicKey) { writeFile(t, path+"-cert.pub", []byte(authorizedKey(cert)+" comment\n")) }
	checkRefusal(t, connect(v1alpha1.SSH{PrivateKeyFile: path}, testOptions(t)), remote.AuthFailed, "rejects the key of "+path)
	beside(signCertificate(t, ca, pub, gossh.UserCert, "root", nil))
	if err := connect(v1alpha1.SSH{PrivateKeyFile: path}, testOptions(t)); err != nil {
		t.Errorf("a certificate beside the key: %v", err)
	}
	opts := testOptions(t)
	for _, suffix := range []string{"", "-cert.pub"} {
		raw, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(opts.Home, ".ssh", "id_ed25519"+suffix), raw)
	}
	if err := connect(v1alpha1.SSH{}, opts); err != nil {
		t.Errorf("a certificate beside the usual key: %v", err)
	}
	refusals := map[string]struct {
		cert gossh.PublicKey
		says string
	}{
		"expired": {
			signCertificate(t, ca, pub, gossh.UserCert, "root", func(c *gossh.Certificate) { c.ValidBefore = 1 << 30 }),
			`certificate "id-1" of ` + gossh.FingerprintSHA256(pub) + ", valid until 2004-01-10T13:37:04Z",
		},
		"other CA": {signCertificate(t, other, pub, gossh.UserCert, "root", nil), `-cert.pub certificate "id-1" of`},
		"other key": {
			signCertificate(t, ca, other.PublicKey(), gossh.UserCert, "root", nil),
			"-cert.pub is not the certificate for the key " + path,
		},
		"of a host":  {signCertificate(t, ca, pub, gossh.HostCert, "root", nil), "-cert.pub is not a user certificate"},
		"only a key": {pub, "-cert.pub is not a user certificate"},
	}
	for name, tc := range refusals {
		t.Run(name, func(t *testing.T) {
			beside(tc.cert)
			checkRefusal(t, connect(v1alpha1.SSH{PrivateKeyFile: path}, testOptions(t)), remote.AuthFailed, tc.says)
		})
	}
	writeFile(t, path+"-cert.pub", []byte("nonsense\n"))
	checkRefusal(t, connect(v1alpha1.SSH{PrivateKeyFile: path}, testOptions(t)), remote.AuthFailed, "-cert.pub is not a certificate")

	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	keyring := agent.NewKeyring()
	if err := keyring.Add(agent.AddedKey{
		PrivateKey:  private,
		Certificate: signCertificate(t, ca, signer.PublicKey(), gossh.UserCert, "root", nil),
	}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSH_AUTH_SOCK", serveAgent(t, keyring))
	yes := true
	if err := connect(v1alpha1.SSH{Agent: &yes}, testOptions(t)); err != nil {
		t.Errorf("a certificate in the agent: %v", err)
	}
}
