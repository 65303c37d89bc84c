package ssh_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/remote/ssh"
)

func TestHostKeys_AreVerified(t *testing.T) {
	path, pub := keyFile(t, t.TempDir(), "")
	start := func(t *testing.T) *remotetest.Server {
		return remotetest.StartServer(t, remotetest.Config{
			Machine: remotetest.Machine{Handler: checkHandler},
			Users:   []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}},
		})
	}
	connect := func(t *testing.T, s *remotetest.Server, hostKey string, opts remote.Options) error {
		d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
		h, err := d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path, HostKey: hostKey}), opts)
		if err == nil {
			err = h.Close()
		}
		return err
	}
	line := func(s *remotetest.Server, key gossh.PublicKey) string {
		return knownhosts.Line([]string{fmt.Sprintf("[127.0.0.1]:%d", s.Port())}, key)
	}
	write := func(t *testing.T, opts remote.Options, text string) string {
		t.Helper()
		file := filepath.Join(opts.Home, ".ssh", "known_hosts")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}

	t.Run("first use is kept, a change refused", func(t *testing.T) {
		s, opts := start(t), testOptions(t)
		if err := connect(t, s, "", opts); err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(opts.KnownHosts)
		if err != nil || strings.TrimSpace(string(kept)) != line(s, s.HostKey()) {
			t.Errorf("kept: %q, %v", kept, err)
		}
		if info, err := os.Stat(opts.KnownHosts); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if err := connect(t, s, "", opts); err != nil {
			t.Fatal(err)
		}
		was := gossh.FingerprintSHA256(s.HostKey())
		s.SetHostKey(remotetest.NewKey(t))
		err = connect(t, s, "", opts)
		checkRefusal(t, err, remote.HostKeyChanged, "remove line 1 of "+opts.KnownHosts)
		checkRefusal(t, err, remote.HostKeyChanged, "expected ssh-ed25519 "+was)
		checkRefusal(t, err, remote.HostKeyChanged, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
	})
	t.Run("without a file an unknown key is refused", func(t *testing.T) {
		s, opts := start(t), testOptions(t)
		opts.KnownHosts = ""
		checkRefusal(t, connect(t, s, "", opts), remote.HostKeyUnknown, gossh.FingerprintSHA256(s.HostKey()))
	})
	t.Run("the user's known_hosts comes first", func(t *testing.T) {
		s, opts := start(t), testOptions(t)
		file := write(t, opts, "# mine\n\nnonsense line\n"+line(s, remotetest.NewKey(t).PublicKey())+"\n")
		checkRefusal(t, connect(t, s, "", opts), remote.HostKeyChanged, "line 4 of "+file)
		hashed := knownhosts.HashHostname(fmt.Sprintf("[127.0.0.1]:%d", s.Port()))
		write(t, opts, hashed+" "+strings.SplitN(line(s, s.HostKey()), " ", 2)[1]+"\n")
		if err := connect(t, s, "", opts); err != nil {
			t.Errorf("a hashed entry: %v", err)
		}
		write(t, opts, "@revoked "+line(s, s.HostKey())+"\n")
		checkRefusal(t, connect(t, s, "", opts), remote.HostKeyChanged, "is revoked in")
		if _, err := os.Stat(opts.KnownHosts); !errors.Is(err, os.ErrNotExist) {
			t.Error("a key that the user knows is kept again")
		}
	})
	t.Run("a revoked key is refused wherever it is known", func(t *testing.T) {
		s, opts := start(t), testOptions(t)
		file := write(t, opts, line(s, s.HostKey())+"\n@revoked * "+strings.SplitN(line(s, s.HostKey()), " ", 2)[1]+"\n")
		checkRefusal(t, connect(t, s, "", opts), remote.HostKeyChanged, "is revoked in line 2 of "+file)
		checkRefusal(t, connect(t, s, gossh.FingerprintSHA256(s.HostKey()), opts), remote.HostKeyChanged, "is revoked in line 2 of "+file)
		checkRefusal(t, connect(t, s, string(gossh.MarshalAuthorizedKey(s.HostKey())), opts), remote.HostKeyChanged,
			"is revoked in line 2 of "+file)
		write(t, opts, "@revoked * "+strings.TrimSpace(string(gossh.MarshalAuthorizedKey(remotetest.NewKey(t).PublicKey()))))
		if err := connect(t, s, "", opts); err != nil {
			t.Errorf("another key is revoked: %v", err)
		}
	})
	t.Run("a file that cannot be read is not an empty one", func(t *testing.T) {
		s, opts := start(t), testOptions(t)
		if err := os.MkdirAll(filepath.Join(opts.Home, ".ssh", "known_hosts"), 0o700); err != nil {
			t.Fatal(err)
		}
		checkRefusal(t, connect(t, s, "", opts), remote.HostKeyUnknown, "the known host keys cannot be read")
		checkRefusal(t, connect(t, s, gossh.FingerprintSHA256(s.HostKey()), opts), remote.HostKeyUnknown, "make the file readable")
	})
	t.Run("another type is known", func(t *testing.T) {
		s, opts := start(t), testOptions(t)
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := gossh.NewSignerFromKey(private)
		if err != nil {
			t.Fatal(err)
		}
		write(t, opts, line(s, signer.PublicKey()))
		checkRefusal(t, connect(t, s, "", opts), remote.HostKeyChanged, "no longer has a key of the known type")
	})
	t.Run("pinned by the file", func(t *testing.T) {
		s, opts := start(t), testOptions(t)
		right := strings.TrimSpace(string(gossh.MarshalAuthorizedKey(s.HostKey())))
		wrong := strings.TrimSpace(string(gossh.MarshalAuthorizedKey(remotetest.NewKey(t).PublicKey())))
		write(t, opts, line(s, remotetest.NewKey(t).PublicKey())) // the pin is stronger
		for _, pin := range []string{right, right + " comment", gossh.FingerprintSHA256(s.HostKey())} {
			if err := connect(t, s, pin, opts); err != nil {
				t.Errorf("pin %q: %v", pin, err)
			}
		}
		checkRefusal(t, connect(t, s, wrong, opts), remote.HostKeyChanged, "does not match ssh.hostKey")
		checkRefusal(t, connect(t, s, "SHA256:"+strings.Repeat("A", 43), opts), remote.HostKeyChanged,
			"it has ssh-ed25519 "+gossh.FingerprintSHA256(s.HostKey()))
		checkRefusal(t, connect(t, s, "no key", opts), remote.HostKeyUnknown, "neither a public key nor a fingerprint")
	})
}
