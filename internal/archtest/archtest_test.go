// Package archtest checks rules on the source tree: which package may import
// which, how large files and packages may be, and which words users may read.
// The tests need only the source tree and the go command.
package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "slipway.dev/slipway"

// A listed is the part of `go list -json` that matters here.
type listed struct {
	ImportPath string
	Imports    []string // without imports of tests
	Deps       []string
	Standard   bool
}

// platforms lists the operating systems that the program is built for. The
// rules hold for the files of each.
var platforms = []string{"linux", "darwin"}

func TestImports_FollowTheRules(t *testing.T) {
	for _, goos := range platforms {
		t.Run(goos, func(t *testing.T) {
			for _, problem := range checkImports(listPackages(t, goos), rules, fences, goos == "linux") {
				t.Error(problem)
			}
		})
	}
}

func TestClosures_LinkOnlyAllowedPackages(t *testing.T) {
	pkgs := listPackages(t, "linux")
	for _, c := range closures {
		t.Run(c.of, func(t *testing.T) {
			for _, problem := range c.checkClosure(pkgs) {
				t.Error(problem)
			}
		})
	}
}

func TestExclusions_LinkNoForbiddenPackage(t *testing.T) {
	for _, goos := range platforms {
		pkgs := listPackages(t, goos)
		for _, e := range exclusions {
			t.Run(goos+" "+e.of, func(t *testing.T) {
				for _, problem := range e.checkExclusion(pkgs) {
					t.Error(problem)
				}
			})
		}
	}
}

// TestNodeHelper_StaysBelowItsSizeLimit builds the helper, which is sent to every host.
func TestNodeHelper_StaysBelowItsSizeLimit(t *testing.T) {
	const limit = 12 * 1000 * 1000
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "slipway-node")
			cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "nethttpomithttp2", "-ldflags", "-s -w",
				"-o", out, "./cmd/slipway-node") // as hack/build-node
			cmd.Dir = "../.."
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
			if b, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("building the node helper: %v\n%s", err, b)
			}
			info, err := os.Stat(out)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > limit {
				t.Errorf("slipway-node for linux/%s has %d bytes; the limit is %d", arch, info.Size(), limit)
			}
		})
	}
}

// listPackages asks the go command for every package of the module and its
// dependencies, as built for goos.
func listPackages(t *testing.T, goos string) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Imports,Deps,Standard", "./...")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH=amd64")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	pkgs := map[string]listed{}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("reading go list: %v", err)
		}
		pkgs[p.ImportPath] = p
	}
}

// checkImports returns all imports of pkgs that break the rules. If complete is true,
// pkgs holds all packages, and a rule for a missing package is a problem too.
func checkImports(pkgs map[string]listed, rules []rule, fences []fence, complete bool) []string {
	var problems []string
	byPath := map[string]rule{}
	for _, r := range rules {
		byPath[r.pkg] = r
	}
	for _, path := range sortedKeys(pkgs) {
		name, ours := inModule(path)
		if !ours {
			continue
		}
		r, ok := byPath[name]
		if !ok {
			problems = append(problems, fmt.Sprintf("%s has no rule: say in rules_test.go what it may import, and why", name))
			continue
		}
		for _, imp := range pkgs[path].Imports {
			if to, ours := inModule(imp); ours && !isAllowed(r, to, byPath) {
				problems = append(problems, fmt.Sprintf("%s imports %s, which it may not (%s)", name, to, r.why))
			}
			for _, f := range fences {
				if coversPath(f.imported, imp) && !slices.ContainsFunc(f.only, func(in string) bool { return coversPath(in, name) }) {
					problems = append(problems, fmt.Sprintf("%s imports %s, which only %v may: %s", name, imp, f.only, f.why))
				}
			}
		}
	}
	if complete {
		problems = append(problems, staleRules(pkgs, rules, fences)...)
	}
	return problems
}

// isAllowed reports whether a package under rule r may import the package to of
// this module.
func isAllowed(r rule, to string, byPath map[string]rule) bool {
	if slices.ContainsFunc(r.may, func(m string) bool { return coversPath(m, to) }) {
		return true
	}
	if r.exactly {
		return false
	}
	if strings.HasPrefix(to, r.pkg+"/") {
		return true
	}
	target, ok := byPath[to]
	return ok && target.layer < r.layer && !target.exactly
}

// staleRules returns the rules for packages that no longer exist.
func staleRules(pkgs map[string]listed, rules []rule, fences []fence) []string {
	var problems []string
	exists := func(pattern string) bool {
		for path := range pkgs {
			if name, ours := inModule(path); ours && coversPath(pattern, name) {
				return true
			}
		}
		return false
	}
	for _, r := range rules {
		for _, p := range append([]string{r.pkg}, r.may...) {
			if !exists(p) {
				problems = append(problems, fmt.Sprintf("the rule for %s names %s, which does not exist", r.pkg, p))
			}
		}
	}
	for _, f := range fences {
		for _, p := range f.only {
			if !exists(p) {
				problems = append(problems, fmt.Sprintf("the fence around %s names %s, which does not exist", f.imported, p))
			}
		}
	}
	return problems
}

// checkClosure returns the forbidden packages that the program or package links.
func (c closure) checkClosure(pkgs map[string]listed) []string {
	p, ok := pkgs[module+"/"+c.of]
	if !ok {
		return []string{fmt.Sprintf("the closure of %s: it does not exist", c.of)}
	}
	imports := p.Deps
	if c.direct {
		imports = p.Imports
	}
	var problems []string
	for _, dep := range imports {
		if pkgs[dep].Standard {
			continue
		}
		name, _ := inModule(dep)
		if !slices.ContainsFunc(c.may, func(m string) bool { return coversPath(m, name) }) {
			problems = append(problems, fmt.Sprintf("%s links %s, which it may not: %s", c.of, name, c.why))
		}
	}
	return problems
}

// checkExclusion returns the forbidden packages that the program links, each with the
// package that imports it.
func (e exclusion) checkExclusion(pkgs map[string]listed) []string {
	p, ok := pkgs[module+"/"+e.of]
	if !ok {
		return []string{fmt.Sprintf("the exclusion for %s: it does not exist", e.of)}
	}
	isForbidden := func(path string) bool {
		name, _ := inModule(path)
		covers := func(pattern string) bool { return coversPath(pattern, name) }
		return slices.ContainsFunc(e.never, covers) && !slices.ContainsFunc(e.except, covers)
	}
	var problems []string
	for _, from := range append([]string{p.ImportPath}, p.Deps...) {
		if isForbidden(from) {
			continue // the package that imports it is reported
		}
		for _, imp := range pkgs[from].Imports {
			if isForbidden(imp) {
				problems = append(problems, fmt.Sprintf("%s links %s, which %s imports: %s", e.of, imp, from, e.why))
			}
		}
	}
	return problems
}

// coversPath reports whether path is pattern, or below it if pattern ends in "/...".
func coversPath(pattern, path string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == dir || strings.HasPrefix(path, dir+"/")
	}
	return path == pattern
}

// inModule returns an import path relative to this module, and whether it is
// in this module.
func inModule(path string) (string, bool) {
	return strings.CutPrefix(path, module+"/")
}

func sortedKeys(m map[string]listed) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
