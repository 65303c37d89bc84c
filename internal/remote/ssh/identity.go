package ssh

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/remote"
)

// login has the credentials. Without any, the agent and the default key files are tried.
type login struct {
	keyFile      string
	passphrase   *v1alpha1.SecretSource
	password     string
	passwordFrom *v1alpha1.SecretSource
	agent        bool // only the agent
}

// identities has the keys from ~/.ssh/config, for a login without credentials.
type identities struct {
	files []string
	only  bool     // only those keys of the agent that are also in files
	notes []string // ignored settings of ~/.ssh/config
}

// reader reads the file of a key or certificate.
type reader func(name string) ([]byte, error)

// readArgumentFile reads a file from the cluster file.
func readArgumentFile(name string) ([]byte, error) {
	return bounded.ReadArgument(name, bounded.Argument)
}

// identity has the loaded credentials of one login.
type identity struct {
	signers []ssh.Signer
	names   []string // of the signers, for people
	passed  []string // keys that cannot be used, with the reason
	// encrypted is the last key that has a passphrase and is not in the agent.
	encrypted string
	password  string
	agent     net.Conn

	// The methods that the server requested in the current attempt.
	askedKeys, askedPassword bool
}

// loadIdentity loads the credentials. Named files must exist; of default files, the existing ones
// are used.
func (l login) loadIdentity(ctx context.Context, to endpoint, opts remote.Options) (*identity, error) {
	id := &identity{password: l.password}
	if l.passwordFrom != nil {
		password, err := revealSecret(l.passwordFrom)
		if err != nil {
			return nil, to.newError(remote.SecretUnreadable, "the password cannot be read: "+err.Error(), "correct ssh.passwordFrom", err)
		}
		id.password = password
	}
	var err error
	switch {
	case l.agent:
		if os.Getenv("SSH_AUTH_SOCK") == "" {
			return nil, to.newError(remote.KeyUnreadable, "SSH_AUTH_SOCK is not set, so there is no SSH agent",
				"start an agent (`eval $(ssh-agent)`, `ssh-add`), or name a key with ssh.privateKeyFile", nil)
		}
		if err = id.addAgent(ctx); err != nil {
			err = to.newError(remote.KeyUnreadable, "the SSH agent does not answer: "+innermostMessage(err),
				"check SSH_AUTH_SOCK and `ssh-add -l`", err)
		} else if len(id.signers) == 0 {
			err = to.newError(remote.KeyUnreadable, "the SSH agent has no key", "run `ssh-add` to add a key", nil)
		}
	case l.keyFile != "":
		err = id.addFile(ctx, expandPath(l.keyFile, opts.Home), l.passphrase, to, readArgumentFile)
	case id.password == "":
		id.addUsual(ctx, opts.Home, to)
		if len(id.signers) == 0 {
			err = to.newError(remote.KeyUnreadable,
				"no login method is available: no agent, and no usable key in "+filepath.Join(opts.Home, ".ssh")+id.notesText(),
				id.hintWithoutKey(), nil)
		}
	}
	if err != nil {
		id.closeAgent()
		return nil, err
	}
	return id, nil
}

func expandPath(path, home string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(home, path[1:])
	}
	return path
}

func (id *identity) closeAgent() {
	if id.agent != nil {
		_ = id.agent.Close()
	}
}

func (id *identity) addAgent(ctx context.Context) error {
	signers, err := id.agentKeys(ctx)
	for _, s := range signers {
		id.addSigner(s, "agent")
	}
	return err
}

// agentKeys returns the keys of the agent; the connection to it is closed with the
// identity.
func (id *identity) agentKeys(ctx context.Context) ([]ssh.Signer, error) {
	if id.agent == nil {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", os.Getenv("SSH_AUTH_SOCK"))
		if err != nil {
			return nil, err
		}
		id.agent = conn
	}
	stop := context.AfterFunc(ctx, func() { _ = id.agent.Close() })
	defer stop()
	return agent.NewClient(id.agent).Signers()
}

// fromAgent finds an encrypted key in the agent. Its public key is in the file, or next
// to it; nil means not found.
func (id *identity) fromAgent(ctx context.Context, path string, public ssh.PublicKey, read reader) ssh.Signer {
	if os.Getenv("SSH_AUTH_SOCK") == "" {
		return nil
	}
	if raw, err := read(path + ".pub"); public == nil && err == nil {
		public, _, _, _, _ = ssh.ParseAuthorizedKey(raw) // nil if it is not a public key
	}
	signers, err := id.agentKeys(ctx)
	if err != nil || public == nil {
		return nil
	}
	for _, s := range signers {
		if isSameKey(s.PublicKey(), public) {
			return s
		}
	}
	return nil
}

// addSigner adds a key, unless it is already in the list: servers count offered keys.
func (id *identity) addSigner(s ssh.Signer, from string) {
	for _, have := range id.signers {
		if isSameKey(have.PublicKey(), s.PublicKey()) {
			return
		}
	}
	id.signers = append(id.signers, s)
	id.names = append(id.names, from+" "+keyText(s.PublicKey()))
}

