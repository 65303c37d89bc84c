//go:build linux

package executor

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// kindsOf returns the values of all constants of the type Kind in package op.
func kindsOf(t *testing.T) []op.Kind {
	t.Helper()
	files, err := filepath.Glob("../op/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []op.Kind
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Kind" || len(spec.Values) != 1 {
				return true
			}
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, op.Kind(value))
			return true
		})
	}
	return kinds
}

func TestOperations_HasExecutorForEveryKind(t *testing.T) {
	kinds := kindsOf(t)
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			var list op.List
			if err := json.Unmarshal(fmt.Appendf(nil, `[{"kind": %q, "op": {}}]`, kind), &list); err != nil {
				t.Fatalf("package op cannot decode the kind: %v", err)
			}
			x, err := operationOf(list[0])
			if err != nil {
				t.Fatal(err)
			}
			// A misspelt method would silently leave out a part of the operation.
			_, changes := x.(host.Changer)
			_, usesPaths := x.(host.PathUser)
			_, reverts := x.(host.Reverter)
			known := map[string]bool{"Check": true, "Apply": changes, "Paths": usesPaths, "LedgerEntries": reverts}
			for method := range reflect.TypeOf(x).Methods() {
				if !known[method.Name] {
					t.Errorf("%T has the method %s, which no interface of package host has", x, method.Name)
				}
			}
		})
	}
	if len(kinds) != len(operations) {
		t.Errorf("package op has %d kinds, and operations has %d", len(kinds), len(operations))
	}
}
