package ssh_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/node/wire"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/remote/remotetest"
	"slipway.dev/slipway/internal/remote/ssh"
)

// keyFile writes a private key, encrypted if there is a passphrase.
func keyFile(t testing.TB, dir, passphrase string) (string, gossh.PublicKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var block *pem.Block
	if passphrase == "" {
		block, err = gossh.MarshalPrivateKey(private, "")
	} else {
		block, err = gossh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "id_ed25519")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return path, signer.PublicKey()
}

func secretFile(t *testing.T, text string) *v1alpha1.SecretSource {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.SecretSource{File: path}
}

func testOptions(t testing.TB) remote.Options {
	t.Helper()
	home := t.TempDir()
	return remote.Options{Home: home, KnownHosts: filepath.Join(home, "slipway", "known_hosts"), Timeout: 20 * time.Second}
}

// checkHandler is a helper whose hosts are as wanted.
func checkHandler(wire.Fetcher) wire.Handler {
	return remotetest.Handler{OnCheck: func(_ context.Context, ops op.List) []op.Result {
		out := make([]op.Result, len(ops))
		for i, o := range ops {
			out[i] = op.Result{Kind: o.Kind(), Target: o.Target(), Status: op.Unchanged}
		}
		return out
	}}
}

func checkHost(t *testing.T, h remote.Host) {
	t.Helper()
	got, err := h.Check(t.Context(), op.List{op.SwapOff{}})
	if err != nil || len(got) != 1 || got[0].Status != op.Unchanged {
		t.Errorf("Check: %v, %v", got, err)
	}
}

// checkRefusal checks that err is a *remote.Error for h1, with a cause and a remedy.
func checkRefusal(t *testing.T, err error, reason remote.Reason, says string) {
	t.Helper()
	var e *remote.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is %T: %v", err, err)
	}
	if e.Reason != reason || e.Host != "h1" || e.Remedy == "" || !strings.Contains(e.Error(), says) {
		t.Errorf("the error of %q is %s: %q; want %s and %q", e.Host, e.Reason, e.Error(), reason, says)
	}
	if strings.Contains(e.Error(), "hunter2") {
		t.Errorf("the error tells a secret: %q", e.Error())
	}
}

