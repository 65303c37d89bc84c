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

// IDEncryptionAlone means that keys cannot be changed, because not every control plane
// takes part.
const IDEncryptionAlone = "encryption-control-planes"

// IDEncryptionLost means that no control plane has the keys that its API server was
// started with.
const IDEncryptionLost = "encryption-keys-lost"

var (
	// keyEncrypting is the path to the wanted encryption. It contains keys, and is not
	// written to any record.
	keyEncrypting = engine.NewKey[*keyPlan]("kubeadm.encryption", nil)
	// keyDecrypts is a client of the API while control planes still have keys.
	keyDecrypts = engine.NewKey[*kube.Client]("kubeadm.encryption-api", nil)
)

// The steps of encryption, in order.
const (
	stepKeysRead    = "encryption.read"
	stepKeysWrite   = "encryption.write"
	stepKeysRewrite = "encryption.rewrite"
)

// PrepareEncryption is the module that runs before control planes are started: it
// creates keys, and makes all API servers read with them. When encryption is disabled,
// everything is rewritten here, while the API servers still have the keys.
func PrepareEncryption(env module.Env) engine.Module {
	tasks := []engine.Task{keysTask(env), readTask(env)}
	if env.Cluster.Spec.Kubernetes.Encryption == nil {
		tasks = append(tasks, decryptsTask(env), writeTask(env, stepKeysRead), rewriteTask(env, keyDecrypts))
	}
	return engine.Module{Name: "encryption", Tasks: tasks}
}

// VerifyEncryption is the module that runs when all API servers read with the keys: it
// makes them write with the wanted key, rewrites everything, and removes the other
// keys. When encryption is disabled, it removes all keys.
func VerifyEncryption(env module.Env) engine.Module {
	if env.Cluster.Spec.Kubernetes.Encryption == nil {
		return engine.Module{Name: "encryption", Tasks: []engine.Task{{
			ID: "encryption.gone", Title: "remove unused encryption keys", On: keepsKeys(env),
			When: func(s *engine.Scope) bool { return hasKeys(s.Host()) },
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.Absent{Path: module.EncryptionFile}}, nil
			},
		}}}
	}
	return engine.Module{Name: "encryption", Tasks: []engine.Task{
		writeTask(env, stepKeysRead, "kubeadm.init.wait", "join.settings", "join.api"),
		rewriteTask(env, module.KeyKube),
		keyFileTask(env, "encryption.last", "remove previous encryption keys",
			func(e *keyPlan) map[string]module.Encryption { return e.last }, stepKeysRewrite),
	}}
}

// restartTime is the timeout for the restart of an API server, in seconds. After several
// restarts within minutes, a kubelet waits up to five minutes.
const restartTime = 600

func keepsKeys(env module.Env) func(*engine.Host) bool {
	return func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) && env.IsStaying(h) }
}

func hasKeys(h *engine.Host) bool {
	return h.Facts != nil && slices.Contains(h.Facts.Present, module.EncryptionFile)
}

// needsEncryption reports whether something is encrypted, or will be.
func needsEncryption(env module.Env, s *engine.Scope) bool {
	return env.Cluster.Spec.Kubernetes.Encryption != nil ||
		slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool { return keepsKeys(env)(h) && hasKeys(h) })
}

// isClusterRunning reports whether there is a cluster whose control planes may have written
// data.
func isClusterRunning(s *engine.Scope) bool {
	return slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) && module.IsJoined(h) })
}

