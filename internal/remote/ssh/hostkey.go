package ssh

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"slipway.dev/slipway/internal/remote"
)

// errOtherKey reports that a host has a key of another type than the pinned fingerprint
// can have.
var errOtherKey = errors.New("another host key type must be tried")

// hostKeys checks the key of a server. A revoked key is always rejected. Otherwise the
// key that the cluster file pins is used, else known_hosts: a CA that signed the server's
// certificate, the server's own keys, or the first key that it presented.
type hostKeys struct {
	to   endpoint
	opts remote.Options

	trust       trust           // content of the known_hosts files
	fingerprint string          // pinned as SHA256:…
	wanted      []knownKey      // pinned as a key, or known
	shown       []ssh.PublicKey // keys that did not match the fingerprint
	invalid     error           // why the server's certificate is not valid; its plain key is requested then

	accepted ssh.PublicKey // the right key, in this attempt
	refusal  error         // why this attempt was rejected
}

// algorithm is a form in which a key is presented: plain, or in a certificate.
type algorithm struct {
	key           string // the type of the key
	plain, signed []string
}

// algorithms of host keys, in order of preference.
var algorithms = []algorithm{
	{ssh.KeyAlgoED25519, []string{ssh.KeyAlgoED25519}, []string{ssh.CertAlgoED25519v01}},
	{ssh.KeyAlgoECDSA256, []string{ssh.KeyAlgoECDSA256}, []string{ssh.CertAlgoECDSA256v01}},
	{ssh.KeyAlgoECDSA384, []string{ssh.KeyAlgoECDSA384}, []string{ssh.CertAlgoECDSA384v01}},
	{ssh.KeyAlgoECDSA521, []string{ssh.KeyAlgoECDSA521}, []string{ssh.CertAlgoECDSA521v01}},
	{ssh.KeyAlgoRSA, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}, []string{ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01}},
}

func newHostKeys(to endpoint, opts remote.Options) (*hostKeys, error) {
	k := &hostKeys{to: to, opts: opts}
	if err := k.readEntries(); err != nil {
		return nil, err
	}
	switch pin := strings.TrimSpace(to.hostKey); {
	case strings.HasPrefix(pin, "SHA256:"):
		k.fingerprint = strings.TrimRight(pin, "=")
		k.wanted, k.trust.authorities = nil, nil
	case pin != "":
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(pin))
		if err != nil {
			return nil, to.newError(remote.HostKeyUnknown, "ssh.hostKey is neither a public key nor a fingerprint",
				`write "ssh-ed25519 AAAA…" or "SHA256:…", from the output of `+"`ssh-keyscan` or `ssh-keygen -l`", err)
		}
		k.wanted, k.trust.authorities = []knownKey{{key: key, file: "ssh.hostKey"}}, nil
	}
	return k, nil
}

// knownHostsFiles returns the files with known keys, first the user's, then Slipway's.
func (k *hostKeys) knownHostsFiles() []string {
	files := []string{filepath.Join(k.opts.Home, ".ssh", "known_hosts")}
	if k.to.knownHosts != nil {
		files = slices.Clone(k.to.knownHosts)
	}
	if k.opts.KnownHosts != "" {
		files = append(files, k.opts.KnownHosts)
	}
	return files
}

// serverName returns the name of the server in these files.
func (k *hostKeys) serverName() string {
	if k.to.alias != "" {
		return k.to.alias
	}
	return knownhosts.Normalize(k.to.hostAndPort())
}

// readEntries reads the entries for the server.
func (k *hostKeys) readEntries() error {
	t, err := readTrust(k.knownHostsFiles(), k.serverName(), func(file string) ([]byte, error) {
		if slices.Contains(k.to.knownHosts, file) { // named by the user
			return readAs(k.opts.Home, file, maxKnownHosts)
		}
		return readFile(file, maxKnownHosts)
	})
	if err != nil {
		return k.to.newError(remote.HostKeyUnknown, "the known host keys cannot be read: "+err.Error(),
			"make the file readable: it can revoke the key of "+k.to.hostAndPort(), err)
	}
	k.trust, k.wanted = t, t.keys
	return nil
}