func TestLogin_ExplainsFailures(t *testing.T) {
	dir := t.TempDir()
	plain, plainPub := keyFile(t, filepath.Join(dir, "plain"), "")
	locked, lockedPub := keyFile(t, filepath.Join(dir, "locked"), "sesame")
	other, _ := keyFile(t, filepath.Join(dir, "other"), "")
	free := remotetest.Sudo{Allowed: true}
	s := remotetest.StartServer(t, remotetest.Config{
		Machine: remotetest.Machine{Handler: checkHandler},
		Users: []remotetest.User{
			{Name: "root", Keys: []gossh.PublicKey{plainPub, lockedPub}, Password: "hunter2"},
			{Name: "keys", Keys: []gossh.PublicKey{plainPub}, Sudo: free},
			{Name: "same", Password: "hunter2", Sudo: remotetest.Sudo{Allowed: true, Password: "hunter2"}},
			{Name: "own", Password: "hunter2", Sudo: remotetest.Sudo{Allowed: true, Password: "hunter2-sudo"}},
			{Name: "tty", Password: "hunter2", Sudo: remotetest.Sudo{Allowed: true, Password: "hunter2", RequireTTY: true}},
			{Name: "freetty", Keys: []gossh.PublicKey{plainPub}, Sudo: remotetest.Sudo{Allowed: true, RequireTTY: true}},
			{Name: "wants", Keys: []gossh.PublicKey{plainPub}, Sudo: remotetest.Sudo{Allowed: true, Password: "x"}},
			{Name: "never", Password: "hunter2", Sudo: remotetest.Sudo{Password: "hunter2"}},
			{Name: "bare", Keys: []gossh.PublicKey{plainPub}, Sudo: remotetest.Sudo{Missing: true}},
		},
		MaxSessions: 1,
	})
	no := false
	tests := map[string]struct {
		reason string
		login  v1alpha1.SSH
		refuse remote.Reason // "" succeeds
		says   string
	}{
		"key": {"the plain case", v1alpha1.SSH{PrivateKeyFile: plain}, "", ""},
		"encrypted key": {
			"its passphrase comes from a source",
			v1alpha1.SSH{PrivateKeyFile: locked, PassphraseFrom: secretFile(t, "sesame")},
			"", "",
		},
		"no passphrase": {
			"an encrypted key alone is of no use",
			v1alpha1.SSH{PrivateKeyFile: locked},
			remote.KeyUnreadable, "is encrypted; set ssh.passphraseFrom",
		},
		"wrong passphrase": {
			"said before anything is dialled",
			v1alpha1.SSH{PrivateKeyFile: locked, PassphraseFrom: secretFile(t, "hunter2")},
			remote.KeyUnreadable, "the passphrase does not decrypt",
		},
		"missing key": {"named by path", v1alpha1.SSH{PrivateKeyFile: filepath.Join(dir, "none")}, remote.KeyUnreadable, "no such file"},
		"public key": {
			"a common mistake",
			v1alpha1.SSH{PrivateKeyFile: secretFile(t, "ssh-ed25519 AAAA").File},
			remote.KeyUnreadable, "is not a private key",
		},
		"key refused": {
			"says which key was tried",
			v1alpha1.SSH{PrivateKeyFile: other},
			remote.AuthFailed,
			"rejects the key of " + other + " SHA256:",
		},
		"nothing":            {"no agent, no key files", v1alpha1.SSH{}, remote.KeyUnreadable, "no login method is available"},
		"password":           {"inline", v1alpha1.SSH{Password: "hunter2"}, "", ""},
		"password from file": {"by reference", v1alpha1.SSH{PasswordFrom: secretFile(t, "hunter2")}, "", ""},
		"wrong password": {
			"the cause, not the protocol",
			v1alpha1.SSH{PasswordFrom: secretFile(t, "hunter22")},
			remote.AuthFailed, "rejects the password",
		},
		"password missing": {
			"the source is named",
			v1alpha1.SSH{PasswordFrom: &v1alpha1.SecretSource{File: "/no/such"}},
			remote.SecretUnreadable, "the password cannot be read",
		},
		"key then password": {
			"a key that is refused does not hide the password",
			v1alpha1.SSH{PrivateKeyFile: other, PasswordFrom: secretFile(t, "hunter2")},
			"", "",
		},
		"sudo":                {"without a password", v1alpha1.SSH{User: "keys", PrivateKeyFile: plain}, "", ""},
		"sudo login password": {"that of the login", v1alpha1.SSH{User: "same", PasswordFrom: secretFile(t, "hunter2")}, "", ""},
		"sudo own password": {
			"its own",
			v1alpha1.SSH{User: "own", PasswordFrom: secretFile(t, "hunter2"), SudoPasswordFrom: secretFile(t, "hunter2-sudo")},
			"", "",
		},
		"sudo's missing": {
			"not asked in vain",
			v1alpha1.SSH{User: "own", PasswordFrom: secretFile(t, "hunter2"), SudoPasswordFrom: &v1alpha1.SecretSource{File: "/no/such"}},
			remote.SecretUnreadable, "the sudo password cannot be read",
		},
		"sudo wrong password": {
			"given once",
			v1alpha1.SSH{User: "own", PasswordFrom: secretFile(t, "hunter2")},
			remote.SudoFailed, "sudo rejects the password of own",
		},
		"sudo terminal": {
			"on the one session that the server allows",
			v1alpha1.SSH{User: "tty", PasswordFrom: secretFile(t, "hunter2")},
			"", "",
		},
		"sudo free terminal": {"no password, a terminal", v1alpha1.SSH{User: "freetty", PrivateKeyFile: plain}, "", ""},
		"sudo terminal, wrong": {
			"on a terminal the prompt comes with the output",
			v1alpha1.SSH{User: "tty", PasswordFrom: secretFile(t, "hunter2"), SudoPasswordFrom: secretFile(t, "hunter22")},
			remote.SudoFailed, "sudo rejects the password of tty",
		},
		"sudo wants password": {
			"there is none",
			v1alpha1.SSH{User: "wants", PrivateKeyFile: plain},
			remote.SudoFailed,
			"sudo needs a password from wants; set ssh.sudoPasswordFrom",
		},
		"not a sudoer": {
			"whatever the password",
			v1alpha1.SSH{User: "never", PasswordFrom: secretFile(t, "hunter2")},
			remote.SudoFailed, "never is not allowed to use sudo",
		},
		"no sudo": {"not installed", v1alpha1.SSH{User: "bare", PrivateKeyFile: plain}, remote.SudoFailed, "sudo is not installed"},
		"sudo off": {
			"not root, and told not to be",
			v1alpha1.SSH{User: "keys", PrivateKeyFile: plain, Sudo: &no},
			remote.SudoFailed, "keys is not root",
		},
	}
	t.Setenv("SSH_AUTH_SOCK", "")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
			h, err := d.Connect(t.Context(), s.HostWith("h1", tt.login), testOptions(t))
			if tt.refuse != "" {
				checkRefusal(t, err, tt.refuse, tt.says)
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			checkHost(t, h)
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLogin_AnswersPrompts(t *testing.T) {
	s := remotetest.StartServer(t, remotetest.Config{
		Machine: remotetest.Machine{Handler: checkHandler}, Interactive: true,
		Users: []remotetest.User{{Name: "root", Password: "hunter2"}},
	})
	d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	h, err := d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{Password: "hunter2"}), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Close()
	_, err = d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{Password: "hunter22"}), testOptions(t))
	checkRefusal(t, err, remote.AuthFailed, "rejects the password")
	path, _ := keyFile(t, t.TempDir(), "")
	_, err = d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path}), testOptions(t))
	checkRefusal(t, err, remote.AuthFailed, "rejects the key")
}

