package archtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCheckImports_FindsEachOffence checks that each kind of offence is found, on an invented module.
func TestCheckImports_FindsEachOffence(t *testing.T) {
	law := []rule{
		{layer: 0, pkg: "low", why: "low"},
		{layer: 1, pkg: "left", why: "left"},
		{layer: 1, pkg: "right", may: []string{"left"}, why: "right"},
		{layer: 2, pkg: "strict", exactly: true, may: []string{"left"}, why: "strict"},
	}
	walls := []fence{{"os/exec", []string{"left"}, "few"}}
	tests := []struct {
		name, reason string
		pkg          string
		imports      []string
		want         []string
	}{
		{"lower", "a lower layer is open to all above", "left", []string{module + "/low", "fmt"}, nil},
		{"upward", "imports never run upward", "low", []string{module + "/left"}, []string{"low imports left, which it may not (low)"}},
		{"listed peer", "the table lists it", "right", []string{module + "/left"}, nil},
		{"peer", "peers are closed unless listed", "left", []string{module + "/right"}, []string{"left imports right, which it may not (left)"}},
		{
			"exactly", "a strict package gets no layer for free", "strict",
			[]string{module + "/low"},
			[]string{"strict imports low, which it may not (strict)"},
		},
		{"fence", "os/exec is left's alone", "right", []string{"os/exec"}, []string{"right imports os/exec, which only [left] may: few"}},
		{"no rule", "a new package must be placed", "new", nil, []string{"new has no rule: say in rules_test.go what it may import, and why"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := module + "/" + tt.pkg
			got := checkImports(map[string]listed{path: {ImportPath: path, Imports: tt.imports}}, law, walls, false)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tt.reason, diff)
			}
		})
	}
}

func TestCheckImports_FindsStaleRules(t *testing.T) {
	path := module + "/here"
	got := checkImports(map[string]listed{path: {ImportPath: path}},
		[]rule{{pkg: "here", may: []string{"gone"}}, {pkg: "away"}}, []fence{{"x", []string{"lost/..."}, ""}}, true)
	want := []string{
		"the rule for here names gone, which does not exist",
		"the rule for away names away, which does not exist",
		"the fence around x names lost/..., which does not exist",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestCheckExclusion_FindsForbiddenPackages checks that a forbidden package is reported with
// the package that imports it, on an invented module.
func TestCheckExclusion_FindsForbiddenPackages(t *testing.T) {
	path := module + "/main"
	tests := []struct {
		name, reason string
		imports      []string
		want         []string
	}{
		{"allowed", "neither package is in the list", []string{"lib"}, nil},
		{"direct", "the program imports it", []string{"server/core"}, []string{"main links server/core, which " + path + " imports: small"}},
		{"through another", "any importer counts", []string{"wrapper"}, []string{"main links server/core, which wrapper imports: small"}},
		{"excepted", "its types are allowed", []string{"server/types"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pkgs := map[string]listed{
				path:          {ImportPath: path, Imports: tt.imports, Deps: append([]string{"server/core"}, tt.imports...)},
				"wrapper":     {ImportPath: "wrapper", Imports: []string{"server/core"}},
				"server/core": {ImportPath: "server/core", Imports: []string{"server/more"}},
			}
			got := exclusion{"main", []string{"server/..."}, []string{"server/types"}, "small"}.checkExclusion(pkgs)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tt.reason, diff)
			}
		})
	}
	if got := (exclusion{of: "gone"}).checkExclusion(nil); len(got) != 1 {
		t.Errorf("a program that does not exist gives %v", got)
	}
}
