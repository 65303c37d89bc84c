package lifecycletest

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// loadEncryptionKeys simulates an API server that starts and reads its keys.
func (m *Host) loadEncryptionKeys() {
	m.API.Mu.Lock()
	defer m.API.Mu.Unlock()
	if strings.Contains(m.Files[module.APIServerManifest], "encryption-provider-config") {
		if m.API.ServerKeys[m.Name] = m.Files[module.EncryptionFile]; !m.HasFile(module.EncryptionFile) {
			m.API.T.Errorf("%s: an API server is started without its keys", m.Name)
		}
		return
	}
	m.API.ServerKeys[m.Name] = ""
}

func (m *Host) keysOutdated() bool {
	m.API.Mu.Lock()
	defer m.API.Mu.Unlock()
	return strings.Contains(m.Files[module.APIServerManifest], "encryption-provider-config") &&
		m.API.ServerKeys[m.Name] != m.Files[module.EncryptionFile]
}

// SecretKeys returns the keys that the API server of a host uses for secrets.
func (a *API) SecretKeys(name string) []module.EncryptionKey {
	if a.ServerKeys[name] == "" {
		return module.Encryption(nil).KeysFor("secrets")
	}
	e, err := module.ParseEncryption([]byte(a.ServerKeys[name]))
	if err != nil {
		a.T.Errorf("%s: %v", name, err)
	}
	return e.KeysFor("secrets")
}

// sealSecret simulates a write to the API: the first API server encrypts the secret.
func (a *API) sealSecret(p string, body object) {
	if path.Base(p) == "secrets" {
		p += "/" + body["metadata"].(object)["name"].(string)
	}
	if names := slices.Sorted(maps.Keys(a.ServerKeys)); strings.Contains(p, "/secrets/") && len(names) > 0 {
		a.SealedWith[p] = a.SecretKeys(names[0])[0].ValuePrefix()
	}
}

// countValues simulates etcd counting the stored secrets that do not begin as wanted.
func (a *API) countValues(o op.EtcdGet) []byte {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	var found op.EtcdKeyValues
	for p := range a.Objects {
		if strings.Contains(p, "/secrets/") {
			if found.Keys++; a.SealedWith[p] != o.Begins {
				found.Others++
				found.First = p
			}
		}
	}
	out, _ := json.Marshal(found)
	return out
}
