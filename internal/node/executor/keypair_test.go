//go:build linux

package executor

import (
	"testing"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// TestKeyPair_IsCreatedOnceAndKeepsPrivateKey checks that a pair is created once. A missing or wrong public key is
// derived from the private key, which is kept.
func TestKeyPair_IsCreatedOnceAndKeepsPrivateKey(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := op.KeyPair{Private: "/etc/rotate/sa.key", Public: "/etc/rotate/sa.pub"}
	h.apply(op.Dir{Path: "/etc/rotate", Mode: 0o700}, o)
	private, public := h.read("etc/rotate/sa.key"), h.read("etc/rotate/sa.pub")
	key, err := pki.ParseKey([]byte(private))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := pki.EncodePublic(key.Public()); err != nil || string(want) != public {
		t.Errorf("the public key does not match: %v", err)
	}
	for _, file := range []string{"sa.key", "sa.pub"} {
		if mode := h.snapshot()["/etc/rotate/"+file].Mode.String(); mode != "-rw-------" {
			t.Errorf("%s has mode %s", file, mode)
		}
	}
	if r := h.check(o); r[0].Status != op.Unchanged {
		t.Errorf("after it was created: %+v", r)
	}
	h.write("etc/rotate/sa.pub", "another's")
	if r := h.apply(o); r[0].Status != op.Changed || h.read("etc/rotate/sa.pub") != public || h.read("etc/rotate/sa.key") != private {
		t.Errorf("the public key is not repaired, or the private key has changed: %+v", r)
	}
	h.write("etc/rotate/sa.key", "damaged")
	if r := h.check(o); r[0].Error == nil {
		t.Error("an unreadable key is replaced, although it may be in use")
	}
}
