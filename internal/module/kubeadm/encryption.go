package kubeadm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/spec"
)

// IDEncryptionAlone is that keys cannot be changed, because not every control plane
// takes part.
const IDEncryptionAlone = "encryption-control-planes"

// IDEncryptionLost is that no control plane has the keys any more that their API
// servers were started with.
const IDEncryptionLost = "encryption-keys-lost"

var (
	// keyEncrypting is the way to what is wanted; it has keys in it, and is on no
	// record.
	keyEncrypting = engine.NewKey[*encrypting]("kubeadm.encryption", nil)
	// keyDecrypts speaks to the API while control planes still have keys.
	keyDecrypts = engine.NewKey[*kube.Client]("kubeadm.encryption-api", nil)
)

// Steps of encryption, in their order.
const (
	stepKeysRead    = "encryption.read"
	stepKeysWrite   = "encryption.write"
	stepKeysRewrite = "encryption.rewrite"
)

// Encryption is the module that comes before what control planes are started with:
// it makes keys and has all API servers read by them. Where nothing is to be
// encrypted any more everything is written anew here, as long as they have keys.
func Encryption(env module.Env) engine.Module {
	tasks := []engine.Task{keysTask(env), readTask(env)}
	if env.Cluster.Spec.Kubernetes.Encryption == nil {
		tasks = append(tasks, decryptsTask(env), writeTask(env, stepKeysRead), rewriteTask(env, keyDecrypts))
	}
	return engine.Module{Name: "encryption", Tasks: tasks}
}

// Encrypted is the module that comes when all API servers read by the keys: it has
// them write by the one that is wanted, writes everything anew and forgets the
// others. Where nothing is to be encrypted any more it takes the keys away.
func Encrypted(env module.Env) engine.Module {
	if env.Cluster.Spec.Kubernetes.Encryption == nil {
		return engine.Module{Name: "encryption", Tasks: []engine.Task{{
			ID: "encryption.gone", Title: "take keys away that encrypt nothing any more", On: keepsKeys(env),
			When: func(s *engine.Scope) bool { return hasKeys(s.Host()) },
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.Absent{Path: module.EncryptionFile}}, nil
			},
		}}}
	}
	return engine.Module{Name: "encryption", Tasks: []engine.Task{
		writeTask(env, stepKeysRead, "kubeadm.init.wait", "join.settings", "join.api"),
		rewriteTask(env, module.KeyKube),
		keyFileTask(env, "encryption.last", "forget keys that nothing is encrypted by", func(e *encrypting) map[string]module.Encryption { return e.last }, stepKeysRewrite),
	}}
}

// restartTime bounds the restart of an API server, in seconds. A kubelet waits
// longer with each restart that follows another within minutes, five at most.
const restartTime = 600

func keepsKeys(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) && env.Stays(h) }
}

func hasKeys(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, module.EncryptionFile)
}

// encrypts says that something is encrypted, or is to be.
func encrypts(env module.Env, s *engine.Scope) bool {
	return env.Cluster.Spec.Kubernetes.Encryption != nil || slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool { return keepsKeys(env)(h) && hasKeys(h) })
}

// runsAlready says that there is a cluster whose control planes may have written.
func runsAlready(s *engine.Scope) bool {
	return slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) && module.Holds(h) })
}

// keysTask looks at the keys of all control planes at once. It makes one when the
// operation runs: a plan has no secret. What it makes is nowhere before the next
// step has written it, and what was written is found again.
func keysTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "encryption.keys", Title: "look at keys for encryption", On: env.IsFirst,
		// Without any keys, too: API servers may have been started with some.
		When:     func(s *engine.Scope) bool { return encrypts(env, s) || runsAlready(s) },
		Provides: []engine.KeyRef{keyEncrypting.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				e := &encrypting{have: map[string]module.Encryption{}, want: map[string]module.EncryptionKey{}, fresh: !runsAlready(s)}
				if err := e.look(ctx, env, s); err != nil {
					return nil, err
				}
				if wanted := env.Cluster.Spec.Kubernetes.Encryption; wanted != nil {
					if err := e.choose(wanted, s.Operation() != ""); err != nil {
						return nil, err
					}
				}
				if err := e.layOut(); err != nil {
					return nil, err
				}
				if err := e.alone(env, s); err != nil {
					return nil, err
				}
				engine.Provide(s, keyEncrypting, e)
				return nil, nil
			},
			Apply: func(context.Context, *engine.Scope) error { return errors.New("looking changes nothing") },
		},
	}
}