// keysTask reads the keys of all control planes. It creates a key when the operation runs,
// because a plan contains no secrets. The key exists only in memory until the next step
// writes it; a key that was written is found again.
func keysTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "encryption.keys", Title: "check encryption keys", On: env.IsFirst,
		// Also without any key files: API servers may have been started with keys.
		When:     func(s *engine.Scope) bool { return needsEncryption(env, s) || isClusterRunning(s) },
		Provides: []engine.KeyRef{keyEncrypting.Ref()},
		Run: &engine.Action{
			Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
				e := &keyPlan{have: map[string]module.Encryption{}, want: map[string]module.EncryptionKey{}, fresh: !isClusterRunning(s)}
				if err := e.readKeyFiles(ctx, env, s); err != nil {
					return nil, err
				}
				if wanted := env.Cluster.Spec.Kubernetes.Encryption; wanted != nil {
					if err := e.chooseKey(wanted, s.OperationID() != ""); err != nil {
						return nil, err
					}
				}
				if err := e.planStages(); err != nil {
					return nil, err
				}
				if err := e.requireAllControlPlanes(env, s); err != nil {
					return nil, err
				}
				engine.ProvideValue(s, keyEncrypting, e)
				return nil, nil
			},
			Apply: func(context.Context, *engine.Scope) error { return errors.New("this step changes nothing") },
		},
	}
}

// readKeyFiles reads the key files of the control planes. If none has the file that API
// servers were started with, a new key would make all stored data unreadable.
func (e *keyPlan) readKeyFiles(ctx context.Context, env module.Env, s *engine.Scope) error {
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
			return fmt.Errorf("reading encryption keys on %s: %w", h.Name, err)
		}
		for _, r := range results {
			if r.Error != nil {
				return fmt.Errorf("reading encryption keys on %s: %w", h.Name, r.Error)
			}
		}
		own, err := module.FindEncryptionFile(results[1].Output)
		if err != nil && needsEncryption(env, s) { // otherwise a damaged manifest is restored later
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		if own != "" && own != module.EncryptionFile && env.Cluster.Spec.Kubernetes.Encryption != nil {
			return diag.List{{
				ID: spec.IDEncryptionForeign, Severity: diag.Error, Host: h.Name,
				Message: "its API server uses an encryption configuration that Slipway did not write: " + own,
				Hint:    "decrypt everything with that configuration and remove the argument before you enable encryption",
			}}
		}
		if results[0].Missing {
			if own == module.EncryptionFile {
				lost = h.Name
			}
			continue
		}
		if e.have[h.Name], err = module.ParseEncryption(results[0].Output); err != nil {
			return fmt.Errorf("%s: %w; restore the file from another control plane or from a backup", h.Name, err)
		}
	}
	if lost == "" || len(e.have) > 0 {
		return nil
	}
	return diag.List{{
		ID: IDEncryptionLost, Severity: diag.Error, Host: lost,
		Message: "no control plane has " + module.EncryptionFile + ", which its API server needs to read encrypted data",
		Hint: "restore the file from a backup set before the API server is restarted; " +
			"if nothing was encrypted yet, remove --" + spec.EncryptionFlag + " from " + module.APIServerManifest,
	}}
}

// chooseKey selects the key for the wanted resources. In a plan, a key that does not exist
// yet has only the prefix of its name.
func (e *keyPlan) chooseKey(wanted *v1alpha1.Encryption, makes bool) (err error) {
	key, ok := e.currentKey(wanted)
	switch {
	case ok:
	case makes:
		if key, err = newKey(wanted); err != nil {
			return fmt.Errorf("creating a key: %w", err)
		}
	default:
		key = module.EncryptionKey{Provider: wanted.Provider, Name: keyGeneration(wanted)}
	}
	for _, r := range wanted.Resources {
		e.want[r] = key
	}
	return nil
}