func (id *identity) addFile(ctx context.Context, path string, passphrase *v1alpha1.SecretSource, to endpoint, read reader) error {
	raw, err := read(path)
	if err != nil {
		return to.newError(remote.KeyUnreadable, fmt.Sprintf("the private key %s cannot be read: %s", path, innermostMessage(err)),
			"correct ssh.privateKeyFile, or the file's permissions", err)
	}
	s, err := ssh.ParsePrivateKey(raw)
	var locked *ssh.PassphraseMissingError
	switch {
	case err == nil:
	case !errors.As(err, &locked):
		return to.newError(remote.KeyUnreadable, fmt.Sprintf("%s is not a private key: %s", path, innermostMessage(err)),
			"write the path of the private key file, which has no .pub suffix", err)
	case passphrase == nil:
		if s = id.fromAgent(ctx, path, locked.PublicKey, read); s != nil {
			break
		}
		id.encrypted = path
		return to.newError(remote.KeyUnreadable, "the private key "+path+" is encrypted",
			"set ssh.passphraseFrom, or add the key to your SSH agent (`ssh-add`)", err)
	default:
		text, err := revealSecret(passphrase)
		if err != nil {
			return to.newError(remote.KeyUnreadable, "the passphrase of "+path+" cannot be read: "+err.Error(), "correct ssh.passphraseFrom", err)
		}
		if s, err = ssh.ParsePrivateKeyWithPassphrase(raw, []byte(text)); err != nil {
			return to.newError(remote.KeyUnreadable, "the passphrase does not decrypt "+path, "correct ssh.passphraseFrom", err)
		}
	}
	id.addCertificate(s, path, read)
	id.addSigner(s, path)
	return nil
}

// addUsual adds the keys that ssh would use: the keys from ~/.ssh/config, the keys of the
// agent and, if none are named, the default files.
func (id *identity) addUsual(ctx context.Context, home string, to endpoint) {
	read := func(name string) ([]byte, error) { return readAs(home, name, bounded.Argument) }
	add := func(path string) {
		var e *remote.Error
		if err := id.addIdentity(ctx, path, to, read); errors.As(err, &e) {
			id.passed = append(id.passed, e.Cause)
		}
	}
	id.passed = append(id.passed, to.identities.notes...)
	for _, path := range to.identities.files {
		add(path)
	}
	if os.Getenv("SSH_AUTH_SOCK") != "" && !to.identities.only {
		if err := id.addAgent(ctx); err != nil {
			id.passed = append(id.passed, "the agent does not answer")
		}
	}
	if len(to.identities.files) > 0 {
		return
	}
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		path := filepath.Join(home, ".ssh", name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			add(path)
		}
	}
}

// hintWithoutKey returns the hint for a user without a usable key.
func (id *identity) hintWithoutKey() string {
	if id.encrypted != "" {
		return "add the key to your SSH agent (`ssh-add " + id.encrypted + "`), or set ssh.privateKeyFile and ssh.passphraseFrom"
	}
	return "name a key with ssh.privateKeyFile, or a password with ssh.passwordFrom"
}

// addIdentity adds a key, or a key of the agent that a public key names.
func (id *identity) addIdentity(ctx context.Context, path string, to endpoint, read reader) error {
	if raw, err := read(path); err == nil {
		if public, _, _, _, err := ssh.ParseAuthorizedKey(raw); err == nil {
			if s := id.fromAgent(ctx, path, public, read); s != nil {
				id.addSigner(s, path)
				return nil
			}
			return to.newError(remote.KeyUnreadable, "the agent has no key for "+path, "", nil)
		}
	}
	return id.addFile(ctx, path, nil, to, read)
}

func (id *identity) notesText() string {
	if len(id.passed) == 0 {
		return ""
	}
	return " (" + strings.Join(id.passed, "; ") + ")"
}

// resetMethods resets the methods that a server requested before.
func (id *identity) resetMethods() { id.askedKeys, id.askedPassword = false, false }

// loginMethods returns the login methods, keys before passwords. A password is sent only once,
// because servers that lock accounts count attempts.
func (id *identity) loginMethods() []ssh.AuthMethod {
	var out []ssh.AuthMethod
	if len(id.signers) > 0 {
		out = append(out, ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
			id.askedKeys = true
			return id.signers, nil
		}))
	}
	if id.password == "" {
		return out
	}
	return append(out,
		ssh.PasswordCallback(func() (string, error) {
			id.askedPassword = true
			return id.password, nil
		}),
		ssh.KeyboardInteractive(id.answerChallenge))
}

// answerChallenge returns the password for questions without echo.
func (id *identity) answerChallenge(_, _ string, questions []string, echos []bool) ([]string, error) {
	answers := make([]string, len(questions))
	for i := range questions {
		if echos[i] {
			return nil, errors.New("the server asks for more than a password")
		}
		if id.askedPassword {
			return nil, errors.New("the password was already sent")
		}
		answers[i] = id.password
	}
	id.askedPassword = id.askedPassword || len(questions) > 0
	return answers, nil
}

// explainRefusal explains a login that failed.
func (id *identity) explainRefusal(to endpoint, err error) *remote.Error {
	who := to.user + "@" + to.hostAndPort()
	var causes []string
	remedy := ""
	if len(id.signers) > 0 {
		if id.askedKeys {
			causes = append(causes, "rejects the key of "+strings.Join(id.names, ", of ")+id.notesText())
			remedy = "add its public key to ~/.ssh/authorized_keys of " + to.user + " on the host, or name another key with ssh.privateKeyFile"
		} else {
			causes = append(causes, "does not accept keys")
			remedy = "set ssh.passwordFrom"
		}
	}
	if id.password != "" {
		if id.askedPassword {
			causes = append(causes, "rejects the password: it is wrong, or "+to.user+" is not allowed to log in with a password")
			remedy = "correct ssh.passwordFrom; for root, sshd needs PermitRootLogin yes"
		} else {
			causes = append(causes, "does not accept passwords from "+to.user)
			remedy = "use a key (ssh.privateKeyFile), or set PasswordAuthentication yes in its sshd_config"
		}
	}
	cause := who + " " + strings.Join(causes, " and ")
	var network net.Error
	if errors.As(err, &network) {
		return to.newError(remote.Unreachable, "the connection to "+to.hostAndPort()+" was lost during the login", "try again", err)
	}
	return to.newError(remote.AuthFailed, cause, remedy, err)
}
