package bundle_test

import (
	"errors"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/secret"
)

// TestOpen_UsesCredentialsAndCAOfRegistry opens a bundle in a registry with the
// credentials and the CA of that registry, as in a cluster file.
func TestOpen_UsesCredentialsAndCAOfRegistry(t *testing.T) {
	want := bundletest.BuildBundle(t, "amd64")
	reg := bundletest.NewRegistry(t, true)
	ref := reg.Host + "/slipway/bundle:v1"
	if _, err := bundle.Push(t.Context(), want, ref, reg.At); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // without credentials
	good := bundle.Login{Registry: reg.Host, Username: "carrier", Password: secret.New("s3cret-of-the-registry"), CA: reg.At.CA}
	with := func(change func(*bundle.Login)) bundle.Registry {
		l := good
		change(&l)
		return bundle.Registry{Logins: []bundle.Login{{
			Registry: "other.example.com", Username: "other",
			Password: secret.New("other's"), CA: "/nowhere",
		}, l}}
	}
	for name, tt := range map[string]struct {
		reason string
		at     bundle.Registry
		ok     bool
	}{
		"its own": {"beside those of another", with(func(*bundle.Login) {}), true},
		"insecure": {
			"no authority is asked",
			bundle.Registry{Plain: []string{reg.Host}, Logins: with(func(l *bundle.Login) { l.CA = "" }).Logins},
			true,
		},
		"wrong password": {"the registry refuses", with(func(l *bundle.Login) { l.Password = secret.New("canary-wrong") }), false},
		"no authority":   {"its certificate is nobody's", with(func(l *bundle.Login) { l.CA = "" }), false},
		"another's":      {"the login of another port is none of its", with(func(l *bundle.Login) { l.Registry += "0" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := bundle.Open(t.Context(), ref, t.TempDir(), tt.at)
			var list diag.List
			switch {
			case tt.ok && (err != nil || got.Digest() != want.Digest()):
				t.Errorf("%s: %v", tt.reason, err)
			case !tt.ok && (!errors.As(err, &list) || list[0].ID != bundle.IDPull || strings.Contains(err.Error(), "canary")):
				t.Errorf("%s: %v", tt.reason, err)
			}
		})
	}
}
