package sshx

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"slipway.dev/slipway/internal/remote"
)

// errOtherKey is a host that shows a key of another type than the pinned
// fingerprint may be of.
var errOtherKey = errors.New("another key type is to be tried")

// hostKeys decides whether a server is who it should be: by the key in the
// file, else by the user's known_hosts, else by the key it showed first.
type hostKeys struct {
	dialer *Dialer
	to     endpoint
	opts   remote.Options

	fingerprint string          // pinned as SHA256:…
	wanted      []knownKey      // pinned as a key, or known
	shown       []ssh.PublicKey // seen in vain for the fingerprint

	seen    bool  // this attempt has seen the right key
	refusal error // why this attempt was given up
}

// plain are the host key algorithms in order of preference, for each type of
// key. Certificates are not asked for.
var plain = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256},
	{ssh.KeyAlgoECDSA384},
	{ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

func (d *Dialer) hostKeys(to endpoint, opts remote.Options) (*hostKeys, error) {
	k := &hostKeys{dialer: d, to: to, opts: opts}
	switch pin := strings.TrimSpace(to.hostKey); {
	case strings.HasPrefix(pin, "SHA256:"):
		k.fingerprint = strings.TrimRight(pin, "=")
	case pin != "":
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(pin))
		if err != nil {
			return nil, to.fail(remote.HostKeyUnknown, "hostKey is neither a public key nor a fingerprint", `write "ssh-ed25519 AAAA…" or "SHA256:…", as `+"`ssh-keyscan` and `ssh-keygen -l` print them", err)
		}
		k.wanted = []knownKey{{key: key, file: "ssh.hostKey"}}
	default:
		k.wanted = k.known()
	}
	return k, nil
}

// files are where known keys are, the user's before ours.
func (k *hostKeys) files() []string {
	files := []string{filepath.Join(k.opts.Home, ".ssh", "known_hosts")}
	if k.opts.KnownHosts != "" {
		files = append(files, k.opts.KnownHosts)
	}
	return files
}

// known finds the server's keys in the first file that has any.
func (k *hostKeys) known() []knownKey {
	for _, file := range k.files() {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // no file, no keys
		}
		if keys := lookUp(raw, file, knownhosts.Normalize(k.to.hostport())); len(keys) > 0 {
			return keys
		}
	}
	return nil
}

// algorithms are those that the right key can be shown with: a server has
// several keys, and one that is not known says nothing.
func (k *hostKeys) algorithms() []string {
	var out []string
	for _, group := range plain {
		kind := group[0]
		if kind == ssh.KeyAlgoRSASHA512 {
			kind = ssh.KeyAlgoRSA
		}
		known := slices.ContainsFunc(k.wanted, func(w knownKey) bool { return w.key.Type() == kind })
		tried := slices.ContainsFunc(k.shown, func(key ssh.PublicKey) bool { return key.Type() == kind })
		if (len(k.wanted) == 0 || known) && !tried {
			out = append(out, group...)
		}
	}
	if len(out) == 0 {
		return slices.Concat(plain...) // known by a kind we cannot check: a mismatch
	}
	return out
}

func (k *hostKeys) begin() { k.seen, k.refusal = false, nil }

// check is the ssh.HostKeyCallback.
func (k *hostKeys) check(_ string, _ net.Addr, key ssh.PublicKey) error {
	k.refusal = k.judge(key)
	k.seen = k.refusal == nil
	return k.refusal
}

func (k *hostKeys) judge(key ssh.PublicKey) error {
	switch {
	case k.fingerprint != "":
		if ssh.FingerprintSHA256(key) == k.fingerprint {
			return nil
		}
		k.shown = append(k.shown, key)
		if len(k.shown) < len(plain) {
			return errOtherKey
		}
		return k.changed()
	case len(k.wanted) > 0:
		return k.compare(key)
	}
	return k.firstUse(key)
}

func (k *hostKeys) compare(key ssh.PublicKey) error {
	for _, w := range k.wanted {
		if same(w.key, key) {
			if w.revoked {
				return k.to.fail(remote.HostKeyChanged, fmt.Sprintf("the host key of %s is revoked in %s line %d", k.to.hostport(), w.file, w.line), "do not trust this host; give it a new key", nil)
			}
			return nil
		}
	}
	return k.changed(key)
}

func same(a, b ssh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }

// changed is the refusal of a host that is not who it was. shown is what it
// showed besides the keys seen in vain, if anything.
func (k *hostKeys) changed(shown ...ssh.PublicKey) *remote.Error {
	at := k.to.hostport()
	shown = append(slices.Clone(k.shown), shown...)
	now := "it has no key of the known type any more"
	if len(shown) > 0 {
		now = "it shows " + list(shown, func(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) })
	}
	if k.to.hostKey != "" {
		want := k.fingerprint
		if want == "" {
			want = ssh.FingerprintSHA256(k.wanted[0].key)
		}
		return k.to.fail(remote.HostKeyChanged, fmt.Sprintf("%s is not the host that ssh.hostKey names: %s, not %s", at, now, want),
			"check the address; if the host was installed anew, compare with "+onConsole(shown)+", then correct ssh.hostKey", nil)
	}
	known := list(k.wanted, func(w knownKey) string { return w.key.Type() + " " + ssh.FingerprintSHA256(w.key) })
	lines := list(k.wanted, func(w knownKey) string { return fmt.Sprintf("line %d of %s", w.line, w.file) })
	return k.to.fail(remote.HostKeyChanged, fmt.Sprintf("the host key of %s has changed: %s, not %s", at, now, known),
		"someone may be in between; if the host was installed anew, compare with "+onConsole(shown)+", then remove "+lines, nil)
}

func list[T any](items []T, text func(T) string) string {
	var out []string
	for _, item := range items {
		out = append(out, text(item))
	}
	return strings.Join(out, " and ")
}

// onConsole is the command that prints a host's own fingerprints.
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

// firstUse trusts a key that is seen first, and keeps it.
func (k *hostKeys) firstUse(key ssh.PublicKey) error {
	at, fp := k.to.hostport(), ssh.FingerprintSHA256(key)
	if k.opts.KnownHosts == "" {
		return k.to.fail(remote.HostKeyUnknown, fmt.Sprintf("the host key of %s is not known: it shows %s %s", at, key.Type(), fp),
			"add it to ~/.ssh/known_hosts, or set ssh.hostKey", nil)
	}
	k.dialer.keys.Lock()
	defer k.dialer.keys.Unlock()
	// Another connection may have been first.
	if k.wanted = k.known(); len(k.wanted) > 0 {
		return k.compare(key)
	}
	if err := remember(k.opts.KnownHosts, knownhosts.Line([]string{knownhosts.Normalize(at)}, key)); err != nil {
		return k.to.fail(remote.HostKeyUnknown, "the host key of "+at+" cannot be kept: "+innermost(err), "make "+k.opts.KnownHosts+" writable", err)
	}
	k.opts.Log.Info("host key seen first and kept", "host", k.to.host, "address", at, "key", fp, "file", k.opts.KnownHosts)
	k.wanted = []knownKey{{key: key, file: k.opts.KnownHosts}}
	return nil
}

// remember appends a line in one write, so that others' lines stay whole.
func remember(file, line string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}