// The usual key of a user has a passphrase, which only the agent or a setting can give.
func TestLogin_SaysHowToUseEncryptedKey(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	opts := testOptions(t)
	path, _ := keyFile(t, filepath.Join(opts.Home, ".ssh"), "sesame")
	d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	_, err := d.Connect(t.Context(), v1alpha1.Host{Name: "h1", Address: "192.0.2.1"}, opts)
	checkRefusal(t, err, remote.KeyUnreadable, "add the key to your SSH agent (`ssh-add "+path+"`)")
}

func TestLogin_UsesTheAgent(t *testing.T) {
	_, pub := keyFile(t, t.TempDir(), "")
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keyring := agent.NewKeyring()
	socket := serveAgent(t, keyring)
	signer, err := gossh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	s := remotetest.StartServer(t, remotetest.Config{
		Machine: remotetest.Machine{Handler: checkHandler},
		Users:   []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub, signer.PublicKey()}}},
	})
	yes := true
	connect := func(login v1alpha1.SSH) error {
		d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
		h, err := d.Connect(t.Context(), s.HostWith("h1", login), testOptions(t))
		if err == nil {
			err = h.Close()
		}
		return err
	}
	t.Setenv("SSH_AUTH_SOCK", socket)
	checkRefusal(t, connect(v1alpha1.SSH{Agent: &yes}), remote.KeyUnreadable, "has no key")
	if err := keyring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	if err := connect(v1alpha1.SSH{Agent: &yes}); err != nil {
		t.Error(err)
	}
	if err := connect(v1alpha1.SSH{}); err != nil {
		t.Errorf("without any setting: %v", err)
	}
	locked, _ := keyFile(t, t.TempDir(), "sesame")
	checkRefusal(t, connect(v1alpha1.SSH{PrivateKeyFile: locked}), remote.KeyUnreadable, "is encrypted")
	block, err := gossh.MarshalPrivateKeyWithPassphrase(private, "", []byte("sesame"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(locked, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := connect(v1alpha1.SSH{PrivateKeyFile: locked}); err != nil {
		t.Errorf("an encrypted key that the agent holds: %v", err)
	}
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(t.TempDir(), "gone"))
	checkRefusal(t, connect(v1alpha1.SSH{Agent: &yes}), remote.KeyUnreadable, "does not answer")
	t.Setenv("SSH_AUTH_SOCK", "")
	checkRefusal(t, connect(v1alpha1.SSH{Agent: &yes}), remote.KeyUnreadable, "SSH_AUTH_SOCK is not set")
}

func TestLogin_TriesDefaultKeys(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	opts := testOptions(t)
	_, pub := keyFile(t, filepath.Join(opts.Home, ".ssh"), "")
	s := remotetest.StartServer(t, remotetest.Config{
		Machine: remotetest.Machine{Handler: checkHandler},
		Users:   []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}},
	})
	d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	for _, file := range []string{"", "~/.ssh/id_ed25519"} {
		h, err := d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: file}), opts)
		if err != nil {
			t.Fatalf("key %q: %v", file, err)
		}
		_ = h.Close()
	}
}

