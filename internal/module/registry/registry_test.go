package registry

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/testutil/golden"
)

func environment(change func(*v1alpha1.Cluster)) module.Env {
	c := &v1alpha1.Cluster{}
	c.Name = "prod"
	c.Spec.Hosts = []v1alpha1.Host{
		{Name: "cp1", Address: "192.0.2.1", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
		{Name: "reg", Address: "reg.example.com", InternalAddress: "192.0.2.9", Roles: []v1alpha1.Role{v1alpha1.RoleRegistry}},
	}
	if change != nil {
		change(c)
	}
	spec.SetDefaults(c, spec.DefaultOptions{KubernetesVersion: "v1.37.1"})
	return module.Env{
		Cluster:  c,
		Registry: &module.Registry{Password: secret.New("parrot"), Made: true, CA: []byte("authority"), CAKey: []byte("key")},
	}
}

// TestSetUpRegistry_FilesMatchGoldens compares the unit and the settings on the host.
func TestSetUpRegistry_FilesMatchGoldens(t *testing.T) {
	list, err := serviceOps(environment(func(c *v1alpha1.Cluster) {
		c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{Port: 8443, Directory: "/srv/images"}
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list {
		if f, ok := o.(op.File); ok && !f.Secret {
			golden.Check(t, "testdata"+f.Path, string(f.Content))
		}
	}
}

// TestServiceOps_RestrictRegistry: the registry runs as a user that can write only its
// directory.
func TestServiceOps_RestrictRegistry(t *testing.T) {
	for _, tc := range []struct {
		name, reason, dir string
		port              int
		enters            bool
		caps              []string
	}{
		{"default", "every user can enter /var/lib", "", 0, false, []string{"CapabilityBoundingSet="}},
		{
			"a port of the first 1024", "an unprivileged user may not listen there", "", 443, false,
			[]string{"CapabilityBoundingSet=CAP_NET_BIND_SERVICE", "AmbientCapabilities=CAP_NET_BIND_SERVICE"},
		},
		{
			"a directory of the user", "directories above it may be closed to other users", "/srv/images", 5000, true,
			[]string{"CapabilityBoundingSet="},
		},
		{"in a home", "the unit mounts it, whatever its parents allow", "/home/images/data", 5000, false, []string{"CapabilityBoundingSet="}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := serviceOps(environment(func(c *v1alpha1.Cluster) {
				c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{Directory: tc.dir, Port: tc.port}
			}), nil)
			if err != nil {
				t.Fatal(err)
			}
			dir := tc.dir
			if dir == "" {
				dir = spec.DefaultRegistryDirectory
			}
			var unit string
			waits, owns := false, false
			for _, o := range list {
				switch o := o.(type) {
				case op.Wait:
					waits = true
				case op.Dir:
					owns = o.Path == dir && o.Owner == user && o.Group == user && o.Mode == 0o700
				case op.File:
					if o.Path == unitFile {
						unit = string(o.Content)
					}
				case op.Unit:
					if !slices.Contains(o.RestartOn, module.RegistryUsers) {
						t.Error("a changed password does not restart the registry, which has a copy of the previous one")
					}
					if len(o.Again) != 1 || o.Again[0].TCP == "" {
						t.Errorf("the next login does not wait for the registry: %+v", o.Again)
					}
				}
			}
			if waits != tc.enters || !owns {
				t.Errorf("%s: waits for access: %v, owns its directory: %v", tc.reason, waits, owns)
			}
			has := strings.Split(unit, "\n")
			for _, line := range append(tc.caps, "User="+user, "ReadWritePaths="+dir, "BindPaths="+dir,
				"ProtectSystem=strict", "NoNewPrivileges=yes") {
				if !slices.Contains(has, line) {
					t.Errorf("%s: the unit has no line %s", tc.reason, line)
				}
			}
		})
	}
}

// TestCertificateOps_CoverAllNames: the certificate is valid for all names, and no
// private key is revealed.
func TestCertificateOps_CoverAllNames(t *testing.T) {
	env := environment(func(c *v1alpha1.Cluster) {
		c.Spec.Registry.Private = &v1alpha1.PrivateRegistry{Names: []string{"images.example.com"}}
	})
	host := &engine.Host{Host: env.Cluster.Spec.Hosts[1]}
	list := certificateOps(env, host)
	want := []string{"images.example.com", "reg", "192.0.2.9", "reg.example.com", "localhost", "127.0.0.1", "::1"}
	made := list[len(list)-1].(op.Certificate)
	if d := cmp.Diff(want, made.Names); d != "" {
		t.Errorf("names (-want +got):\n%s", d)
	}
	env.Registry = &module.Registry{Password: secret.New("parrot"), Cert: []byte("theirs"), Key: []byte("their key")}
	var paths []string
	for _, o := range certificateOps(env, host) {
		if f, ok := o.(op.File); ok {
			paths = append(paths, f.Path)
			if f.Path == module.RegistryKey && (!f.Secret || f.Mode != 0o600) {
				t.Errorf("the key is readable for all: %+v", f)
			}
		}
	}
	if d := cmp.Diff([]string{module.RegistryKey, module.RegistryCert}, paths); d != "" {
		t.Errorf("with a certificate of the user (-want +got):\n%s", d)
	}
}

// TestHashPassword_IsAcceptedByRegistry: the registry code accepts the password.
func TestHashPassword_IsAcceptedByRegistry(t *testing.T) {
	for _, tc := range []struct {
		name, password string
		made           bool
		cost           int
	}{
		{"made", "kq3vZy6dW1", true, costMade},
		{"chosen", "correct horse: battery", false, costChosen},
		{"longest possible", "012345678901234567890123456789012345678901234567890123456789012345678901", true, costMade},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := environment(nil)
			env.Registry.Password, env.Registry.Made = secret.New(tc.password), tc.made
			var err error
			if env.Registry.Hash, err = HashPassword(env.Registry); err != nil {
				t.Fatal(err)
			}
			file := renderUserFile(env, nil)
			hashed := file[len("slipway:") : len(file)-1]
			if err := bcrypt.CompareHashAndPassword(hashed, []byte(tc.password)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if bcrypt.CompareHashAndPassword(hashed, []byte(tc.password[1:])) == nil {
				t.Error("another password is accepted")
			}
			if cost, err := bcrypt.Cost(hashed); err != nil || cost != tc.cost {
				t.Errorf("the cost is %d, want %d: %v", cost, tc.cost, err)
			}
			if another, err := HashPassword(env.Registry); err != nil || another == env.Registry.Hash || !MatchesPassword(env.Registry, another) {
				t.Errorf("the second hash %q after %q: want another salt, %v", another, env.Registry.Hash, err)
			}
		})
	}
}

// TestRenderUserFile_KeepsMatchingHash: a file with the same user and password remains,
// and any other file is replaced.
func TestRenderUserFile_KeepsMatchingHash(t *testing.T) {
	env := environment(nil)
	hash := func(password string, cost int) string {
		text, err := bcrypt.GenerateFromPassword([]byte(password), cost)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	env.Registry.Hash = hash("parrot", costMade)
	// An older version of Slipway wrote the first hash, with a salt that was not random.
	const earlier = "$2a$05$qf4KBnt3Uie/y0YROsjYQedZzN7xzA63hsGBPD26o5DQFw/hWT7Fa"
	for _, tc := range []struct {
		name, reason, is string
		stays            bool
	}{
		{"earlier", "a running cluster is not changed", "slipway:" + earlier + "\n", true},
		{"of another manager", "the hash of another manager is valid", "slipway:" + hash("parrot", costMade) + "\n", true},
		{"another password", "the password has changed", "slipway:" + hash("crow", costMade) + "\n", false},
		{"another user", "the user has changed", "admin:" + hash("parrot", costMade) + "\n", false},
		{
			"another cost", "a password is chosen now that was made, or the host says what to compute",
			"slipway:" + hash("parrot", costMade+1) + "\n", false,
		},
		{"an endless cost", "a host must not choose the cost", "slipway:$2a$31$" + strings.Repeat("a", 53) + "\n", false},
		{"a second user", "no other user may log in", "slipway:" + hash("parrot", costMade) + "\neve:" + hash("parrot", costMade) + "\n", false},
		{"no hash", "it is damaged", "slipway\n", false},
		{"no file", "the registry is new", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := "slipway:" + env.Registry.Hash + "\n"
			if tc.stays {
				want = tc.is
			}
			if d := cmp.Diff(want, string(renderUserFile(env, []byte(tc.is)))); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

// TestImagesToPush_PushEachImageOnce: each image is pushed once, for all architectures,
// below the name of its registry.
func TestImagesToPush_PushEachImageOnce(t *testing.T) {
	image := func(name, ref, arch string) bundle.Image {
		return bundle.Image{Name: name, Arch: arch, Image: op.Image{
			Ref: ref, MediaType: "application/vnd.oci.image.manifest.v1+json", Manifest: op.Blob{Digest: "sha256:" + name + arch, Size: 7},
		}}
	}
	got, err := imagesToPush([]bundle.Image{
		image("pause", "registry.k8s.io/pause:3.10.2", "amd64"), image("pause", "registry.k8s.io/pause:3.10.2", "arm64"),
		image("own", "registry.example.com:5000/team/app@sha256:0123", "amd64"),
		image("other", "registry.example.com:5000/team/app@sha256:4567", "amd64"),
		image("tool", "registry.example.com:5000/team/tool:v1@sha256:89ab", "amd64"),
		image("newer", "registry.example.com:5000/team/tool:v1@sha256:cdef", "amd64"),
	})
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ Repository, Tag, Index string }
	var places []place
	for _, p := range got {
		places = append(places, place{p.Repository, p.Tag, string(p.Index)})
	}
	one := func(name, arch string) string {
		return `{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:` + name + arch +
			`","size":7,"platform":{"architecture":"` + arch + `","os":"linux"}}`
	}
	list := func(of string) string {
		return `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[` + of + `]}`
	}
	want := []place{
		{"registry.k8s.io/pause", "3.10.2", list(one("pause", "amd64") + "," + one("pause", "arm64"))},
		{"registry.example.com_5000/team/app", "", list(one("own", "amd64"))},
		{"registry.example.com_5000/team/app", "", list(one("other", "amd64"))},
		{"registry.example.com_5000/team/tool", "v1", list(one("tool", "amd64"))},
		{"registry.example.com_5000/team/tool", "", list(one("newer", "amd64"))},
	}
	if d := cmp.Diff(want, places); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
