package kubeadm

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/secret"
)

// A keyPlan holds the keys of control planes, and the path from there to the wanted
// state. It depends only on the files on hosts, so it continues wherever an earlier
// attempt stopped:
//
//	read     every API server reads what any of them may write
//	write    every API server writes with the wanted key
//	rewrite  everything is rewritten
//	last     unused keys are removed
//
// A file with only the wanted key exists only after everything was rewritten.
type keyPlan struct {
	hosts []string                     // control planes in order
	have  map[string]module.Encryption // by host; missing means no file
	want  map[string]module.EncryptionKey
	// fresh reports whether nothing was written yet: there is no cluster.
	fresh bool

	read, write, last map[string]module.Encryption // by host
	// rewrite holds the resources that are rewritten, with the key for each.
	rewrite map[string]module.EncryptionKey
}

// allResources returns all resources that are encrypted, or will be.
func (e *keyPlan) allResources() []string {
	all := map[string]bool{}
	for r := range e.want {
		all[r] = true
	}
	for _, file := range e.have {
		for r := range file {
			all[r] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// planStages computes the stages.
func (e *keyPlan) planStages() error {
	e.read, e.write, e.last = map[string]module.Encryption{}, map[string]module.Encryption{}, map[string]module.Encryption{}
	e.rewrite = map[string]module.EncryptionKey{}
	for _, h := range e.hosts {
		e.read[h], e.write[h], e.last[h] = module.Encryption{}, module.Encryption{}, module.Encryption{}
	}
	for _, r := range e.allResources() {
		to, ok := e.want[r]
		if !ok {
			to = module.EncryptionKey{Provider: module.Plain}
		}
		if err := e.planResourceStages(r, to); err != nil {
			return err
		}
	}
	return nil
}

func (e *keyPlan) planResourceStages(r string, to module.EncryptionKey) error {
	is, all := e.stateOf(r, to)
	if err := differingKeysError(r, append(slices.Clone(all), to)); err != nil {
		return err
	}
	done := e.isRewritten(is, to)
	if !done {
		e.rewrite[r] = to
	}
	for _, h := range e.hosts {
		last := []module.EncryptionKey{to}
		read, write := last, last
		if !done {
			read = module.MergeKeys(module.MergeKeys(is[h], all...), to)
			write = module.MergeKeys(last, read...)
		}
		if to.Provider != module.Plain || !done {
			e.read[h][r], e.write[h][r] = read, write
		}
		if to.Provider != module.Plain {
			e.last[h][r] = last
		}
	}
	return nil
}

// stateOf returns how each host reads a resource, and all keys together. A host without a
// file, when others have one, gets their keys: it is joining, or has lost its file.
func (e *keyPlan) stateOf(r string, to module.EncryptionKey) (is map[string][]module.EncryptionKey, all []module.EncryptionKey) {
	is = map[string][]module.EncryptionKey{}
	var some []module.EncryptionKey
	for _, h := range e.hosts {
		if file := e.have[h]; file != nil {
			is[h] = file.KeysFor(r)
			if all = module.MergeKeys(all, is[h]...); some == nil {
				some = is[h]
			}
		}
	}
	switch {
	case some == nil && e.fresh:
		some = []module.EncryptionKey{to}
	case some == nil, len(e.want) == 0:
		some = module.Encryption(nil).KeysFor(r)
	}
	for _, h := range e.hosts {
		if is[h] == nil {
			is[h] = some
			all = module.MergeKeys(all, some...)
		}
	}
	return is, all
}

// isRewritten reports whether everything was rewritten: one host has removed all other
// keys, which is the last stage, and all hosts write with the key.
func (e *keyPlan) isRewritten(is map[string][]module.EncryptionKey, to module.EncryptionKey) bool {
	forgot := false
	for _, h := range e.hosts {
		if !is[h][0].IsSameKey(to) {
			return false
		}
		// A host without a file has removed no keys.
		forgot = forgot || len(is[h]) == 1 && (e.have[h] != nil || e.fresh)
	}
	return forgot
}

// differingKeysError returns an error for keys with the same name and different secrets.
func differingKeysError(r string, keys []module.EncryptionKey) error {
	seen := map[string]module.EncryptionKey{}
	for _, k := range keys {
		name := k.Provider + "/" + k.Name
		if other, ok := seen[name]; ok && !other.Secret.Equal(k.Secret) {
			return fmt.Errorf("control planes have two different keys named %s for %s: "+
				"one of the files %s does not belong to this cluster", k.Name, r, module.EncryptionFile)
		}
		seen[name] = k
	}
	return nil
}

// currentKey returns the existing key of the wanted generation, if there is one: preferably
// the one that is used for writing.
func (e *keyPlan) currentKey(wanted *v1alpha1.Encryption) (module.EncryptionKey, bool) {
	var others []module.EncryptionKey
	for _, h := range e.hosts {
		for _, r := range slices.Sorted(maps.Keys(e.have[h])) {
			for i, k := range e.have[h][r] {
				if k.Provider != wanted.Provider || !strings.HasPrefix(k.Name, keyGeneration(wanted)) {
					continue
				}
				if i == 0 {
					return k, true
				}
				others = append(others, k)
			}
		}
	}
	if len(others) > 0 {
		return others[0], true
	}
	return module.EncryptionKey{}, false
}

// keyGeneration returns the prefix of the names of keys of the wanted generation.
func keyGeneration(wanted *v1alpha1.Encryption) string { return strconv.Itoa(wanted.Generation) + "-" }

// newKey creates a key. Its name is unique, because a backup may contain another key of
// the same generation.
func newKey(wanted *v1alpha1.Encryption) (module.EncryptionKey, error) {
	raw, name := make([]byte, 32), make([]byte, 6)
	if _, err := rand.Read(raw); err != nil {
		return module.EncryptionKey{}, err
	}
	if _, err := rand.Read(name); err != nil {
		return module.EncryptionKey{}, err
	}
	return module.EncryptionKey{
		Provider: wanted.Provider, Name: keyGeneration(wanted) + hex.EncodeToString(name),
		Secret: secret.New(base64.StdEncoding.EncodeToString(raw)),
	}, nil
}
