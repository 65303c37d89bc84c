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

// encryption has API servers, which are stopped meanwhile, read what is restored:
// by the keys that the set has, or as it was before there were any. They write so,
// too, and keep the keys of now beside it; what is written by which is for the next
// apply to put in order.
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
			ID: "restore.encryption", Title: "have API servers read by the keys of then", On: control, Needs: []string{StepSwap},
			When:     func(*engine.Scope) bool { return src.Rescue == nil },
			Consumes: []engine.KeyRef{keyEncrypts.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				now := engine.Get(s, keyEncrypts)
				if len(now) == 0 {
					return nil, nil // nothing is encrypted; or they are lost, and come with the other keys
				}
				text, err := keysOfThen(src.Files[module.EncryptionFile], now)
				if err != nil {
					return nil, err
				}
				return op.List{op.File{Path: module.EncryptionFile, Mode: 0o600, Content: text, Secret: true}}, nil
			},
		},
	}
}

// keysOfThen are those of a set, with those of now behind them, and what is not
// encrypted can be read, too: a snapshot may be older than the keys that are in its
// set. The next apply finds out by which of them something is written.
func keysOfThen(then, now []byte) ([]byte, error) {
	has, err := module.ParseEncryption(now)
	if err != nil {
		return nil, err
	}
	set := module.Encryption{}
	if len(then) > 0 {
		if set, err = module.ParseEncryption(then); err != nil {
			return nil, err
		}
	}
	out := set.With(has)
	for r := range out {
		out[r] = module.Readable(out[r], module.EncryptionKey{Provider: module.Plain})
	}
	return out.Bytes()
}
