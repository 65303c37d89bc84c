//go:build linux

package helper

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
)

func TestHost_IsManagedAfterOneChange(t *testing.T) {
	tests := map[string]struct {
		reason string
		in     []op.Result
		want   bool
	}{
		"nothing": {"a host that was as wanted is not ours", []op.Result{{Kind: op.KindFile, Status: op.Unchanged}}, false},
		"change": {
			"one change makes it ours",
			[]op.Result{{Kind: op.KindFile, Status: op.Unchanged}, {Kind: op.KindDir, Status: op.Changed}},
			true,
		},
		"failure": {"what was changed before a failure stays", []op.Result{{Status: op.Changed}, {Status: op.Failed}}, true},
		"given back": {
			"a restore removes the helper; it must not come back",
			[]op.Result{{Status: op.Changed}, {Kind: op.KindRestoreHost, Status: op.Changed}},
			false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := staysManaged(tt.in); got != tt.want {
				t.Errorf("%s: %v", tt.reason, got)
			}
		})
	}
}

func TestSaveProgram_RemovesOldHelpers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	old, other := "slipway-node-aaaaaaaaaaaa", "slipway-node-bbbbbbbbbbbb"
	for _, name := range []string{old, old, other} {
		if err := saveProgram(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Mode().String()+" "+e.Name())
	}
	if diff := cmp.Diff([]string{"-rwx------ " + other}, names); diff != "" {
		t.Errorf("one helper is kept, the newest:\n%s", diff)
	}
	if err := saveProgram(filepath.Join(dir, "no", "such"), old); err == nil {
		t.Error("a host that is not managed keeps a helper")
	}
}

func TestMain_RefusesInvalidArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"serve", "a", "b"}, {"digest", "a"}, {"help"}} {
		if err := Main(t.Context(), args, os.Stdin, os.Stdout); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
	if err := Main(t.Context(), []string{"serve", t.TempDir()}, os.Stdin, os.Stdout); err == nil {
		t.Error("a directory that is not the program's is taken for it")
	}
}
