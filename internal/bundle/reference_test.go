package bundle

import "testing"

// TestParseReference_RequiresHost: a path that begins with a host is a reference in a
// registry.
func TestParseReference_RequiresHost(t *testing.T) {
	for path, want := range map[string]string{
		"registry.example.com/slipway:v1": "registry.example.com/slipway:v1",
		"localhost:5000/slipway:v1":       "localhost:5000/slipway:v1",
		"localhost/slipway:v1":            "localhost/slipway:v1",
		"localhost":                       "",
		"bundles/slipway:v1":              "",
		"./bundles/slipway:v1":            "",
	} {
		got := ""
		if ref, is := parseReference(path); is {
			got = ref.Name()
		}
		if got != want {
			t.Errorf("%s is the reference %q, want %q", path, got, want)
		}
	}
}
