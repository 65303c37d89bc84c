package etcdbackup

import (
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/module"
)

// Restored data is read with the keys of the set and written with the present ones: the
// author of a set cannot choose the key that encrypts Secrets.
func TestWithKeysOf_WritesWithPresentKeys(t *testing.T) {
	file := func(resource string, keys ...string) string {
		out := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" + resource +
			"]\n  providers:\n"
		for _, k := range keys {
			if k == module.Plain {
				out += "  - identity: {}\n"
				continue
			}
			out += fmt.Sprintf("  - secretbox: {keys: [{name: %s, secret: YQ==}]}\n", k)
		}
		return out
	}
	for _, tc := range []struct {
		name, reason, then, now string
		want                    string // keys of Secrets, then of ConfigMaps
		fails                   bool
	}{
		{"the same key", "there is nothing to change", file("secrets", "1-a"), file("secrets", "1-a"), "1-a identity; identity", false},
		{
			"rotated since", "restored data is read with the old key", file("secrets", "1-a"), file("secrets", "2-b"),
			"2-b 1-a identity; identity", false,
		},
		{
			"during a rotation", "the result has all keys of both", file("secrets", "2-b", "1-a"), file("secrets", "3-c"),
			"3-c 2-b 1-a identity; identity", false,
		},
		{"not encrypted in the set", "restored data is readable without a key", "", file("secrets", "1-a"), "1-a identity; identity", false},
		{"other resources", "each resource has its keys", file("configmaps", "1-a"), file("secrets", "1-a"), "1-a identity; identity 1-a", false},
		{
			"no longer encrypted", "the set does not enable encryption", file("secrets", "1-a"), file("secrets", module.Plain),
			"identity 1-a; identity", false,
		},
		{"broken", "the error does not contain the content", file("secrets", "1-a"), "resources: [canary", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, err := withKeysOf([]byte(tc.then), []byte(tc.now))
			if (err != nil) != tc.fails || err != nil && strings.Contains(err.Error(), "canary") {
				t.Fatalf("%v: %s", err, tc.reason)
			}
			if tc.fails {
				return
			}
			e, err := module.ParseEncryption(text)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, resource := range []string{"secrets", "configmaps"} {
				var names []string
				for _, k := range e.KeysFor(resource) {
					if k.Provider == module.Plain {
						k.Name = module.Plain
					}
					names = append(names, k.Name)
				}
				all = append(all, strings.Join(names, " "))
			}
			if got := strings.Join(all, "; "); got != tc.want {
				t.Errorf("got %s, want %s: %s", got, tc.want, tc.reason)
			}
		})
	}
}
