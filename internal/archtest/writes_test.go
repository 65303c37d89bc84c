package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// byPath are functions that change files by a path, and follow any links on it.
var byPath = []string{
	"os.Chmod", "os.Chown", "os.Create", "os.CreateTemp", "os.Lchown", "os.Link", "os.Mkdir", "os.MkdirAll", "os.MkdirTemp", "os.OpenFile",
	"os.Remove", "os.RemoveAll", "os.Rename", "os.Symlink", "os.Truncate", "os.WriteFile", "fsync.Commit", "fsync.Rename",
}

// TestCacheIsWrittenSafely: the packages that write in directories of the caller do so
// with package safefile, or in an open directory.
func TestCacheIsWrittenSafely(t *testing.T) {
	for _, top := range []string{"internal/addon", "internal/bundle", "internal/kubeconfig", "internal/owner"} {
		err := filepath.WalkDir(filepath.Join("../..", top), func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") || strings.Contains(p, "bundletest") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := sel.X.(*ast.Ident); ok && slices.Contains(byPath, pkg.Name+"."+sel.Sel.Name) {
						t.Errorf("%s uses %s.%s, which follows links of a user as root: use package safefile", p, pkg.Name, sel.Sel.Name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