// keyAlgorithms returns the algorithms in which the right key can be presented: a server has
// several keys, and an unknown key proves nothing.
func (k *hostKeys) keyAlgorithms() []string {
	var signed, out []string
	for _, a := range algorithms {
		known := slices.ContainsFunc(k.wanted, func(w knownKey) bool { return w.key.Type() == a.key })
		tried := slices.ContainsFunc(k.shown, func(key ssh.PublicKey) bool { return key.Type() == a.key })
		if (len(k.wanted) == 0 || known) && !tried {
			out = append(out, a.plain...)
		}
		signed = append(signed, a.signed...)
	}
	if len(out) == 0 { // known only by a type that cannot be checked: a mismatch
		for _, a := range algorithms {
			out = append(out, a.plain...)
		}
	}
	if len(k.trust.authorities) > 0 && k.invalid == nil {
		return append(signed, out...)
	}
	return out
}

func (k *hostKeys) beginLogin() { k.accepted, k.refusal = nil, nil }

// checkKey is the ssh.HostKeyCallback. SSH calls it again when it
// renews the session keys; an accepted key is accepted until the connection ends.
func (k *hostKeys) checkKey(_ string, _ net.Addr, key ssh.PublicKey) error {
	if k.accepted != nil && isSameKey(k.accepted, key) {
		return nil
	}
	if k.refusal = k.checkTrust(key); k.refusal == nil {
		k.accepted = key
	}
	return k.refusal
}

func (k *hostKeys) checkTrust(key ssh.PublicKey) error {
	if r, revoked := k.trust.findRevocation(key); revoked {
		return k.to.newError(remote.HostKeyChanged, fmt.Sprintf("the host key of %s is revoked in %s", k.to.hostAndPort(), r.fileAndLine()),
			"do not trust this host before it has a new key", nil)
	}
	if cert, ok := key.(*ssh.Certificate); ok {
		if k.invalid = k.checkCertificate(cert); k.invalid != nil {
			return errOtherKey
		}
		return nil
	}
	switch {
	case k.fingerprint != "":
		if ssh.FingerprintSHA256(key) == k.fingerprint {
			return nil
		}
		k.shown = append(k.shown, key)
		if len(k.shown) < len(algorithms) {
			return errOtherKey
		}
		return k.changedKeyError()
	case len(k.wanted) > 0:
		return k.compareKey(key)
	case len(k.trust.authorities) > 0:
		return k.unsignedKeyError(key)
	}
	return k.firstUse(key)
}

// checkCertificate checks the certificate of a server.
func (k *hostKeys) checkCertificate(cert *ssh.Certificate) error {
	if cert.Signature.Format == ssh.KeyAlgoRSA {
		return errors.New("the certificate is signed with SHA-1")
	}
	checker := ssh.CertChecker{IsHostAuthority: func(key ssh.PublicKey, _ string) bool {
		return slices.ContainsFunc(k.trust.authorities, func(a knownKey) bool { return isSameKey(a.key, key) })
	}}
	// As in OpenSSH, a principal can be a pattern; the library compares plain text.
	name := cmp.Or(k.to.alias, k.to.address)
	if at := slices.IndexFunc(cert.ValidPrincipals, func(p string) bool { return matchWildcard(p, name) }); at >= 0 {
		name = cert.ValidPrincipals[at]
	}
	return checker.CheckHostKey(net.JoinHostPort(name, strconv.Itoa(k.to.port)), nil, cert)
}

// unsignedKeyError returns the error for a host whose key should be signed by a CA: its plain key
// is not trusted on first use.
func (k *hostKeys) unsignedKeyError(key ssh.PublicKey) *remote.Error {
	cause := "it has no certificate"
	if k.invalid != nil {
		cause = "its certificate is not valid: " + strings.TrimPrefix(k.invalid.Error(), "ssh: ")
	}
	lines := listText(k.trust.authorities, knownKey.fileAndLine)
	return k.to.newError(remote.HostKeyUnknown,
		fmt.Sprintf("%s must have a host certificate from the CA in %s, but %s", k.to.hostAndPort(), lines, cause),
		"sign its host key for the name "+cmp.Or(k.to.alias, k.to.address)+" (`ssh-keygen -s CA -h -n NAME`), or compare "+
			ssh.FingerprintSHA256(key)+" with "+onConsole([]ssh.PublicKey{key})+" and set ssh.hostKey", k.invalid)
}

