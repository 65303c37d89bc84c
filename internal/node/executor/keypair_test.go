//go:build linux

package executor

import (
	"testing"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// TestKeyPair: a pair is made once; a public half that is lost or another's is
// made of the private one, which stays.
func TestKeyPair(t *testing.T) {
	h := newHost(t)
	o := op.KeyPair{Private: "/etc/rotate/sa.key", Public: "/etc/rotate/sa.pub"}
	h.apply(op.Dir{Path: "/etc/rotate", Mode: 0o700}, o)
	private, public := h.read("etc/rotate/sa.key"), h.read("etc/rotate/sa.pub")
	key, err := pki.ParseKey([]byte(private))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := pki.EncodePublic(key.Public()); err != nil || string(want) != public {
		t.Errorf("the public half is another's: %v", err)
	}
	for _, file := range []string{"sa.key", "sa.pub"} {
		if mode := h.snapshot()["/etc/rotate/"+file].Mode.String(); mode != "-rw-------" {
			t.Errorf("%s has mode %s", file, mode)
		}
	}
	if r := h.check(o); r[0].Status != op.Unchanged {
		t.Errorf("once made it is as wanted: %+v", r)
	}
	h.write("etc/rotate/sa.pub", "another's")
	if r := h.apply(o); r[0].Status != op.Changed || h.read("etc/rotate/sa.pub") != public || h.read("etc/rotate/sa.key") != private {
		t.Errorf("the public half is not put right, or the key is another: %+v", r)
	}
	h.write("etc/rotate/sa.key", "damaged")
	if r := h.check(o); r[0].Error == nil {
		t.Error("a key that cannot be read is made anew: it may be worth something")
	}
}
