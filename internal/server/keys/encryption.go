package keys

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/privatefile"
)

// keySize is the size of a secretbox key.
const keySize = 32

// namePrefix begins the name of each encryption key; a number follows.
const namePrefix = "key"

// The comment at the start of the encryption configuration has the number of the newest
// key, so that a name is not used again after its key was removed: etcd keeps the name of
// the key with each value.
const (
	headerFormat = "# slipwayd writes this file. Do not change it.\n# The newest key is key%d.\n"
	headerRegexp = `(?m)^# The newest key is key([1-9][0-9]{0,8})\.$`
)

// encryption is the content of the encryption configuration.
type encryption struct {
	keys   []apiserverv1.Key // the first one encrypts, all decrypt
	newest int               // the highest number of a key so far
}

// AddEncryptionKey adds a new key after the existing ones, as the first step of a rotation:
// API servers can read it, and do not write with it yet. If an interrupted rotation has
// added a key that was not promoted, AddEncryptionKey returns the name of that key.
func (k *Keys) AddEncryptionKey() (name string, err error) {
	err = k.changeEncryption(func(e *encryption) (bool, error) {
		if last := e.keys[len(e.keys)-1]; numberOf(last.Name) > numberOf(e.keys[0].Name) {
			name = last.Name
			return false, nil
		}
		name = e.addKey()
		return true, nil
	})
	return name, err
}

// PromoteEncryptionKey makes a key the first one, as the second step of a rotation: API
// servers write with it.
func (k *Keys) PromoteEncryptionKey(name string) error {
	return k.changeEncryption(func(e *encryption) (bool, error) {
		i := slices.IndexFunc(e.keys, func(key apiserverv1.Key) bool { return key.Name == name })
		if i < 0 {
			return false, diag.Refuse(idUnknownKey, fmt.Sprintf("%s has no encryption key %q", k.EncryptionConfig(), name),
				"start the rotation again: slipwayd rotate-encryption-key")
		}
		promoted := e.keys[i]
		e.keys = slices.Insert(slices.Delete(e.keys, i, i+1), 0, promoted)
		return i > 0, nil
	})
}

// PruneEncryptionKeys removes all keys but the first, as the last step of a rotation. The
// caller has encrypted all Secrets with the first key before.
func (k *Keys) PruneEncryptionKeys() error {
	return k.changeEncryption(func(e *encryption) (bool, error) {
		changed := len(e.keys) > 1
		e.keys = e.keys[:1]
		return changed, nil
	})
}

// EncryptionKeyNames returns the names of the encryption keys; the first one encrypts.
func (k *Keys) EncryptionKeyNames() ([]string, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	e, err := k.readEncryption()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, key := range e.keys {
		names = append(names, key.Name)
	}
	return names, nil
}

// prepareEncryption checks the encryption configuration, and makes it if it is missing and
// fresh is true.
func (k *Keys) prepareEncryption(fresh bool) error {
	_, err := k.readEncryption()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !fresh {
		return k.refuseMissing(encryptionFile)
	}
	var e encryption
	e.addKey()
	return k.writeEncryption(e)
}

// changeEncryption calls change with the current configuration, and writes the configuration
// if change returns true. An API server reads the file again when it has changed.
func (k *Keys) changeEncryption(change func(*encryption) (bool, error)) error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	e, err := k.readEncryption()
	if errors.Is(err, fs.ErrNotExist) {
		return k.refuseMissing(encryptionFile)
	}
	if err != nil {
		return err
	}
	if changed, err := change(&e); err != nil || !changed {
		return err
	}
	return k.writeEncryption(e)
}

func (k *Keys) readEncryption() (encryption, error) {
	text, err := privatefile.Read(k.EncryptionConfig(), privatefile.Secret)
	if err != nil {
		return encryption{}, fmt.Errorf("reading the encryption keys: %w", err)
	}
	e, err := parseEncryption(text)
	if err != nil {
		return encryption{}, k.refuseDamaged(encryptionFile, err.Error())
	}
	return e, nil
}