// look reads the files of the control planes. Where none has one that API servers were
// started with, another key would let them read nothing of what is stored.
func (e *encrypting) look(ctx context.Context, env module.Env, s *engine.Scope) error {
	lost := ""
	for _, h := range s.Hosts() {
		if !keepsKeys(env)(h) {
			continue
		}
		e.hosts = append(e.hosts, h.Name)
		results, err := h.Conn.Check(ctx, op.List{
			op.ReadFile{Path: module.EncryptionFile, Secret: true}, op.ReadFile{Path: module.APIServerManifest},
		})
		if err != nil {
			return fmt.Errorf("reading keys on %s: %w", h.Name, err)
		}
		for _, r := range results {
			if r.Error != nil {
				return fmt.Errorf("reading keys on %s: %w", h.Name, r.Error)
			}
		}
		own, err := module.EncryptionOf(results[1].Output)
		if err != nil && encrypts(env, s) { // else a manifest that is damaged is put right
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		if own != "" && own != module.EncryptionFile && env.Cluster.Spec.Kubernetes.Encryption != nil {
			return diag.List{{
				ID: spec.IDEncryptionForeign, Severity: diag.Error, Host: h.Name, Message: "its API server encrypts by a configuration that is not Slipway's: " + own,
				Hint: "have it decrypt everything first, and take the argument out; then switch encryption on",
			}}
		}
		if results[0].Missing {
			if own == module.EncryptionFile {
				lost = h.Name
			}
			continue
		}
		if e.have[h.Name], err = module.ParseEncryption(results[0].Output); err != nil {
			return fmt.Errorf("%s: %w; put it back from another control plane or from a backup", h.Name, err)
		}
	}
	if lost == "" || len(e.have) > 0 {
		return nil
	}
	return diag.List{{
		ID: IDEncryptionLost, Severity: diag.Error, Host: lost, Message: "no control plane has " + module.EncryptionFile + " any more, by which its API server reads what is encrypted",
		Hint: "put it back from a backup set before anything restarts that API server; if nothing was encrypted yet, take --" + spec.EncryptionFlag + " out of " + module.APIServerManifest,
	}}
}

// choose says by which key what is wanted is encrypted. In a plan a key that is yet
// to be made is nothing but its name's beginning.
func (e *encrypting) choose(wanted *v1alpha1.Encryption, makes bool) (err error) {
	key, ok := e.current(wanted)
	switch {
	case ok:
	case makes:
		if key, err = newKey(wanted); err != nil {
			return fmt.Errorf("making a key: %w", err)
		}
	default:
		key = module.EncryptionKey{Provider: wanted.Provider, Name: generation(wanted)}
	}
	for _, r := range wanted.Resources {
		e.want[r] = key
	}
	return nil
}

// alone refuses a change of keys in which not every control plane takes part: one
// would not read what the others write, or write what they do not read. One that
// is given up, or has never joined, does neither.
func (e *encrypting) alone(env module.Env, s *engine.Scope) error {
	var missing []string
	for _, h := range env.Absent {
		if slices.Contains(h.Roles, v1alpha1.RoleControlPlane) {
			missing = append(missing, h.Name)
		}
	}
	for _, l := range env.Leaving {
		out := l.Gone || slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool { return h.Name == l.Name && !module.Holds(h) })
		if slices.Contains(l.Roles, v1alpha1.RoleControlPlane) && !out {
			missing = append(missing, l.Name)
		}
	}
	if len(missing) == 0 || len(e.rewrite) == 0 {
		return nil
	}
	return diag.List{{
		ID: IDEncryptionAlone, Severity: diag.Error,
		Message: "keys for encryption are changed on all control planes or on none, and these take no part, or leave: " + strings.Join(missing, ", "),
		Hint:    "first have all of them answer, or take off those that are gone (slipway delete node NAME) with the encryption as it was; then: slipway apply -f FILE",
	}}
}

// keyFileTask has API servers go by a stage of their keys: one after the other, and
// none before the one before it serves.
func keyFileTask(env module.Env, id, title string, stage func(*encrypting) map[string]module.Encryption, needs ...string) engine.Task {
	return engine.Task{
		ID: id, Title: title, On: keepsKeys(env), Needs: needs, NeedsAll: len(needs) > 0, Timeout: 16 * time.Minute,
		When:     func(s *engine.Scope) bool { return encrypts(env, s) && runsAlready(s) },
		Rollout:  engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Consumes: []engine.KeyRef{keyEncrypting.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			e := engine.Get(s, keyEncrypting)
			if e == nil {
				return nil, nil
			}
			return e.file(env, s.Host(), stage(e)[s.Host().Name], id != stepKeysRead)
		},
	}
}

// file is a stage of a host's keys. follows says that its API server has keys by
// then; else it has if the file was there before.
func (e *encrypting) file(env module.Env, h *engine.Host, keys module.Encryption, follows bool) (op.List, error) {
	off := env.Cluster.Spec.Kubernetes.Encryption == nil
	if len(keys) == 0 || off && e.have[h.Name] == nil {
		return nil, nil
	}
	text, err := keys.Bytes()
	if err != nil {
		return nil, err
	}
	list := op.List{op.File{Path: module.EncryptionFile, Mode: 0o600, Content: text, Secret: true}}
	if follows || module.Holds(h) && e.have[h.Name] != nil {
		list = append(list, op.PodRestart{Manifest: module.APIServerManifest, Files: []string{module.EncryptionFile}, TimeoutSeconds: restartTime})
		if !e.has(h.Name, text) { // else one that does not serve may wait for what comes after this
			list = append(list, ownAPI(env))
		}
	}
	return list, nil
}

