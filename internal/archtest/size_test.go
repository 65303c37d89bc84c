package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"
)

// Groups of rules on size.
const (
	groupLongLines = "long-lines"
	groupPackage   = "package"
	groupMethods   = "methods"
)

const (
	maxLine    = 140  // characters
	maxPackage = 6000 // lines, without tests and generated files
	maxMethods = 60   // of a type
)

// marker begins a comment for controller-gen, which has to be on one line.
const marker = "// +kubebuilder:"

// TestSize_HasNoFindings fails for lines, packages and types that are too large.
func TestSize_HasNoFindings(t *testing.T) { requireNoFindings(t, sizeFindings(theTree(t))) }

// sizeFindings returns the lines, packages and types that are too large, by
// package.
func sizeFindings(tree *sourceTree) map[string][]finding {
	out := map[string][]finding{}
	lines := map[string]int{}
	methods := map[string]map[string]map[string]bool{} // by directory, type and method
	for _, f := range tree.files {
		if f.generated {
			continue
		}
		out[f.dir] = append(out[f.dir], longLines(f)...)
		if f.test {
			continue
		}
		lines[f.dir] += len(f.splitLines())
		if methods[f.dir] == nil {
			methods[f.dir] = map[string]map[string]bool{}
		}
		addMethods(methods[f.dir], f)
	}
	for dir, n := range lines {
		if n > maxPackage {
			out[dir] = append(out[dir], finding{
				file: dir, group: groupPackage, rule: "package", text: fmt.Sprintf("the package has %d lines", n),
				fix: fmt.Sprintf("the limit is %d", maxPackage),
			})
		}
	}
	for dir, types := range methods {
		for _, name := range slices.Sorted(maps.Keys(types)) {
			if n := len(types[name]); n > maxMethods {
				out[dir] = append(out[dir], finding{
					file: dir, group: groupMethods, rule: "methods", text: fmt.Sprintf("type %s has %d methods", name, n),
					fix: fmt.Sprintf("the limit is %d", maxMethods),
				})
			}
		}
	}
	return out
}

func longLines(f *goFile) []finding {
	var out []finding
	for i, line := range f.splitLines() {
		if n := utf8.RuneCount(line); n > maxLine && !bytes.HasPrefix(bytes.TrimSpace(line), []byte(marker)) {
			out = append(out, finding{
				file: f.name, line: i + 1, group: groupLongLines, rule: "long-line", text: string([]rune(string(line))[:60]),
				fix: fmt.Sprintf("%d characters; the limit is %d", n, maxLine),
			})
		}
	}
	return out
}

// addMethods adds the methods in a file to the sets of methods of its types.
// A method with one variant for each platform counts once.
func addMethods(types map[string]map[string]bool, f *goFile) {
	for _, d := range f.syntax.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv == nil || len(fn.Recv.List) != 1 {
			continue
		}
		name := nameOf(fn.Recv.List[0].Type)
		if types[name] == nil {
			types[name] = map[string]bool{}
		}
		types[name][fn.Name.Name] = true
	}
}
