//go:build long

package ssh_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
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

// TestOpenSSH_AcceptsOurLogin logs in to the real server, which checks certificates with its
// own code. It needs openssh-server, which 'make setup' does not install: its
// package starts a server on this machine. Run it with
//
//	go test -tags long -run TestOpenSSH ./internal/remote/ssh
func TestOpenSSH_AcceptsOurLogin(t *testing.T) {
	sshd := "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		t.Fatalf("%v: install openssh-server", err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ca, hostCA := remotetest.NewKey(t), remotetest.NewKey(t)
	hostKey, hostPub := keyFile(t, filepath.Join(dir, "host"), "")
	writeFile(t, hostKey+"-cert.pub", []byte(authorizedKey(signCertificate(t, hostCA, hostPub, gossh.HostCert, "127.0.0.1", nil))))
	writeFile(t, filepath.Join(dir, "ca.pub"), []byte(authorizedKey(ca.PublicKey())))
	port := freePort(t)
	config := filepath.Join(dir, "sshd_config")
	writeFile(t, config, []byte(strings.Join([]string{
		"ListenAddress 127.0.0.1", "Port " + strconv.Itoa(port), "HostKey " + hostKey, "HostCertificate " + hostKey + "-cert.pub",
		"TrustedUserCAKeys " + filepath.Join(dir, "ca.pub"), "AuthorizedKeysFile none", "PidFile none", "StrictModes no",
		"UsePAM no", "PasswordAuthentication no", "PermitRootLogin prohibit-password", "",
	}, "\n")))
	startSSHD(t, sshd, config, port)

	path, pub := keyFile(t, filepath.Join(dir, "user"), "")
	writeFile(t, path+"-cert.pub", []byte(authorizedKey(signCertificate(t, ca, pub, gossh.UserCert, me.Username, nil))))
	opts := testOptions(t)
	opts.KnownHosts = ""
	writeFile(t, filepath.Join(opts.Home, ".ssh", "known_hosts"),
		[]byte("@cert-authority [127.0.0.1]:* "+authorizedKey(hostCA.PublicKey())+"\n"))
	shell := func(login v1alpha1.SSH) error {
		login.User, login.Port = me.Username, port
		var d ssh.Dialer
		var out, errw bytes.Buffer
		code, err := d.StartShell(t.Context(), v1alpha1.Host{Name: "h1", Address: "127.0.0.1", SSH: login},
			remote.Shell{Argv: []string{"echo", "works"}, Out: &out, Err: &errw}, opts)
		if err == nil && (code != 0 || out.String() != "works\n") {
			err = fmt.Errorf("exit code %d, output %q, %q", code, out.String(), errw.String())
		}
		return err
	}
	t.Setenv("SSH_AUTH_SOCK", "")
	if err := shell(v1alpha1.SSH{PrivateKeyFile: path}); err != nil {
		t.Errorf("a certificate beside the key: %v", err)
	}
	for name, bits := range map[string]int{"ed25519": 0, "rsa": 2048} {
		t.Setenv("SSH_AUTH_SOCK", serveAgent(t, certifiedAgent(t, ca, bits, me.Username)))
		yes := true
		if err := shell(v1alpha1.SSH{Agent: &yes}); err != nil {
			t.Errorf("an %s certificate in the agent: %v", name, err)
		}
	}
	t.Setenv("SSH_AUTH_SOCK", "")
	writeFile(t, path+"-cert.pub", []byte(authorizedKey(signCertificate(t, ca, pub, gossh.UserCert, "somebody", nil))))
	checkRefusal(t, shell(v1alpha1.SSH{PrivateKeyFile: path}), remote.AuthFailed, `certificate "id-1"`)
	writeFile(t, filepath.Join(opts.Home, ".ssh", "known_hosts"), []byte("@cert-authority * "+authorizedKey(ca.PublicKey())+"\n"))
	checkRefusal(t, shell(v1alpha1.SSH{PrivateKeyFile: path}), remote.HostKeyUnknown, "its certificate is not valid")
}

// certifiedAgent holds one key, RSA of so many bits or Ed25519, and its
// certificate.
func certifiedAgent(t *testing.T, ca gossh.Signer, bits int, principal string) agent.Agent {
	t.Helper()
	var private any
	var err error
	if bits > 0 {
		private, err = rsa.GenerateKey(rand.Reader, bits)
	} else {
		_, private, err = ed25519.GenerateKey(rand.Reader)
	}
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
		Certificate: signCertificate(t, ca, signer.PublicKey(), gossh.UserCert, principal, nil),
	}); err != nil {
		t.Fatal(err)
	}
	return keyring
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startSSHD runs a server until the test ends, and returns when it listens.
func startSSHD(t *testing.T, program, config string, port int) {
	t.Helper()
	if os.Geteuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd wants it, and empty
			t.Fatal(err)
		}
	}
	log := filepath.Join(t.TempDir(), "log")
	cmd := exec.CommandContext(t.Context(), program, "-D", "-f", config, "-E", log)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			raw, _ := os.ReadFile(log)
			t.Logf("sshd: %s", raw)
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var dialer net.Dialer
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-tick.C {
		conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = conn.Close()
			return
		}
	}
	raw, _ := os.ReadFile(log)
	t.Fatalf("sshd does not listen: %s", raw)
}
