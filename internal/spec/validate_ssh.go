package spec

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/hostaddress"
)

// checkSSH checks one set of settings, and its combination with the defaults.
func (v *validator) checkSSH(s, defaults v1alpha1.SSH, path string) {
	merged := MergeSSH(defaults, s)
	v.checkLogin(s.User, s.Port, path)
	v.checkSecretSource(s.PassphraseFrom, path+".passphraseFrom")
	v.checkSecretSource(s.PasswordFrom, path+".passwordFrom")
	v.checkSecretSource(s.SudoPasswordFrom, path+".sudoPasswordFrom")
	v.checkHostKey(s.HostKey, path+".hostKey")
	if s.Password != "" {
		v.warn(idInlinePassword, path+".password", "a password in the cluster file can be read by others",
			"move the password to a file or a variable, and set passwordFrom to this file or variable")
		if s.PasswordFrom != nil {
			v.refuse(idConflictingFields, path+".passwordFrom", "password and passwordFrom are both set", "keep passwordFrom")
		}
	}
	if s.PassphraseFrom != nil && merged.PrivateKeyFile == "" {
		v.refuse(idConflictingFields, path+".passphraseFrom", "a passphrase needs privateKeyFile, which is not set",
			"write the path of the private key in privateKeyFile")
	}
	if s.Agent != nil && *s.Agent {
		v.checkAgentOnly(s, path)
	}
	if b := s.Bastion; b != nil {
		v.checkBastion(*b, path+".bastion")
	}
}

// checkAgentOnly rejects other credentials together with the agent: it would be unclear which
// one is used.
func (v *validator) checkAgentOnly(s v1alpha1.SSH, path string) {
	for _, other := range []struct {
		name string
		set  bool
	}{{"privateKeyFile", s.PrivateKeyFile != ""}, {"password", s.Password != ""}, {"passwordFrom", s.PasswordFrom != nil}} {
		if other.set {
			v.refuse(idConflictingFields, path+"."+other.name, "agent: true uses only the agent, but "+other.name+" is also set", "keep one of them")
		}
	}
}

func (v *validator) checkBastion(b v1alpha1.Bastion, path string) {
	if !v.requireText(path+".address", b.Address, "write the name or address of the bastion host") {
		if hint, ok := hostaddress.Check(b.Address); !ok {
			v.refuse(idInvalidAddress, path+".address", quoteAddress(b.Address)+" is neither an IP address nor a host name", hint)
		}
	}
	v.checkLogin(b.User, b.Port, path)
	v.checkSecretSource(b.PassphraseFrom, path+".passphraseFrom")
	v.checkSecretSource(b.PasswordFrom, path+".passwordFrom")
	v.checkHostKey(b.HostKey, path+".hostKey")
	if b.PassphraseFrom != nil && b.PrivateKeyFile == "" {
		v.refuse(idConflictingFields, path+".passphraseFrom", "a passphrase needs privateKeyFile, which is not set",
			"write the path of the private key in privateKeyFile")
	}
}

func (v *validator) checkLogin(user string, port int, path string) {
	if strings.ContainsAny(user, " @:/") || strings.ContainsFunc(user, unicode.IsControl) {
		v.refuse(idInvalidValue, path+".user", strconv.Quote(user)+" is not a user name", "write only the name, such as root")
	}
	v.checkPort(path+".port", port)
}

func (v *validator) checkSecretSource(src *v1alpha1.SecretSource, path string) {
	if src == nil {
		return
	}
	switch {
	case src.File == "" && src.Env == "":
		v.refuse(idMissingField, path, "file or env is missing", "write {file: PATH} or {env: NAME}")
	case src.File != "" && src.Env != "":
		v.refuse(idConflictingFields, path, "file and env are both set", "keep one of them")
	case strings.ContainsAny(src.Env, "$="):
		name := strings.Trim(src.Env, "${}")
		v.refuse(idInvalidValue, path+".env", strconv.Quote(src.Env)+" is not the name of a variable", "write only the name: env: "+name)
	}
}

// checkHostKey accepts the two forms that ssh-keygen and known_hosts use.
func (v *validator) checkHostKey(key, path string) {
	if key == "" {
		return
	}
	hint := "write SHA256:… from the output of 'ssh-keygen -lf', or 'ssh-ed25519 AAAA…' as in known_hosts"
	if sum, ok := strings.CutPrefix(key, "SHA256:"); ok {
		if raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(sum, "=")); err != nil || len(raw) != 32 {
			v.refuse(idInvalidValue, path, strconv.Quote(key)+" is not the fingerprint of a key", hint)
		}
		return
	}
	fields := strings.Fields(key)
	valid := len(fields) >= 2
	if valid {
		raw, err := base64.StdEncoding.DecodeString(fields[1])
		// The encoded key begins with its type, after four bytes of length.
		valid = err == nil && len(raw) > 4+len(fields[0]) && string(raw[4:4+len(fields[0])]) == fields[0]
	}
	if !valid {
		v.refuse(idInvalidValue, path, "this is not a host key", hint)
	}
}