// requireAllControlPlanes returns an error if not every control plane takes part in a
// change of keys: one would not read what the others write, or write what they cannot
// read. A control plane that is force-removed or has never joined does neither.
func (e *keyPlan) requireAllControlPlanes(env module.Env, s *engine.Scope) error {
	var missing []string
	for _, h := range env.Absent {
		if slices.Contains(h.Roles, v1alpha1.RoleControlPlane) {
			missing = append(missing, h.Name)
		}
	}
	for _, l := range env.Leaving {
		out := l.IsLost || slices.ContainsFunc(s.Hosts(), func(h *engine.Host) bool { return h.Name == l.Name && !module.IsJoined(h) })
		if slices.Contains(l.Roles, v1alpha1.RoleControlPlane) && !out {
			missing = append(missing, l.Name)
		}
	}
	if len(missing) == 0 || len(e.rewrite) == 0 {
		return nil
	}
	return diag.List{{
		ID: IDEncryptionAlone, Severity: diag.Error,
		Message: "encryption keys can be changed only on all control planes together, but these " +
			"do not take part or are leaving: " + strings.Join(missing, ", "),
		Hint: "make all control planes reachable, or remove the lost ones (slipway delete node NAME) without changing the encryption; " +
			"then run slipway apply -f FILE",
	}}
}

// keyFileTask writes one stage of the keys for API servers: one after the other, and each
// must serve before the next one.
func keyFileTask(env module.Env, id, title string, stage func(*keyPlan) map[string]module.Encryption, needs ...string) engine.Task {
	return engine.Task{
		ID: id, Title: title, On: keepsKeys(env), Needs: needs, NeedsAll: len(needs) > 0, Timeout: 16 * time.Minute,
		When:     func(s *engine.Scope) bool { return needsEncryption(env, s) && isClusterRunning(s) },
		Rollout:  engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"},
		Consumes: []engine.KeyRef{keyEncrypting.Ref()},
		Ops: func(s *engine.Scope) (op.List, error) {
			e := engine.GetValue(s, keyEncrypting)
			if e == nil {
				return nil, nil
			}
			return e.keyFileOps(env, s.Host(), stage(e)[s.Host().Name], id != stepKeysRead)
		},
	}
}

// keyFileOps returns the operations for one stage of the keys of a host. follows
// reports whether its API server has keys at this point; otherwise it has if the file
// existed before.
func (e *keyPlan) keyFileOps(env module.Env, h *engine.Host, keys module.Encryption, follows bool) (op.List, error) {
	off := env.Cluster.Spec.Kubernetes.Encryption == nil
	if len(keys) == 0 || off && e.have[h.Name] == nil {
		return nil, nil
	}
	text, err := keys.Bytes()
	if err != nil {
		return nil, err
	}
	list := op.List{op.File{Path: module.EncryptionFile, Mode: 0o600, Content: text, Secret: true}}
	if follows || module.IsJoined(h) && e.have[h.Name] != nil {
		list = append(list,
			op.StaticPodRestart{Manifest: module.APIServerManifest, Files: []string{module.EncryptionFile}, TimeoutSeconds: restartTime})
		if !e.hasContent(h.Name, text) { // otherwise an API server that does not serve may depend on a later step
			list = append(append(list, waitLocalAPI(env)), env.ComponentsHealthy()...)
		}
	}
	return list, nil
}

// hasContent reports whether the file of a host already has this content.
func (e *keyPlan) hasContent(host string, text []byte) bool {
	if e.have[host] == nil {
		return false
	}
	is, err := e.have[host].Bytes()
	return err == nil && bytes.Equal(is, text)
}

// readTask makes all API servers read with every key that any of them may write with. An
// API server that has not started yet receives its keys here.
func readTask(env module.Env) engine.Task {
	t := keyFileTask(env, stepKeysRead, "distribute encryption keys", func(e *keyPlan) map[string]module.Encryption { return e.read })
	t.When = func(s *engine.Scope) bool { return needsEncryption(env, s) }
	return t
}

// writeTask makes all of them write with the wanted key.
func writeTask(env module.Env, needs ...string) engine.Task {
	return keyFileTask(env, stepKeysWrite, "switch API servers to encryption key",
		func(e *keyPlan) map[string]module.Encryption { return e.write }, needs...)
}

