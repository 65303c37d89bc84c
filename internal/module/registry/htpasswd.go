package registry

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"golang.org/x/crypto/blowfish" //nolint:staticcheck // of bcrypt, in which registries have passwords

	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
)

// What a hash costs whoever tries words, and the registry at each request. A
// password that nobody has chosen is in no list of words: it need not cost much.
const (
	costChosen = 10
	costMade   = 5
)

// htpasswd is the file of the registry's one user. It is the same for the same
// password, so that a plan does not change it: what makes it another's than the
// same password elsewhere is the name of the registry.
func htpasswd(env module.Env) ([]byte, error) {
	cost := costChosen
	if env.Registry.Made {
		cost = costMade
	}
	user := env.Cluster.Spec.Registry.Private.Username
	salt := sha256.Sum256([]byte("registry of " + env.Cluster.Name + "\x00" + spec.RegistryName(env.Cluster) + "\x00" + user))
	hashed, err := bcrypt([]byte(env.Registry.Password.Reveal()), salt[:saltBytes], cost)
	if err != nil {
		return nil, fmt.Errorf("hashing the registry's password: %w", err)
	}
	return []byte(user + ":" + hashed + "\n"), nil
}

const (
	saltBytes = 16
	hashBytes = 23 // of the 24 that come of it: so it was once written, and so it stays
)

// alphabet is bcrypt's own, in its own order.
const alphabet = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// bcrypt hashes a password with a given salt, as golang.org/x/crypto/bcrypt does
// with one by chance.
func bcrypt(password, salt []byte, cost int) (string, error) {
	key := append(password[:len(password):len(password)], 0)
	c, err := blowfish.NewSaltedCipher(key, salt)
	if err != nil {
		return "", err
	}
	for range 1 << cost {
		blowfish.ExpandKey(key, c)
		blowfish.ExpandKey(salt, c)
	}
	text := []byte("OrpheanBeholderScryDoubt")
	for i := 0; i < len(text); i += blowfish.BlockSize {
		for range 64 {
			c.Encrypt(text[i:i+blowfish.BlockSize], text[i:i+blowfish.BlockSize])
		}
	}
	encode := base64.NewEncoding(alphabet).WithPadding(base64.NoPadding).EncodeToString
	return fmt.Sprintf("$2a$%02d$%s%s", cost, encode(salt), encode(text[:hashBytes])), nil
}
