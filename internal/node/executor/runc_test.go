//go:build linux

package executor

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRaiseScores_RaisesOnlyLowerOOMScores checks that the OOM score of a container is never lower than its
// runtime's, and that no other setting for runc changes.
func TestRaiseScores_RaisesOnlyLowerOOMScores(t *testing.T) {
	const spared = `{"ociVersion":"1.2.0","process":{"args":["/pause"],"oomScoreAdj":-998,"cwd":"/"},"x":1.50}`
	for name, tc := range map[string]struct {
		reason     string
		args       func(dir string) []string
		file       string
		is, become string
	}{
		"created": {
			"a sandbox is spared most of all", func(dir string) []string { return []string{"--root", "/x", "create", "--bundle", dir, "id"} },
			"config.json", spared, `{"ociVersion":"1.2.0","process":{"args":["/pause"],"cwd":"/","oomScoreAdj":-500},"x":1.50}`,
		},
		"created, in one word": {
			"a flag's value may be in its word", func(dir string) []string { return []string{"run", "-b=" + dir, "id"} },
			"config.json", `{"process":{"oomScoreAdj":-998}}`, `{"process":{"oomScoreAdj":-500}}`,
		},
		"entered": {
			"another process has separate settings",
			func(dir string) []string { return []string{"exec", "--process", dir + "/p.json", "--detach", "id"} },
			"p.json", `{"oomScoreAdj":-997,"cwd":"/"}`, `{"cwd":"/","oomScoreAdj":-500}`,
		},
		"less than that": {
			"what is killed first may be", func(dir string) []string { return []string{"create", "--bundle", dir, "id"} },
			"config.json", `{"process":{"oomScoreAdj":1000}}`, `{"process":{"oomScoreAdj":1000}}`,
		},
		"none": {
			"it has that of its runtime", func(dir string) []string { return []string{"create", "--bundle", dir, "id"} },
			"config.json", `{"process":{"cwd":"/"}}`, `{"process":{"cwd":"/"}}`,
		},
		"no process": {
			"runc says what is wrong with it", func(dir string) []string { return []string{"create", "--bundle", dir, "id"} },
			"config.json", `{"process":null}`, `{"process":null}`,
		},
		"another command": {
			"of a container that is there nothing is read", func(string) []string { return []string{"--root", "/x", "kill", "id", "9"} },
			"config.json", spared, spared,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, tc.file)
			if err := os.WriteFile(file, []byte(tc.is), 0o640); err != nil {
				t.Fatal(err)
			}
			if err := raiseScores(tc.args(dir), -500); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil || string(got) != tc.become {
				t.Errorf("%s: it became %s, want %s (%v)", tc.reason, got, tc.become, err)
			}
		})
	}
	if err := raiseScores([]string{"create", "--bundle", t.TempDir(), "id"}, 0); err == nil {
		t.Error("a bundle without settings is none")
	}
}