// has says that a host's file was this already.
func (e *encrypting) has(host string, text []byte) bool {
	if e.have[host] == nil {
		return false
	}
	is, err := e.have[host].Bytes()
	return err == nil && bytes.Equal(is, text)
}

// readTask has all API servers read what any of them may come to write. One that is
// yet to start gets its keys here.
func readTask(env module.Env) engine.Task {
	t := keyFileTask(env, stepKeysRead, "bring keys for encryption", func(e *encrypting) map[string]module.Encryption { return e.read })
	t.When = func(s *engine.Scope) bool { return encrypts(env, s) }
	return t
}

// writeTask has all of them write by what is wanted.
func writeTask(env module.Env, needs ...string) engine.Task {
	return keyFileTask(env, stepKeysWrite, "have API servers write by the key that is wanted", func(e *encrypting) map[string]module.Encryption { return e.write }, needs...)
}

// rewriteTask writes everything anew, and looks in etcd that nothing is left.
func rewriteTask(env module.Env, api engine.Key[*kube.Client]) engine.Task {
	return engine.Task{
		ID: stepKeysRewrite, Title: "write anew what is encrypted otherwise", On: env.IsFirst, Needs: []string{stepKeysWrite}, NeedsAll: true, Timeout: 2 * time.Hour,
		When:     func(s *engine.Scope) bool { return encrypts(env, s) && runsAlready(s) },
		Consumes: []engine.KeyRef{keyEncrypting.Ref(), api.Ref()},
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) (out []plan.OpChange, _ error) {
				e := engine.Get(s, keyEncrypting)
				if e == nil {
					return nil, nil
				}
				for _, r := range slices.Sorted(maps.Keys(e.rewrite)) {
					how := "write all anew, encrypted by " + e.rewrite[r].Provider
					if e.rewrite[r].Provider == module.Plain {
						how = "write all anew, not encrypted"
					}
					out = append(out, plan.OpChange{Kind: module.KindObject, Target: r, Summary: how})
				}
				return out, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				e, client := engine.Get(s, keyEncrypting), engine.Get(s, api)
				for _, r := range slices.Sorted(maps.Keys(e.rewrite)) {
					if verified(ctx, env, s, r, e.rewrite[r]) == nil {
						continue // nothing was written otherwise, or nothing is left of it
					}
					if client == nil {
						return errors.New("the API does not answer")
					}
					if err := client.Rewrite(ctx, r, func(n int) { s.Tell("%d %s written", n, r) }); err != nil {
						return err
					}
					if err := verified(ctx, env, s, r, e.rewrite[r]); err != nil {
						return err
					}
				}
				return nil
			},
		},
	}
}

// verified asks etcd itself: keys are forgotten next.
func verified(ctx context.Context, env module.Env, s *engine.Scope, resource string, key module.EncryptionKey) error {
	o := op.EtcdValues{EtcdClient: module.EtcdClient(), Begins: key.Begins()}
	if o.Endpoints = []string{env.OwnMember()}; !env.Stacked() {
		o.Endpoints, o.Cert, o.Key = env.EtcdEndpoints(), module.EtcdClientCert, module.EtcdClientKey
	}
	o.Prefix = env.Stored(resource)
	results, err := s.Host().Conn.Check(ctx, op.List{o})
	if err != nil {
		return err
	}
	if results[0].Error != nil {
		return results[0].Error
	}
	var found op.EtcdValued
	if err := json.Unmarshal(results[0].Output, &found); err != nil {
		return fmt.Errorf("reading what etcd has of %s: %w", resource, err)
	}
	if found.Others > 0 {
		return fmt.Errorf("%d of %d %s are not as they were to be written, the first is %s: no key is forgotten", found.Others, found.Keys, resource, found.First)
	}
	s.Tell("etcd has %d %s, all of them so", found.Keys, resource)
	return nil
}

// decryptsTask speaks to the API before control planes have their new settings.
func decryptsTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "encryption.reach", Title: "reach the API", On: env.IsFirst,
		When:     func(s *engine.Scope) bool { return encrypts(env, s) && runsAlready(s) },
		Provides: []engine.KeyRef{keyDecrypts.Ref()},
		Ops:      func(*engine.Scope) (op.List, error) { return op.List{op.ReadFile{Path: adminConf, Secret: true}}, nil },
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			if results[0].Missing {
				return nil
			}
			client, err := kube.New(results[0].Output, ownServer(s), kube.Options{Address: localAPI(env), Patience: apiPatience})
			if err != nil {
				return err
			}
			engine.Provide(s, keyDecrypts, client)
			return nil
		},
	}
}