func TestConnect_ExplainsUnreachableHosts(t *testing.T) {
	path, pub := keyFile(t, t.TempDir(), "")
	login := v1alpha1.SSH{PrivateKeyFile: path}
	users := []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	deaf := remotetest.StartServer(t, remotetest.Config{Deaf: true})
	mute := remotetest.StartServer(t, remotetest.Config{Users: users})
	mute.SetDown(true)
	web := remotetest.StartServer(t,
		remotetest.Config{Users: users, Noise: "hello, I am no shell\n", Machine: remotetest.Machine{Answer: "noexec"}})
	endless := remotetest.StartServer(t, remotetest.Config{Users: users, Noise: strings.Repeat("yes\n", 200_000)})
	tests := map[string]struct {
		reason string
		host   v1alpha1.Host
		is     remote.Reason
		says   string
	}{
		"refused": {
			"nothing listens",
			v1alpha1.Host{Name: "h1", Address: "127.0.0.1", SSH: v1alpha1.SSH{Port: closed, PrivateKeyFile: path}},
			remote.Unreachable, "refuses the connection",
		},
		"deaf": {"a server that says nothing", deaf.HostWith("h1", login), remote.Unreachable, "did not answer within 1s"},
		"hung up": {
			"tried again, then said", mute.HostWith("h1", login), remote.Unreachable,
			"closed the connection before it identified itself",
		},
		"noexec":  {"no directory for programs", web.HostWith("h1", login), remote.NoExec, "mounted noexec"},
		"endless": {"start-up files that print without end", endless.HostWith("h1", login), remote.HelperFailed, "prints too much output"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			opts := testOptions(t)
			if name == "deaf" {
				opts.Timeout = time.Second
			}
			d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
			_, err := d.Connect(t.Context(), tt.host, opts)
			checkRefusal(t, err, tt.is, tt.says)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
		if _, err := d.Connect(ctx, deaf.HostWith("h1", login), testOptions(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled connect: %v", err)
		}
	})
}

func TestConnect_WorksOnUnusualHosts(t *testing.T) {
	path, pub := keyFile(t, t.TempDir(), "")
	tests := map[string]struct {
		reason  string
		machine remotetest.Machine
		noise   string
		arch    string
		is      remote.Reason
		says    string
	}{
		"noise": {
			"banners and start-up files print",
			remotetest.Machine{Handler: checkHandler},
			strings.Repeat("Welcome!\r\n", 1000) + "no line end", "", "", "",
		},
		"plain": {"a host without gzip", remotetest.Machine{Handler: checkHandler, Plain: true}, "", "", "", ""},
		"arm":   {"the helper for its architecture", remotetest.Machine{Handler: checkHandler, Arch: "aarch64"}, "", "arm64", "", ""},
		"other arch": {
			"the file says otherwise",
			remotetest.Machine{Arch: "aarch64"},
			"", "amd64", remote.WrongArch,
			"the host's architecture is arm64, but the cluster file has amd64; write arch: arm64",
		},
		"odd arch": {"no helper for it", remotetest.Machine{Arch: "riscv64"}, "", "", remote.WrongArch, "riscv64"},
		"broken":   {"the helper is stopped from running", remotetest.Machine{Answer: "broken"}, "", "", remote.NoExec, "SELinux"},
		"corrupt": {
			"the helper does not arrive whole",
			remotetest.Machine{Answer: "corrupt"},
			"", "",
			remote.HelperFailed, "did not arrive completely",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := remotetest.StartServer(t,
				remotetest.Config{Machine: tt.machine, Noise: tt.noise, Users: []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}}})
			host := s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path})
			host.Arch = tt.arch
			d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
			h, err := d.Connect(t.Context(), host, testOptions(t))
			if tt.is != "" {
				checkRefusal(t, err, tt.is, tt.says)
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			checkHost(t, h)
			_ = h.Close()
		})
	}
}

