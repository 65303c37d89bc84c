package spec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/testutil/golden"
)

// fakeSupported stands for the release catalogue.
func fakeSupported(version string) error {
	if strings.HasPrefix(version, "v1.20.") {
		return errors.New("Kubernetes v1.20 is too old; v1.35 to v1.37 are supported")
	}
	if strings.HasPrefix(version, "v1.99.") {
		return diag.List{{ID: "not-in-catalogue", Message: version + " is not in the catalogue", Hint: "take v1.37.1"}}
	}
	return nil
}

var loader = Loader{KubernetesVersion: "v1.37.1", Supported: fakeSupported}

// TestLoad_MatchesGolden compares the problems of files in testdata/refused, and the loaded files of
// testdata/accepted, with golden files.
func TestLoad_MatchesGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, name := range files {
		t.Run(strings.TrimPrefix(strings.TrimSuffix(name, ".yaml"), "testdata/"), func(t *testing.T) {
			data := []byte(readPage(t, name))
			loaded, err := loader.Load(filepath.Base(name), data)
			var got string
			if strings.Contains(name, "refused") {
				var list diag.List
				if !errors.As(err, &list) || loaded != nil {
					t.Fatalf("not refused with a diag.List: %v", err)
				}
				got = err.Error() + "\n"
			} else {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				text, err := Marshal(loaded.Cluster)
				if err != nil {
					t.Fatal(err)
				}
				got = string(text)
				for _, w := range loaded.Warnings {
					got += "# " + strings.ReplaceAll(w.String(), "\n", "\n# ") + "\n"
				}
			}
			golden.Check(t, strings.TrimSuffix(name, ".yaml")+".golden", got)
			if strings.Contains(got, "hunter2") && strings.Contains(name, "refused") ||
				strings.Contains(name, "typos") && strings.Contains(got, "12345") {
				t.Error("a password is printed")
			}
		})
	}
}

func TestPosition_FindsFieldOrParent(t *testing.T) {
	loaded, err := Load("a.yaml", []byte("apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n  hosts:\n"+
		"    - name: a\n      address: 192.0.2.1\n      roles: [control-plane]\n      labels: {a.b/c: d}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path, reason string
		line, col    int
	}{
		{"spec.hosts[0].address", "a word is where its value is", 7, 16},
		{"spec.hosts", "a block is where its name is", 5, 3},
		{"spec.hosts[0]", "an item is where its dash leads", 6, 7},
		{"spec.hosts[0].roles[0]", "items of a list in brackets", 8, 15},
		{"spec.hosts[0].labels[a.b/c]", "keys may hold dots", 9, 16},
		{"spec.hosts[0].labels[x.y]", "what is missing is where its parent is", 9, 7},
		{"spec.network.podCIDR[0]", "a default is where its nearest parent is", 4, 1},
		{"status", "what has no parent is at the beginning", 1, 1},
	} {
		line, col := loaded.Position(tc.path)
		if line != tc.line || col != tc.col {
			t.Errorf("%s: %d:%d, want %d:%d: %s", tc.path, line, col, tc.line, tc.col, tc.reason)
		}
	}
}

// FuzzLoad wants no panic, places inside the file, and a trip back through
// Marshal for what loads.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		loaded, err := loader.Load("f", data)
		if err != nil {
			var list diag.List
			if !errors.As(err, &list) || len(list) == 0 {
				t.Fatalf("an error that is no diag.List: %v", err)
			}
			for _, d := range list {
				if d.ID == "" || d.Message == "" || d.Line < 0 || d.Column < 0 {
					t.Fatalf("an unfinished diagnostic: %+v", d)
				}
			}
			return
		}
		text, err := Marshal(loaded.Cluster)
		if err != nil {
			t.Fatal(err)
		}
		again, err := loader.Load("again", text)
		if err != nil {
			t.Fatalf("what loads does not load again: %v\n%s", err, text)
		}
		if DigestOf(again.Cluster) != DigestOf(loaded.Cluster) {
			t.Fatalf("it came back as another: %s", cmp.Diff(loaded.Cluster, again.Cluster))
		}
	})
}
