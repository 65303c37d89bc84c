package modules

import (
	"archive/zip"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
)

// newModuleProxy creates a module proxy from files: module@version → file → content.
func newModuleProxy(t *testing.T, mods map[string]map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for mod, files := range mods {
		path, version, _ := strings.Cut(mod, "@")
		at := filepath.Join(dir, path, "@v")
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		writeTestFile(t, filepath.Join(at, version+".info"), `{"Version":"`+version+`"}`)
		writeTestFile(t, filepath.Join(at, version+".mod"), files["go.mod"])
		f, err := os.Create(filepath.Join(at, version+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		zw := zip.NewWriter(f)
		for name, text := range files {
			w, err := zw.Create(mod + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(zw.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + dir
}

func writeTestFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// helloModule returns a component like Kubernetes: its go.mod replaces a module with a
// directory that the proxy does not have.
func helloModule(version string) map[string]map[string]string {
	return map[string]map[string]string{
		"example.com/hello@" + version: {
			"go.mod": "module example.com/hello\n\ngo 1.26\n\nrequire example.com/words v0.0.0\n\nreplace " +
				"example.com/words => ./staging/words\n",
			"cmd/hello/main.go": "package main\n\nimport (\n\t\"os\"\n\n\t\"example.com/words\"\n)\n\nvar version = " +
				"\"unknown\"\n\nfunc main() { os.Stdout.WriteString(words.Hello + \" \" + version + \"\\n\") }\n",
		},
		"example.com/words@v0.1.0": {
			"go.mod":   "module example.com/words\n\ngo 1.26\n",
			"words.go": "package words\n\n// Hello is a word.\nconst Hello = \"hello\"\n",
		},
	}
}

func helloUnit(want string) unit {
	return unit{
		Name: "hello", Version: "1.1.0", Licence: apache,
		Modules: []module{{
			Primary: "example.com/hello@v1.1.0", Staging: "v0.1.0",
			LDFlags:  strip + " -X main.version=1.1.0",
			Programs: map[string]string{"example.com/hello/cmd/hello": bin + "hello"},
		}},
		Links:     map[string]string{bin + "hi": "hello"},
		Questions: []question{{bin + "hello", []string{"hello"}, []string{want}}},
	}
}

// testEnviron returns the test's environment with a separate module proxy and cache.
func testEnviron(t *testing.T, goproxy string) []string {
	cache := t.TempDir()
	t.Cleanup(func() { // the go tool makes it read-only
		filepath.WalkDir(cache, func(p string, _ fs.DirEntry, _ error) error { return os.Chmod(p, 0o755) })
	})
	return append(os.Environ(), "GOPROXY="+goproxy, "GOMODCACHE="+cache, "GONOSUMDB=", "GOFLAGS=")
}

func helloSource(cache string, env []string, want string) *Source {
	s := New(Options{Cache: cache, Environ: append(env, "GOSUMDB=off")})
	s.unchecked = true // no database knows these modules
	s.recipes = func(release.Release) map[string]unit { return map[string]unit{"kubernetes": helloUnit(want)} }
	s.images = []image{{name: "hello", layers: []string{"kubernetes"}, entrypoint: []string{"/usr/local/bin/hello"}}}
	return s
}

func TestParts_CompilesProgramsAndImages(t *testing.T) {
	env := testEnviron(t, newModuleProxy(t, helloModule("v1.1.0")))
	cache := t.TempDir()
	var phases []source.Phase
	req := source.Request{Arches: []string{runtime.GOARCH}, Report: func(p source.Progress) {
		if !slices.Contains(phases, p.Phase) {
			phases = append(phases, p.Phase)
		}
	}}
	s := helloSource(cache, env, "hello 1.1.0")
	if s.Ready(t.Context(), req) {
		t.Error("an empty cache is ready")
	}
	first, err := s.Parts(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]source.Phase{source.Fetching, source.Compiling, source.Packing, source.Done}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{bin + "hello", bin + "hi"}, first.Components[0].File.Members); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	var mods []string
	for _, o := range first.Origins {
		if o.Kind == "module" && strings.HasPrefix(o.Sum, "h1:") {
			mods = append(mods, o.Name+" "+o.Version)
		}
	}
	slices.Sort(mods)
	if diff := cmp.Diff([]string{"example.com/hello v1.1.0", "example.com/words v0.1.0"}, mods); diff != "" {
		t.Errorf("origins with sums (-want +got):\n%s", diff)
	}
	// Again, from the cache: no proxy, no module, no compiler.
	phases = nil
	s = helloSource(cache, append(env, "GOPROXY=off", "GOMODCACHE="+t.TempDir()), "hello 1.1.0")
	if !s.Ready(t.Context(), req) {
		t.Error("a full cache is not ready")
	}
	second, err := s.Parts(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Components, second.Components); diff != "" {
		t.Errorf("from the cache (-built +cached):\n%s", diff)
	}
	if diff := cmp.Diff([]source.Phase{source.Cached}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

// Several units are built concurrently. Reports come one call at a time, parts are in
// build order, and the error names the failed unit.
func TestParts_ReportsConcurrentUnitsInOrder(t *testing.T) {
	env := testEnviron(t, newModuleProxy(t, helloModule("v1.1.0")))
	cache, last := t.TempDir(), "hello 2.0.0"
	telling, done := 0, 0
	req := source.Request{Arches: []string{runtime.GOARCH}, Report: func(p source.Progress) {
		if telling++; telling != 1 {
			t.Error("two reports at once")
		}
		if p.Phase == source.Done {
			done++
		}
		telling--
	}}
	s := helloSource(cache, env, "")
	s.recipes = func(release.Release) map[string]unit {
		all := map[string]unit{}
		for _, name := range components {
			u := helloUnit("hello 1.1.0")
			u.Name = name
			all[name] = u
		}
		all["cni-plugins"].Questions[0].want[0] = last
		return all
	}
	if _, err := s.Parts(t.Context(), req); diagnosticID(err) != IDWrongVersion || !strings.Contains(err.Error(), "hello 2.0.0") {
		t.Errorf("got %v", err)
	}
	last, req.Docker = "hello 1.1.0", true
	parts, err := s.Parts(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range parts.Components {
		names = append(names, c.Name)
	}
	if diff := cmp.Diff([]string{
		"kubernetes", "containerd", "etcd", "docker", "cri-dockerd", "registry", "crictl",
		"cni-plugins", "nettools", "conformance",
	}, names); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
	if done != len(components) {
		t.Errorf("%d times something was done, want %d", done, len(components))
	}
}

// TestParts_GivesSameBytesInTwoCaches builds in two caches and damages one.
func TestParts_GivesSameBytesInTwoCaches(t *testing.T) {
	env := testEnviron(t, newModuleProxy(t, helloModule("v1.1.0")))
	req := source.Request{Arches: []string{runtime.GOARCH}}
	var digests []string
	cache := t.TempDir()
	for _, dir := range []string{cache, t.TempDir(), cache} {
		parts, err := helloSource(dir, env, "hello").Parts(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		h, err := parts.Images[0].Image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, parts.Components[0].File.Digest+" "+h.String())
		if err := os.Truncate(parts.Components[0].File.Path, 100); err != nil {
			t.Fatal(err)
		}
	}
	if digests[0] != digests[1] || digests[0] != digests[2] {
		t.Errorf("builds differ: %q", digests)
	}
}

func diagnosticID(err error) string {
	var l diag.List
	if !errors.As(err, &l) || len(l) == 0 {
		return ""
	}
	return l[0].ID
}

func TestParts_ReportsCauseOfFailure(t *testing.T) {
	broken := helloModule("v1.1.0")
	broken["example.com/words@v0.1.0"]["words.go"] = "package words\n\nconst Hello = 1 + \"a\"\n"
	tests := map[string]struct {
		reason string
		proxy  map[string]map[string]string
		want   string
		id     string
		silent bool
	}{
		"no such version":  {"a version the proxy lacks", helloModule("v1.0.0"), "hello", IDFetch, true},
		"does not compile": {"the compiler's words are shown", broken, "hello", IDCompile, false},
		"wrong version":    {"a program must be what it is taken for", helloModule("v1.1.0"), "hello 2.0.0", IDWrongVersion, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			_, err := helloSource(cache, testEnviron(t, newModuleProxy(t, tt.proxy)), tt.want).Parts(t.Context(),
				source.Request{Arches: []string{runtime.GOARCH}})
			if diagnosticID(err) != tt.id || errors.Is(err, source.ErrSilent) != tt.silent {
				t.Errorf("%s: got %v", tt.reason, err)
			}
			if left, _ := os.ReadDir(filepath.Join(cache, "components")); len(left) > 0 {
				t.Errorf("%s: something was kept: %v", tt.reason, left)
			}
		})
	}
}

// TestParts_ReportsMissingCompilerFirst: a missing compiler is reported before anything
// is compiled.
func TestParts_ReportsMissingCompilerFirst(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Fatal("bundles are compiled only on Linux: run the tests on Linux")
	}
	path := t.TempDir()
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(gotool, filepath.Join(path, "go")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	u := helloUnit("hello")
	u.Modules[0].CGO = true
	s := helloSource(t.TempDir(), testEnviron(t, "off"), "")
	s.recipes = func(release.Release) map[string]unit { return map[string]unit{"kubernetes": u} }
	for arch, hint := range map[string]string{runtime.GOARCH: "gcc libc6-dev pkg-config", foreignArch(): "linux-gnu pkg-config"} {
		_, err := s.Parts(t.Context(), source.Request{Arches: []string{arch}})
		if diagnosticID(err) != IDNoCompiler || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: got %v", arch, err)
		}
	}
	u.Modules, u.Packages = nil, []string{"nftables"}
	if _, err := s.Parts(t.Context(), source.Request{Arches: []string{runtime.GOARCH}}); diagnosticID(err) != IDNoApt {
		t.Errorf("without apt: got %v", err)
	}
}

// foreignArch returns an architecture that differs from this machine's.
func foreignArch() string {
	if runtime.GOARCH == "arm64" {
		return "amd64"
	}
	return "arm64"
}

func TestCheckGoEnv_RequiresChecksums(t *testing.T) {
	tests := map[string]struct {
		reason, set string
		refused     bool
	}{
		"database off":  {"nothing would be verified", "GOSUMDB=off", true},
		"insecure":      {"the flag of old", "GOFLAGS=-insecure", true},
		"no check":      {"the variable of old", "GONOSUMCHECK=1", true},
		"plain text":    {"proxies without TLS", "GOINSECURE=*", true},
		"private":       {"the user's private modules are no matter of ours", "GOPRIVATE=corp.example.com", false},
		"not in the db": {"this is cleared, not heeded", "GONOSUMDB=*", false},
		"user's flags":  {"cleared too", "GOFLAGS=-mod=vendor", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := append(testEnviron(t, "off"), "GOSUMDB=sum.golang.org", tt.set)
			tool, err := newGoTool(t.Context(), env, nil, false)
			if (diagnosticID(err) == IDUnchecked) != tt.refused {
				t.Fatalf("%s: got %v", tt.reason, err)
			}
			if tt.refused {
				return
			}
			for _, want := range []string{"GOENV=off", "GOFLAGS=", "GOSUMDB=sum.golang.org"} {
				if !slices.Contains(tool.env, want) {
					t.Errorf("%s: the environment lacks %q", tt.reason, want)
				}
			}
			for _, kv := range tool.env {
				if strings.HasPrefix(kv, "GOPRIVATE=") || strings.HasPrefix(kv, "GONOSUMDB=") {
					t.Errorf("%s: the environment has %q", tt.reason, kv)
				}
			}
		})
	}
}

func TestProxiesOnly_RemovesDirect(t *testing.T) {
	for in, want := range map[string]string{
		"https://a.example,direct": "https://a.example", "direct": "direct", "off": "off",
		"https://a.example|https://b.example|direct": "https://a.example,https://b.example",
	} {
		if got := proxiesOnly(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestGoModDirectives_KeepsReplacements(t *testing.T) {
	var theirs goMod
	theirs.Go = "1.26.0"
	theirs.GoDebug = []struct{ Key, Value string }{{"default", "go1.26"}}
	add := func(path, newPath, newVersion string) {
		r := struct {
			Old, New struct{ Path, Version string }
		}{}
		r.Old.Path, r.New.Path, r.New.Version = path, newPath, newVersion
		theirs.Replace = append(theirs.Replace, r)
	}
	add("k8s.io/api", "./staging/src/k8s.io/api", "")
	add("k8s.io/mount-utils", "./staging/src/k8s.io/mount-utils", "")
	add("example.com/a", "example.com/fork", "v1.0.0")
	add("example.com/c", "example.com/other", "v2.0.0")
	m := module{
		Primary: "k8s.io/kubernetes@v1.37.1", Require: []string{"example.com/b@v1.2.3"}, Staging: "v0.37.1",
		Instead: map[string]string{"k8s.io/mount-utils": "v0.37.0"}, Replace: map[string]string{"example.com/c": "stub"},
	}
	want := `
go 1.26.0

godebug default=go1.26
require k8s.io/kubernetes v1.37.1
require example.com/b v1.2.3
replace k8s.io/api => k8s.io/api v0.37.1
replace k8s.io/mount-utils => k8s.io/mount-utils v0.37.0
replace example.com/a => example.com/fork v1.0.0
replace example.com/c => ./stub
`
	if diff := cmp.Diff(want, goModDirectives(m, theirs)); diff != "" {
		t.Errorf("with staging (-want +got):\n%s", diff)
	}

	// The go tool reads the requirements of a go.mod, but not of another file.
	theirs = goMod{Go: "1.24.0"}
	theirs.Require = append(theirs.Require, struct{ Path, Version string }{"example.com/d", "v1.4.0"})
	m = module{Primary: "example.com/e@v28.5.2+incompatible"}
	want = "\ngo 1.24.0\n\nrequire example.com/e v28.5.2+incompatible\n"
	if diff := cmp.Diff(want, goModDirectives(m, theirs)); diff != "" {
		t.Errorf("with a go.mod (-want +got):\n%s", diff)
	}
	m.ModFile = "vendor.mod"
	if diff := cmp.Diff(want+"require example.com/d v1.4.0\n", goModDirectives(m, theirs)); diff != "" {
		t.Errorf("without (-want +got):\n%s", diff)
	}
}

func TestSameComponents_RefusesOtherKubeadmConstants(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "cmd/kubeadm/app/constants"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeTestFile(t, filepath.Join(dir, "cmd/kubeadm/app/constants/constants.go"),
		"package constants\n\nconst (\n\tDefaultEtcdVersion = \"3.7.1-0\"\n\tCoreDNSVersion = \"v1.14.6\"\n)\n\nconst "+
			"PauseVersion = \"3.10.2\"\n")
	m := module{Primary: "k8s.io/kubernetes@v1.37.9"}
	r := release.Release{Kubernetes: "v1.37.9", Components: release.Components{EtcdImage: "3.7.1-0", CoreDNS: "1.14.6", Pause: "3.10.2"}}
	if err := (&job{release: r}).sameComponents(m, dir); err != nil {
		t.Errorf("the same: %v", err)
	}
	r.EtcdImage = "3.7.0-0"
	err := (&job{release: r}).sameComponents(m, dir)
	if diagnosticID(err) != IDOtherRelease || !strings.Contains(err.Error(), `etcdImage: "3.7.1-0"`) {
		t.Errorf("another etcd: %v", err)
	}
}

// TestCacheKey_ChangesWithContent: each input that changes the content also changes the
// key.
func TestCacheKey_ChangesWithContent(t *testing.T) {
	base := helloUnit("hello")
	key := func(u unit, arch, goVersion string) string {
		k, err := u.cacheKey(arch, goVersion)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	seen := map[string]string{key(base, "amd64", "go1.26.8"): "base"}
	for name, k := range map[string]string{
		"arch": key(base, "arm64", "go1.26.8"), "go": key(base, "amd64", "go1.26.9"),
		"flags":   key(unit{Name: "hello", Modules: []module{{LDFlags: "-s"}}}, "amd64", "go1.26.8"),
		"sources": key(unit{Name: "hello", Modules: []module{{Files: map[string]string{"main.go": "x"}}}}, "amd64", "go1.26.8"),
	} {
		if other, ok := seen[k]; ok {
			t.Errorf("%s and %s have the same key", name, other)
		}
		seen[k] = name
	}
	asked := base
	asked.Questions = nil
	if key(asked, "amd64", "go1.26.8") != key(base, "amd64", "go1.26.8") {
		t.Error("questions are no content")
	}
}

func TestUnitsOf_HasUnitForEveryImageAndQuestion(t *testing.T) {
	c, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range c.SupportedVersions() {
		r, err := c.ResolveVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		all := unitsOf(r)
		for name, u := range all {
			if u.Name != name || u.Licence == "" || !slices.Contains(buildOrder, name) {
				t.Errorf("%s: unit %q, licence %q, in the build order: %v", name, u.Name, u.Licence, slices.Contains(buildOrder, name))
			}
			members := []string{}
			for _, m := range u.Modules {
				for _, member := range m.Programs {
					members = append(members, member)
				}
			}
			asked := []string{}
			for _, q := range u.Questions {
				asked = append(asked, q.member)
			}
			slices.Sort(members)
			slices.Sort(asked)
			if diff := cmp.Diff(slices.Compact(members), slices.Compact(asked),
				cmp.Transformer("empty", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
				t.Errorf("%s: programs that are not asked for their version:\n%s", name, diff)
			}
		}
		refs := r.ImageRefs()
		for _, i := range imageList() {
			if refs[i.name] == "" {
				t.Errorf("image %s has no reference", i.name)
			}
			for _, l := range i.layers {
				if _, ok := all[l]; !ok {
					t.Errorf("image %s has unknown layer %s", i.name, l)
				}
			}
		}
		if len(refs) != len(imageList())+1 { // kube-vip
			t.Errorf("%d references for %d images", len(refs), len(imageList()))
		}
	}
}

// TestAskPrograms_ComparesOnlyImagesOfKubeadm: kubeadm does not list the other images in
// the same registry. A program with an incomplete output is not kept.
func TestAskPrograms_ComparesOnlyImagesOfKubeadm(t *testing.T) {
	c, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.ResolveVersion("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, q := range unitsOf(r)["kubernetes"].Questions {
		if q.args[0] == "kubeadm" && q.args[1] == "config" {
			got = append(got, q.want...)
		}
	}
	want := []string{
		"coredns/coredns:v1.14.6", "etcd:3.7.0-0", "kube-apiserver:v1.37.1", "kube-controller-manager:v1.37.1",
		"kube-proxy:v1.37.1", "kube-scheduler:v1.37.1", "pause:3.10.2",
	}
	for i := range want {
		want[i] = "registry.k8s.io/" + want[i]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("images in the question for kubeadm (-want +got):\n%s", d)
	}
}

// TestUpdaterUnit_UsesVersionsOfGoMod: the tests of the updater ran with the client-go
// version in the go.mod of this repository.
func TestUpdaterUnit_UsesVersionsOfGoMod(t *testing.T) {
	data, err := os.ReadFile("../../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "\tk8s.io/client-go "+clientGo+"\n") {
		t.Errorf("go.mod has another k8s.io/client-go than %s", clientGo)
	}
}