func (k *hostKeys) compareKey(key ssh.PublicKey) error {
	if slices.ContainsFunc(k.wanted, func(w knownKey) bool { return isSameKey(w.key, key) }) {
		return nil
	}
	return k.changedKeyError(key)
}

func isSameKey(a, b ssh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }

// changedKeyError returns the error for a host with a changed key. shown has keys of the host in
// addition to keys that did not match, if any.
func (k *hostKeys) changedKeyError(shown ...ssh.PublicKey) *remote.Error {
	at := k.to.hostAndPort()
	shown = append(slices.Clone(k.shown), shown...)
	now := "it no longer has a key of the known type"
	if len(shown) > 0 {
		now = "it has " + listText(shown, func(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) })
	}
	if k.invalid != nil {
		now += " and a certificate that is not valid (" + strings.TrimPrefix(k.invalid.Error(), "ssh: ") + ")"
	}
	if k.to.hostKey != "" {
		want := k.fingerprint
		if want == "" {
			want = ssh.FingerprintSHA256(k.wanted[0].key)
		}
		return k.to.newError(remote.HostKeyChanged, fmt.Sprintf("%s does not match ssh.hostKey: %s, expected %s", at, now, want),
			"check the address; if the host was reinstalled, compare with "+onConsole(shown)+", then correct ssh.hostKey", nil)
	}
	known, lines := listText(k.wanted, knownKey.String), listText(k.wanted, knownKey.fileAndLine)
	return k.to.newError(remote.HostKeyChanged, fmt.Sprintf("the host key of %s has changed: %s, expected %s", at, now, known),
		"check for an attack on the connection; if the host was reinstalled, compare with "+onConsole(shown)+", then remove "+lines, nil)
}

func listText[T any](items []T, text func(T) string) string {
	var out []string
	for _, item := range items {
		out = append(out, text(item))
	}
	return strings.Join(out, " and ")
}

// onConsole returns the command that prints the fingerprints on a host.
func onConsole(shown []ssh.PublicKey) string {
	kind := "*"
	if len(shown) == 1 {
		kind, _, _ = strings.Cut(strings.TrimPrefix(shown[0].Type(), "ssh-"), "-") // ed25519, ecdsa, rsa
	}
	if kind == "*" {
		return "`cat /etc/ssh/ssh_host_*.pub | ssh-keygen -lf -` on its console"
	}
	return "`ssh-keygen -lf /etc/ssh/ssh_host_" + kind + "_key.pub` on its console"
}

// firstUse trusts a new key, and saves it.
func (k *hostKeys) firstUse(key ssh.PublicKey) error {
	at, fp := k.to.hostAndPort(), ssh.FingerprintSHA256(key)
	if k.opts.KnownHosts == "" {
		return k.to.newError(remote.HostKeyUnknown, fmt.Sprintf("the host key of %s is unknown: it has %s %s", at, key.Type(), fp),
			"add the key to ~/.ssh/known_hosts, or set ssh.hostKey"+k.to.knownNote, nil)
	}
	// Another connection or manager may have saved a key first.
	first := false
	unknown := func() (bool, error) {
		if err := k.readEntries(); err != nil {
			return false, err
		}
		_, revoked := k.trust.findRevocation(key)
		first = len(k.wanted) == 0 && len(k.trust.authorities) == 0 && !revoked
		return first, nil
	}
	err := rememberKey(k.opts.KnownHosts, k.serverName(), key, unknown)
	var refused *remote.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case err != nil:
		return k.to.newError(remote.HostKeyUnknown, "the host key of "+at+" cannot be saved: "+innermostMessage(err),
			"make "+k.opts.KnownHosts+" writable", err)
	case !first:
		return k.checkTrust(key)
	}
	if k.to.knownNote != "" {
		k.opts.Log.Warn("some host key settings are not used"+k.to.knownNote, "host", k.to.host)
	}
	k.opts.Log.Info("saved a new host key", "host", k.to.host, "address", at, "key", fp, "file", k.opts.KnownHosts)
	k.wanted = []knownKey{{key: key, file: k.opts.KnownHosts}}
	return nil
}
