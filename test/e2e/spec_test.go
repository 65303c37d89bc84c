//go:build e2e

package e2e

import (
	"errors"
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

// editSpec changes the spec of a cluster file in place.
func editSpec(t *testing.T, file string, edit func(spec map[string]any)) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cluster map[string]any
	if err := yaml.Unmarshal(data, &cluster); err != nil {
		t.Fatal(err)
	}
	edit(childMap(cluster, "spec"))
	if data, err = yaml.Marshal(cluster); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(file, data, 0o600), os.Chmod(file, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// childMap is the map at a key, made if it is not there.
func childMap(m map[string]any, key string) map[string]any {
	c, ok := m[key].(map[string]any)
	if !ok {
		c = map[string]any{}
		m[key] = c
	}
	return c
}
