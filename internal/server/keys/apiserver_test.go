package keys

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	storagevalue "k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/util/keyutil"
)

// secretPath authenticates an encrypted value: etcd's path of the Secret.
var secretPath = storagevalue.DefaultContext("/registry/secrets/default/password")

// loadTransformer returns the transformer that an API server builds from the configuration.
func loadTransformer(t *testing.T, k *Keys) storagevalue.Transformer {
	t.Helper()
	config, err := encryptionconfig.LoadEncryptionConfig(t.Context(), k.EncryptionConfig(), true, "test")
	if err != nil {
		t.Fatal(err)
	}
	if len(config.Transformers) != 1 {
		t.Fatalf("%d kinds are encrypted", len(config.Transformers))
	}
	return config.Transformers[schema.GroupResource{Resource: "secrets"}]
}

// encryptSecret returns a value as an API server stores it.
func encryptSecret(t *testing.T, k *Keys) []byte {
	t.Helper()
	stored, err := loadTransformer(t, k).TransformToStorage(t.Context(), []byte("secret"), secretPath)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// decryptSecret returns whether a stored value has to be written again, with the first key.
func decryptSecret(t *testing.T, k *Keys, stored []byte) (stale bool, err error) {
	t.Helper()
	text, stale, err := loadTransformer(t, k).TransformFromStorage(t.Context(), stored, secretPath)
	if err == nil && string(text) != "secret" {
		err = errors.New("decrypted to other text")
	}
	return stale, err
}

func TestEncryptionConfig_WorksInAPIServer(t *testing.T) {
	k := openFresh(t)
	ctx := context.WithoutCancel(t.Context())
	stored := encryptSecret(t, k)
	if stale, err := decryptSecret(t, k, stored); err != nil || stale {
		t.Errorf("a new value: stale %v, %v", stale, err)
	}
	plain, stale, err := loadTransformer(t, k).TransformFromStorage(ctx, []byte("written before"), secretPath)
	if err != nil || !stale || string(plain) != "written before" {
		t.Errorf("a value that is not encrypted: %q, stale %v, %v", plain, stale, err)
	}
}

func TestServiceAccountKeys_WorkInAPIServer(t *testing.T) {
	k := openFresh(t)
	if _, err := keyutil.PrivateKeyFromFile(k.ServiceAccountKey()); err != nil {
		t.Error(err)
	}
	for _, path := range k.ServiceAccountPublicKeys() {
		if _, err := keyutil.PublicKeysFromFile(path); err != nil {
			t.Error(err)
		}
	}
}
