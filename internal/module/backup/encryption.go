package backup

import (
	"context"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// keyEncrypts is a control plane's file of keys; it is on no record.
var keyEncrypts = engine.NewHostKey[[]byte]("restore.keys-of-now", nil)

// encryption lets API servers, which are stopped meanwhile, read what is restored: by
// the keys that the set has, or as it was before there were any. They write with the
// present keys, as before: nobody who wrote the set chooses by which key Secrets are
// encrypted. The next apply finds out which keys are still used.
func encryption(src Source) []engine.Task {
	control := engine.Role(v1alpha1.RoleControlPlane)
	return []engine.Task{
		{
			ID: "restore.encrypted", Title: "look at keys for encryption", On: control,
			When:     func(*engine.Scope) bool { return src.Rescue == nil },
			Provides: []engine.KeyRef{keyEncrypts.Ref()},
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.ReadFile{Path: module.EncryptionFile, Secret: true}}, nil
			},
			After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
				engine.Provide(s, keyEncrypts, results[0].Output)
				return nil
			},
		},
		{
			ID: "restore.encryption", Title: "add encryption keys of the backup", On: control, Needs: []string{StepSwap},
			When:     func(*engine.Scope) bool { return src.Rescue == nil },
			Consumes: []engine.KeyRef{keyEncrypts.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				now := engine.Get(s, keyEncrypts)
				if len(now) == 0 {
					return nil, nil // nothing is encrypted; or they are lost, and come with the other keys
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

// withKeysOf returns the present keys with those of a set behind them, and has what is
// not encrypted be readable, too: a snapshot may be older than the keys that are in its
// set. API servers write by the first key, which is always a present one.
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
		out = out.With(of)
	}
	for r := range out {
		out[r] = module.Readable(out[r], module.EncryptionKey{Provider: module.Plain})
	}
	return out.Bytes()
}
