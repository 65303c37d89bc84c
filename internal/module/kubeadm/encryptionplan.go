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

// An encrypting is what control planes have of keys, and the way from there to
// what is wanted. What the files on hosts say is all that it goes by, so that it
// goes on from wherever one has stopped:
//
//	read     every API server reads what any of them may come to write
//	write    every one writes by what is wanted
//	rewrite  everything is written anew
//	last     what nothing is written by any more is forgotten
//
// A file that has nothing but what is wanted is there when everything was written
// anew, and not before.
type encrypting struct {
	hosts []string                     // control planes in their order
	have  map[string]module.Encryption // by host; none is no file
	want  map[string]module.EncryptionKey
	// fresh says that nothing was written yet: there is no cluster.
	fresh bool

	read, write, last map[string]module.Encryption // by host
	// rewrite are the resources that are written anew, by what.
	rewrite map[string]module.EncryptionKey
}

// resources are all that are encrypted, or are to be.
func (e *encrypting) resources() []string {
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

// layOut finds the way.
func (e *encrypting) layOut() error {
	e.read, e.write, e.last, e.rewrite = map[string]module.Encryption{}, map[string]module.Encryption{}, map[string]module.Encryption{}, map[string]module.EncryptionKey{}
	for _, h := range e.hosts {
		e.read[h], e.write[h], e.last[h] = module.Encryption{}, module.Encryption{}, module.Encryption{}
	}
	for _, r := range e.resources() {
		to, ok := e.want[r]
		if !ok {
			to = module.EncryptionKey{Provider: module.Plain}
		}
		if err := e.layOutOf(r, to); err != nil {
			return err
		}
	}
	return nil
}

func (e *encrypting) layOutOf(r string, to module.EncryptionKey) error {
	is, all := e.stateOf(r, to)
	if err := differing(r, append(slices.Clone(all), to)); err != nil {
		return err
	}
	done := e.done(is, to)
	if !done {
		e.rewrite[r] = to
	}
	for _, h := range e.hosts {
		last := []module.EncryptionKey{to}
		read, write := last, last
		if !done {
			read = module.Readable(module.Readable(is[h], all...), to)
			write = module.Readable(last, read...)
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

// stateOf is how each host reads a resource, and all ways together. A host that
// has no file where others have one gets it as they have it: it joins, or has lost
// its own.
func (e *encrypting) stateOf(r string, to module.EncryptionKey) (is map[string][]module.EncryptionKey, all []module.EncryptionKey) {
	is = map[string][]module.EncryptionKey{}
	var some []module.EncryptionKey
	for _, h := range e.hosts {
		if file := e.have[h]; file != nil {
			is[h] = file.Of(r)
			if all = module.Readable(all, is[h]...); some == nil {
				some = is[h]
			}
		}
	}
	switch {
	case some == nil && e.fresh:
		some = []module.EncryptionKey{to}
	case some == nil, len(e.want) == 0:
		some = module.Encryption(nil).Of(r)
	}
	for _, h := range e.hosts {
		if is[h] == nil {
			is[h] = some
			all = module.Readable(all, some...)
		}
	}
	return is, all
}

// done says that everything was written anew: one has forgotten all else, which
// comes after that, and none writes otherwise.
func (e *encrypting) done(is map[string][]module.EncryptionKey, to module.EncryptionKey) bool {
	forgot := false
	for _, h := range e.hosts {
		if !is[h][0].Is(to) {
			return false
		}
		// A host without a file has forgotten nothing.
		forgot = forgot || len(is[h]) == 1 && (e.have[h] != nil || e.fresh)
	}
	return forgot
}

// differing refuses keys of one name that are not the same.
func differing(r string, keys []module.EncryptionKey) error {
	seen := map[string]module.EncryptionKey{}
	for _, k := range keys {
		name := k.Provider + "/" + k.Name
		if other, ok := seen[name]; ok && !other.Secret.Equal(k.Secret) {
			return fmt.Errorf("control planes have two keys that are called %s for %s: one of their files %s is not the cluster's", k.Name, r, module.EncryptionFile)
		}
		seen[name] = k
	}
	return nil
}

// current is the key of the wanted generation that is there, if one is: that by
// which something is written, else any.
func (e *encrypting) current(wanted *v1alpha1.Encryption) (module.EncryptionKey, bool) {
	var others []module.EncryptionKey
	for _, h := range e.hosts {
		for _, r := range slices.Sorted(maps.Keys(e.have[h])) {
			for i, k := range e.have[h][r] {
				if k.Provider != wanted.Provider || !strings.HasPrefix(k.Name, generation(wanted)) {
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

// generation is how names of keys begin that are of the wanted one.
func generation(wanted *v1alpha1.Encryption) string { return strconv.Itoa(wanted.Generation) + "-" }

// newKey makes a key. No other ever has its name: one of the same generation may
// be in a backup.
func newKey(wanted *v1alpha1.Encryption) (module.EncryptionKey, error) {
	raw, name := make([]byte, 32), make([]byte, 6)
	if _, err := rand.Read(raw); err != nil {
		return module.EncryptionKey{}, err
	}
	if _, err := rand.Read(name); err != nil {
		return module.EncryptionKey{}, err
	}
	return module.EncryptionKey{
		Provider: wanted.Provider, Name: generation(wanted) + hex.EncodeToString(name),
		Secret: secret.New(base64.StdEncoding.EncodeToString(raw)),
	}, nil
}
