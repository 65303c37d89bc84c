package archtest

import (
	"go/ast"
	"slices"
	"testing"
)

// byPath are functions that change files by a path, and follow any links on it.
var byPath = []string{
	"os.Chmod", "os.Chown", "os.Create", "os.CreateTemp", "os.Lchown", "os.Link", "os.Mkdir", "os.MkdirAll", "os.MkdirTemp", "os.OpenFile",
	"os.Remove", "os.RemoveAll", "os.Rename", "os.Symlink", "os.Truncate", "os.WriteFile", "fsync.Commit", "fsync.Rename",
}

// TestCacheWrites_AreSafe checks that packages that write in directories of
// the caller use package safefile, or an open directory.
func TestCacheWrites_AreSafe(t *testing.T) {
	trees := []string{"internal/addonsource/...", "internal/bundle/...", "internal/kubeconfig/...", "internal/fileowner/..."}
	for _, f := range theTree(t).files {
		if f.test || !slices.ContainsFunc(trees, func(tree string) bool { return coversPath(tree, f.dir) }) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && slices.Contains(byPath, pkg.Name+"."+sel.Sel.Name) {
					t.Errorf("%s uses %s.%s, which follows links of a user as root: use package safefile", f.name, pkg.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}
