package apicheck

import (
	"reflect"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

const pathSSH = "spec.ssh"

// checkAgent refuses the SSH agent.
func (k *checker) checkAgent(path string, v reflect.Value) {
	if v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Bool() {
		k.refuse(IDAgent, path, "an object cannot use the SSH agent: it belongs to the server",
			"remove the field, and set privateKeyFile or passwordFrom to a key of a source in "+pathFilesFrom)
	}
}

const loginHint = "set privateKeyFile or passwordFrom to a key of a source in " + pathFilesFrom

// checkLogins refuses logins without credentials: the command line would use the agent, the
// default keys and ~/.ssh/config. The login can be in the defaults or at the host.
func (k *checker) checkLogins() {
	s := &k.cluster.Spec
	k.checkBastion(pathSSH, s.SSH.Bastion)
	missing := 0
	for i, h := range s.Hosts {
		at := yamlfile.IndexPath("spec.hosts", i) + ".ssh"
		k.checkBastion(at, h.SSH.Bastion)
		if !hasLogin(spec.MergeSSH(s.SSH, h.SSH)) {
			missing++
		}
	}
	if missing > 0 && missing == len(s.Hosts) { // one mistake, and one remedy
		k.refuse(IDNoLogin, pathSSH, "no host has a login, and an object cannot use keys of the server", loginHint)
		return
	}
	for i, h := range s.Hosts {
		if !hasLogin(spec.MergeSSH(s.SSH, h.SSH)) {
			k.refuse(IDNoLogin, yamlfile.IndexPath("spec.hosts", i)+".ssh",
				"the host "+quoteText(h.Name)+" has no login, and an object cannot use keys of the server", loginHint)
		}
	}
}

// hasLogin reports whether the settings of a host have credentials. The agent has another check.
func hasLogin(s v1alpha1.SSH) bool {
	return s.PrivateKeyFile != "" || s.Password != "" || s.PasswordFrom != nil || s.Agent != nil && *s.Agent
}

func (k *checker) checkBastion(path string, b *v1alpha1.Bastion) {
	if b != nil && b.PrivateKeyFile == "" && b.PasswordFrom == nil {
		k.refuse(IDNoLogin, path+".bastion", "the bastion has no login, and an object cannot use keys of the server", loginHint)
	}
}

// checkKeys refuses private keys that need a passphrase and have none: the login would look for
// them in the SSH agent.
func (k *checker) checkKeys() {
	s := &k.cluster.Spec
	refused, encrypted := map[string]bool{}, map[string]bool{}
	check := func(path, name string, passphrase *v1alpha1.SecretSource) {
		path += ".privateKeyFile"
		if _, known := encrypted[name]; !known { // many hosts have the same key
			data := k.files[name]
			encrypted[name], _, _ = spec.InspectKey(data[:min(len(data), bounded.Word)])
		}
		if passphrase != nil || refused[path] || !encrypted[name] {
			return
		}
		refused[path] = true
		k.refuse(IDAgent, path, "the private key "+quoteText(name)+" has a passphrase, which only the SSH agent of the server could supply",
			"set passphraseFrom to a key of a source in "+pathFilesFrom)
	}
	bastion := func(path string, b *v1alpha1.Bastion) {
		if b != nil {
			check(path+".bastion", b.PrivateKeyFile, b.PassphraseFrom)
		}
	}
	bastion(pathSSH, s.SSH.Bastion)
	for i, h := range s.Hosts {
		at, merged := yamlfile.IndexPath("spec.hosts", i)+".ssh", spec.MergeSSH(s.SSH, h.SSH)
		bastion(at, h.SSH.Bastion)
		if h.SSH.PrivateKeyFile == "" {
			at = pathSSH
		}
		check(at, merged.PrivateKeyFile, merged.PassphraseFrom)
	}
}