func TestConnect_GoesThroughABastion(t *testing.T) {
	path, pub := keyFile(t, t.TempDir(), "")
	users := []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}, {Name: "jump", Password: "hunter2"}}
	inner := remotetest.StartServer(t, remotetest.Config{Machine: remotetest.Machine{Handler: checkHandler}, Users: users})
	outer := remotetest.StartServer(t, remotetest.Config{Users: users})
	via := &v1alpha1.Bastion{Address: "127.0.0.1", Port: outer.Port(), User: "jump", PasswordFrom: secretFile(t, "hunter2")}
	d := &ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	opts := testOptions(t)

	var wg sync.WaitGroup
	hosts := make(chan remote.Host, 20)
	for range cap(hosts) {
		wg.Go(func() {
			h, err := d.Connect(t.Context(), inner.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path, Bastion: via}), opts)
			if err != nil {
				t.Error(err)
				return
			}
			checkHost(t, h)
			hosts <- h
		})
	}
	wg.Wait()
	close(hosts)
	if n := outer.LoginCount(); n != 1 {
		t.Errorf("%d logins to the bastion for 20 hosts at once", n)
	}
	for h := range hosts {
		_ = h.Close()
	}
	kept, err := os.ReadFile(opts.KnownHosts)
	if n := strings.Count(string(kept), "\n"); err != nil || n != 2 {
		t.Errorf("%d host keys kept for two servers, %v", n, err)
	}

	wrong := *via
	wrong.PasswordFrom = secretFile(t, "hunter22")
	_, err = d.Connect(t.Context(), inner.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path, Bastion: &wrong}), opts)
	checkRefusal(t, err, remote.AuthFailed, "the bastion: jump@")
	far := v1alpha1.Host{Name: "h1", Address: "127.0.0.1", SSH: v1alpha1.SSH{Port: 1, PrivateKeyFile: path, Bastion: via}}
	_, err = d.Connect(t.Context(), far, opts)
	checkRefusal(t, err, remote.Unreachable, "the bastion cannot reach 127.0.0.1:1")
}

func TestDialFromHost_ReachesTheTarget(t *testing.T) {
	path, pub := keyFile(t, t.TempDir(), "")
	s := remotetest.StartServer(t,
		remotetest.Config{
			Machine: remotetest.Machine{Handler: checkHandler},
			Users:   []remotetest.User{{Name: "root", Keys: []gossh.PublicKey{pub}}},
		})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}
	}()
	d := ssh.Dialer{Helper: remotetest.FakeHelper(t)}
	h, err := d.Connect(t.Context(), s.HostWith("h1", v1alpha1.SSH{PrivateKeyFile: path}), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	conn, err := h.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}
