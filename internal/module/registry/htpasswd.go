package registry

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

// The cost of a hash applies to attackers who guess passwords, and to the registry at each
// request. A generated password cannot be guessed from a word list, so its hash can be
// cheap.
const (
	costChosen = 10
	costMade   = 5
)

// HashPassword returns a new hash of the registry's password, with a random salt.
func HashPassword(r *module.Registry) (string, error) {
	hash, err := bcrypt.GenerateFromPassword([]byte(r.Password.Reveal()), hashCost(r))
	if err != nil {
		return "", fmt.Errorf("hashing the registry's password: %w", err)
	}
	return string(hash), nil
}

// hashLength is the length of every hash. A comparison ignores text after it.
const hashLength = 60

// MatchesPassword reports whether a hash belongs to the password of the registry and has the
// expected cost. The cost is compared first, because hashes come from hosts and the cost
// determines how long a comparison takes.
func MatchesPassword(r *module.Registry, hash string) bool {
	is, err := bcrypt.Cost([]byte(hash))
	return err == nil && len(hash) == hashLength && is == hashCost(r) &&
		bcrypt.CompareHashAndPassword([]byte(hash), []byte(r.Password.Reveal())) == nil
}

func hashCost(r *module.Registry) int {
	if r.Made {
		return costMade
	}
	return costChosen
}

// keyUsers is the file with the user of the registry, as it is on the host.
var keyUsers = engine.NewHostKey[[]byte]("registry.users", nil)

// usersTask reads that file: another manager, or an earlier version of Slipway, may have
// written it with another hash of the same password.
func usersTask(env module.Env) engine.Task {
	return engine.Task{
		ID: "registry.users", Title: "read registry user", On: env.IsRegistry, Provides: []engine.KeyRef{keyUsers.Ref()},
		Ops: func(*engine.Scope) (op.List, error) {
			return op.List{op.ReadFile{Path: module.RegistryUsers, Secret: true}}, nil
		},
		After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
			engine.ProvideValue(s, keyUsers, results[0].Output)
			return nil
		},
	}
}

// renderUserFile returns the file with the user of the registry. If the hash on the
// host matches the password, the file is not changed.
func renderUserFile(env module.Env, onHost []byte) []byte {
	user := env.Cluster.Spec.Registry.Private.Username
	hash := env.Registry.Hash
	if name, is, ok := strings.Cut(strings.TrimSuffix(string(onHost), "\n"), ":"); ok && name == user && is != hash &&
		MatchesPassword(env.Registry, is) {
		hash = is
	}
	return []byte(user + ":" + hash + "\n")
}
