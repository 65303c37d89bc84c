package keys

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/server/privatefile"
)

func keyNames(t *testing.T, k *Keys) []string {
	t.Helper()
	names, err := k.EncryptionKeyNames()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestRotation_KeepsOldValuesReadable: an API server that reads the file after any step can
// decrypt all values.
func TestRotation_KeepsOldValuesReadable(t *testing.T) {
	k := openFresh(t)
	old := encryptSecret(t, k)
	checkOld := func(step string, names []string, wantStale bool) {
		t.Helper()
		if d := cmp.Diff(names, keyNames(t, k)); d != "" {
			t.Errorf("%s (-want +got):\n%s", step, d)
		}
		if stale, err := decryptSecret(t, k, old); err != nil || stale != wantStale {
			t.Errorf("%s: stale %v, %v", step, stale, err)
		}
	}
	name, err := k.AddEncryptionKey()
	if err != nil || name != "key2" {
		t.Fatal(name, err)
	}
	checkOld("after add", []string{"key1", "key2"}, false)
	if err := k.PromoteEncryptionKey(name); err != nil {
		t.Fatal(err)
	}
	checkOld("after promote", []string{"key2", "key1"}, true)
	written := encryptSecret(t, k)
	if err := k.PruneEncryptionKeys(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"key2"}, keyNames(t, k)); d != "" {
		t.Errorf("after prune (-want +got):\n%s", d)
	}
	if stale, err := decryptSecret(t, k, written); err != nil || stale {
		t.Errorf("a value of the new key: stale %v, %v", stale, err)
	}
	if _, err := decryptSecret(t, k, old); err == nil {
		t.Error("the previous key still decrypts after prune")
	}
}

// rotateKeys runs a whole rotation, as slipwayd does; reencrypt is called before the previous
// key is removed.
func rotateKeys(k *Keys, reencrypt func() error) error {
	name, err := k.AddEncryptionKey()
	if err != nil {
		return err
	}
	return errors.Join(k.PromoteEncryptionKey(name), reencrypt(), k.PruneEncryptionKeys())
}

// TestRotation_ContinuesAfterEveryKill ends the server after each step that reaches the disk,
// from the first start to the end of a rotation, opens the keys again, and rotates.
func TestRotation_ContinuesAfterEveryKill(t *testing.T) {
	for steps := 0; ; steps++ {
		dir := filepath.Join(t.TempDir(), "keys")
		var stored []byte // a value in etcd; nil until a server was running
		reencryptWith := func(k *Keys) func() error {
			return func() error {
				if _, err := decryptSecret(t, k, stored); err != nil {
					return err
				}
				stored = encryptSecret(t, k)
				return nil
			}
		}
		killed, err := runUntil(steps, func(w privatefile.Writer) error {
			k, err := openWith(dir, true, w)
			if err != nil {
				return err
			}
			stored = encryptSecret(t, k)
			return rotateKeys(k, reencryptWith(k))
		})
		if err != nil {
			t.Fatal(err)
		}
		k, err := Open(dir, stored == nil)
		if err != nil {
			t.Fatalf("killed after %d steps: %v", steps, err)
		}
		if stored != nil {
			if _, err := decryptSecret(t, k, stored); err != nil {
				t.Errorf("killed after %d steps: %v", steps, err)
			}
		} else {
			stored = encryptSecret(t, k)
		}
		if err := rotateKeys(k, reencryptWith(k)); err != nil {
			t.Errorf("killed after %d steps: %v", steps, err)
		}
		if names := keyNames(t, k); len(names) != 1 {
			t.Errorf("killed after %d steps: the keys are %v", steps, names)
		}
		if stale, err := decryptSecret(t, k, stored); err != nil || stale {
			t.Errorf("killed after %d steps: stale %v, %v", steps, stale, err)
		}
		if !killed {
			if steps < 12 { // two for each of three files, and two for each of three changes
				t.Errorf("the first start and a rotation have only %d steps", steps)
			}
			return
		}
	}
}

func TestAddEncryptionKey_NeverUsesNameAgain(t *testing.T) {
	k := openFresh(t)
	add := func() error { _, err := k.AddEncryptionKey(); return err }
	promote := func(name string) func() error { return func() error { return k.PromoteEncryptionKey(name) } }
	prune := func() error { return k.PruneEncryptionKeys() }
	for _, step := range []struct {
		name, reason string
		run          func() error
		want         []string
	}{
		{"add", "the first rotation", add, []string{"key1", "key2"}},
		{"add again", "the rotation was interrupted", add, []string{"key1", "key2"}},
		{"prune", "the rotation is given up", prune, []string{"key1"}},
		{"prune again", "nothing is left to remove", prune, []string{"key1"}},
		{"add after prune", "key2 is a used name", add, []string{"key1", "key3"}},
		{"promote", "key3 encrypts", promote("key3"), []string{"key3", "key1"}},
		{"promote again", "the step is repeated", promote("key3"), []string{"key3", "key1"}},
		{"add before prune", "the rotation starts over", add, []string{"key3", "key1", "key4"}},
		{"promote before prune", "all earlier keys decrypt", promote("key4"), []string{"key4", "key3", "key1"}},
		{"prune at the end", "one key remains", prune, []string{"key4"}},
	} {
		if err := step.run(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		var err error
		if k, err = Open(k.dir, false); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if d := cmp.Diff(step.want, keyNames(t, k)); d != "" {
			t.Errorf("%s: %s (-want +got):\n%s", step.name, step.reason, d)
		}
	}
}

func TestPromoteEncryptionKey_RefusesUnknownName(t *testing.T) {
	k := openFresh(t)
	before := readAll(t, k.dir)
	if err := k.PromoteEncryptionKey("key9"); idOf(err) != idUnknownKey {
		t.Errorf("got %v", err)
	}
	if d := cmp.Diff(before, readAll(t, k.dir)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestEncryptionKeys_ChangeConcurrently(t *testing.T) {
	k := openFresh(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			name, err := k.AddEncryptionKey()
			if err == nil {
				err = k.PromoteEncryptionKey(name)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if names := keyNames(t, k); names[0] == "key1" {
		t.Errorf("the keys are %v", names)
	}
}