func (k *Keys) writeEncryption(e encryption) error {
	text, err := e.encodeConfig()
	if err != nil {
		return fmt.Errorf("encoding the encryption keys: %w", err)
	}
	if err := k.writer.Replace(k.EncryptionConfig(), text); err != nil {
		return fmt.Errorf("writing the encryption keys: %w", err)
	}
	return nil
}

// addKey adds a new random key after the existing ones and returns its name.
func (e *encryption) addKey() string {
	secret := make([]byte, keySize)
	_, _ = rand.Read(secret) // it never returns an error
	e.newest++
	name := namePrefix + strconv.Itoa(e.newest)
	e.keys = append(e.keys, apiserverv1.Key{Name: name, Secret: base64.StdEncoding.EncodeToString(secret)})
	return name
}

// toConfig returns the configuration as an API server reads it: the keys, and after them the
// provider for values that are not encrypted, which is only for reading.
func (e *encryption) toConfig() apiserverv1.EncryptionConfiguration {
	config := apiserverv1.EncryptionConfiguration{Resources: []apiserverv1.ResourceConfiguration{{
		Resources: []string{"secrets"},
		Providers: []apiserverv1.ProviderConfiguration{
			{Secretbox: &apiserverv1.SecretboxConfiguration{Keys: e.keys}},
			{Identity: &apiserverv1.IdentityConfiguration{}},
		},
	}}}
	config.SetGroupVersionKind(apiserverv1.SchemeGroupVersion.WithKind("EncryptionConfiguration"))
	return config
}

func (e *encryption) encodeConfig() ([]byte, error) {
	body, err := yaml.Marshal(e.toConfig())
	if err != nil {
		return nil, err
	}
	return append(fmt.Appendf(nil, headerFormat, e.newest), body...), nil
}

// parseEncryption reads a configuration. It accepts only the fields that toConfig sets, so
// that a truncated or changed file is refused. Errors contain no part of a key.
func parseEncryption(text []byte) (encryption, error) {
	header := regexp.MustCompile(headerRegexp).FindSubmatch(text)
	if header == nil {
		return encryption{}, errors.New("it does not name the newest key in a comment")
	}
	newest, err := strconv.Atoi(string(header[1]))
	if err != nil {
		return encryption{}, err
	}
	var config apiserverv1.EncryptionConfiguration
	if yaml.UnmarshalStrict(text, &config) != nil { // the error can contain a part of a key
		return encryption{}, errors.New("it is not an EncryptionConfiguration in YAML")
	}
	if len(config.Resources) == 0 || len(config.Resources[0].Providers) == 0 || config.Resources[0].Providers[0].Secretbox == nil {
		return encryption{}, errors.New("it has no secretbox keys")
	}
	e := encryption{keys: config.Resources[0].Providers[0].Secretbox.Keys, newest: newest}
	if err := e.checkKeys(); err != nil {
		return encryption{}, err
	}
	if !reflect.DeepEqual(config, e.toConfig()) {
		return encryption{}, errors.New("it has other content than slipwayd writes, or the end is missing")
	}
	return e, nil
}

func (e *encryption) checkKeys() error {
	if len(e.keys) == 0 {
		return errors.New("it has no keys")
	}
	seen := map[string]bool{}
	for _, key := range e.keys {
		number := numberOf(key.Name)
		switch secret, err := base64.StdEncoding.DecodeString(key.Secret); {
		case number < 1 || number > e.newest || key.Name != namePrefix+strconv.Itoa(number):
			return fmt.Errorf("%q is not a name of a key", key.Name)
		case seen[key.Name]:
			return fmt.Errorf("it has two keys with the name %s", key.Name)
		case err != nil || len(secret) != keySize:
			return fmt.Errorf("%s does not have %d bytes", key.Name, keySize)
		}
		seen[key.Name] = true
	}
	return nil
}

// numberOf returns the number in the name of a key; 0 if the name has another form.
func numberOf(name string) int {
	digits, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return 0
	}
	number, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return number
}
