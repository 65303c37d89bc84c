package modules

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/release"
)

// testedModule returns a module with a program, tests that get its version, and data.
func testedModule() map[string]map[string]string {
	mods := helloModule("v1.1.0")
	mods["example.com/hello@v1.1.0"]["check/check_test.go"] = `package check

import (
	"fmt"
	"os"
	"testing"

	"example.com/words"
)

var version = "unknown"

func TestMain(m *testing.M) {
	fmt.Println(words.Hello, "tests", version)
	os.Exit(m.Run())
}
`
	mods["example.com/hello@v1.1.0"]["data/key.pem"] = "a key\n"
	return mods
}

// A unit can contain tests, which are compiled and run like programs, files of the
// module, and small embedded files.
func TestParts_BuildsTestsAndData(t *testing.T) {
	env := testEnviron(t, newModuleProxy(t, testedModule()))
	s := helloSource(t.TempDir(), env, "hello 1.1.0")
	s.images[0].cmd = []string{"world"}
	s.recipes = func(release.Release) map[string]unit {
		u := helloUnit("hello 1.1.0")
		u.Modules[0].LDFlags += " -X example.com/hello/check.version=1.1.0"
		u.Modules[0].Tests = map[string]string{"example.com/hello/check": "check.test"}
		u.Modules[0].Data = map[string]string{"data/key.pem": "etc/key"}
		u.Content = map[string]string{"etc/motd": "welcome\n"}
		u.Questions = append(u.Questions, question{"check.test", []string{"check.test"}, []string{"hello tests 1.1.0"}})
		return map[string]unit{"kubernetes": u}
	}
	parts, err := s.Parts(t.Context(), source.Request{Arches: []string{runtime.GOARCH}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"check.test", "etc/key", "etc/motd", bin + "hello", bin + "hi"},
		slices.Sorted(slices.Values(parts.Components[0].File.Members))); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	texts := archiveFiles(t, parts.Components[0].File.Path)
	if diff := cmp.Diff(map[string]string{"etc/key": "a key\n", "etc/motd": "welcome\n"},
		map[string]string{"etc/key": texts["etc/key"], "etc/motd": texts["etc/motd"]}); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	conf, err := parts.Images[0].Image.ConfigFile()
	if err != nil || !slices.Equal(conf.Config.Cmd, []string{"world"}) {
		t.Errorf("the image's arguments are %q: %v", conf.Config.Cmd, err)
	}
}

// archiveFiles returns the files of a gzip'd tar by name.
func archiveFiles(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		texts[h.Name] = string(text)
	}
}

// The tests and their images can be built for every release, and no bundle contains them.
func TestConformance_HasUnitsForEveryRelease(t *testing.T) {
	c, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range c.SupportedVersions() {
		r, err := c.ResolveVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		all, normal := conformanceUnits(r), unitsOf(r)
		used := map[string]bool{ConformanceTests: true}
		for _, i := range conformanceImages() {
			for _, l := range i.layers {
				used[l] = true
			}
			if r.ImageRefs()[i.name] != "" {
				t.Errorf("%s: a bundle has image %s, too", version, i.name)
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(all))); diff != "" {
			t.Errorf("%s: units (-used +made):\n%s", version, diff)
		}
		for name, u := range all {
			if u.Name != name || u.Licence == "" || !slices.Contains(buildOrder, name) {
				t.Errorf("%s: %s: unit %q, licence %q, in the build order: %v", version, name, u.Name, u.Licence, slices.Contains(buildOrder, name))
			}
			if _, ok := normal[name]; ok && name != "base" {
				t.Errorf("%s: bundles have %s, too", version, name)
			}
			for _, m := range u.Modules {
				if want := normal["kubernetes"].Modules[0].Instead; !containsAll(m.Instead, want) && m.Primary != "" {
					t.Errorf("%s: %s is made with %v, and Kubernetes with %v", version, name, m.Instead, want)
				}
				if strings.HasPrefix(m.Primary, "k8s.io/kubernetes@") &&
					(m.Primary != "k8s.io/kubernetes@"+version || m.LDFlags != normal["kubernetes"].Modules[0].LDFlags || m.Staging == "") {
					t.Errorf("%s: %s is made of %s with %q", version, name, m.Primary, m.LDFlags)
				}
			}
			for _, to := range u.Links {
				if path.IsAbs(to) {
					t.Errorf("%s: %s has a link to %s", version, name, to)
				}
			}
		}
	}
}

// containsAll reports whether a map has all entries of another.
func containsAll(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}
