package etcdbackup

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// keyEncrypts is the encryption configuration of a control plane. It is not written to any
// record.
var keyEncrypts = engine.NewHostKey[[]byte]("restore.keys-of-now", nil)

// encryptionTasks lets API servers, which are stopped meanwhile, read the restored
// data: with the keys of the set, or unencrypted. They continue to write with their
// present keys, so that the author of the set cannot choose the key that encrypts
// Secrets. The next apply detects which keys are still used.
func encryptionTasks(src Source) []engine.Task {
	control := engine.HasRole(v1alpha1.RoleControlPlane)
	return []engine.Task{
		{
			ID: "restore.encrypted", Title: "check encryption keys", On: control,
			When:     func(*engine.Scope) bool { return src.Rescue == nil },
			Provides: []engine.KeyRef{keyEncrypts.Ref()},
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.ReadFile{Path: module.EncryptionFile, Secret: true}}, nil
			},
			After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
				engine.ProvideValue(s, keyEncrypts, results[0].Output)
				return nil
			},
		},
		{
			ID: "restore.encryption", Title: "add encryption keys from backup", On: control, Needs: []string{StepSwap},
			When:     func(*engine.Scope) bool { return src.Rescue == nil },
			Consumes: []engine.KeyRef{keyEncrypts.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				now := engine.GetValue(s, keyEncrypts)
				if len(now) == 0 {
					return nil, nil // nothing is encrypted, or the keys are lost and are restored with the others
				}
				text, err := withKeysOf(src.Files[module.EncryptionFile], now)
				if err != nil {
					return nil, err
				}
				return op.List{op.File{Path: module.EncryptionFile, Mode: 0o600, Content: text, Secret: true}}, nil
			},
		},
	}
}

// withKeysOf returns the present keys followed by the keys of a set, and makes unencrypted
// data readable, too: a snapshot may be older than the keys in its set. API servers write
// with the first key, which is always a present one.
func withKeysOf(set, present []byte) ([]byte, error) {
	out, err := module.ParseEncryption(present)
	if err != nil {
		return nil, err
	}
	if len(set) > 0 {
		of, err := module.ParseEncryption(set)
		if err != nil {
			return nil, err
		}
		out = out.WithKeysOf(of)
	}
	for r := range out {
		out[r] = module.MergeKeys(out[r], module.EncryptionKey{Provider: module.Plain})
	}
	return out.Bytes()
}