// rewriteTask rewrites everything, and verifies in etcd that nothing old remains.
func rewriteTask(env module.Env, api engine.Key[*kube.Client]) engine.Task {
	return engine.Task{
		ID: stepKeysRewrite, Title: "re-encrypt existing objects", On: env.IsFirst, Needs: []string{stepKeysWrite},
		NeedsAll: true, Timeout: 2 * time.Hour,
		When:     func(s *engine.Scope) bool { return needsEncryption(env, s) && isClusterRunning(s) },
		Consumes: []engine.KeyRef{keyEncrypting.Ref(), api.Ref()},
		Run: &engine.Action{
			Check: func(_ context.Context, s *engine.Scope) (out []plan.OpChange, _ error) {
				e := engine.GetValue(s, keyEncrypting)
				if e == nil {
					return nil, nil
				}
				for _, r := range slices.Sorted(maps.Keys(e.rewrite)) {
					how := "rewrite all, encrypted with " + e.rewrite[r].Provider
					if e.rewrite[r].Provider == module.Plain {
						how = "rewrite all, not encrypted"
					}
					out = append(out, plan.OpChange{Kind: module.KindObject, Target: r, Summary: how})
				}
				return out, nil
			},
			Apply: func(ctx context.Context, s *engine.Scope) error {
				e, client := engine.GetValue(s, keyEncrypting), engine.GetValue(s, api)
				for _, r := range slices.Sorted(maps.Keys(e.rewrite)) {
					if verifyStoredValues(ctx, env, s, r, e.rewrite[r]) == nil {
						continue // everything is already written with the key
					}
					if client == nil {
						return errors.New("the API does not answer")
					}
					if err := client.Objects().Rewrite(ctx, r, func(n int) { s.ShowProgress("%d %s written", n, r) }); err != nil {
						return err
					}
					if err := verifyStoredValues(ctx, env, s, r, e.rewrite[r]); err != nil {
						return err
					}
				}
				return nil
			},
		},
	}
}

// verifyStoredValues checks the values in etcd itself, because keys are removed next.
func verifyStoredValues(ctx context.Context, env module.Env, s *engine.Scope, resource string, key module.EncryptionKey) error {
	o := op.EtcdGet{EtcdClient: module.EtcdClient(), Begins: key.ValuePrefix()}
	if o.Endpoints = []string{env.LocalMemberURL()}; !env.HasStackedEtcd() {
		o.Endpoints, o.Cert, o.Key = env.EtcdEndpoints(), module.EtcdClientCert, module.EtcdClientKey
	}
	o.Prefix = env.StoragePrefix(resource)
	results, err := s.Host().Conn.Check(ctx, op.List{o})
	if err != nil {
		return err
	}
	if results[0].Error != nil {
		return results[0].Error
	}
	var found op.EtcdKeyValues
	if err := json.Unmarshal(results[0].Output, &found); err != nil {
		return fmt.Errorf("reading the values of %s in etcd: %w", resource, err)
	}
	if found.Others > 0 {
		return fmt.Errorf("%d of %d %s were not rewritten as requested, the first is %s: "+
			"all keys are kept", found.Others, found.Keys, resource, found.First)
	}
	s.ShowProgress("verified in etcd: all %d %s", found.Keys, resource)
	return nil
}

// decryptsTask connects to the API before control planes have their new settings.
func decryptsTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "encryption.reach", Title: "connect to API", On: env.IsFirst,
		When:     func(s *engine.Scope) bool { return needsEncryption(env, s) && isClusterRunning(s) },
		Provides: []engine.KeyRef{keyDecrypts.Ref()},
		Ops:      func(*engine.Scope) (op.List, error) { return op.List{op.ReadFile{Path: adminConf, Secret: true}}, nil },
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			if results[0].Missing {
				return nil
			}
			client, err := kube.New(results[0].Output, dialLocalServer(s), kube.Options{Address: localAPIAddress(env), Patience: apiPatience})
			if err != nil {
				return err
			}
			engine.ProvideValue(s, keyDecrypts, client)
			return nil
		},
	}
}
