package archtest

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
)

var treeFlag = flag.String("tree", "../..", "the root `directory` of the source tree to read")

// A goFile is one parsed Go file. Dir and name are relative to the root of
// the tree, with slashes.
type goFile struct {
	dir, name string
	source    []byte
	test      bool // a _test.go file, or a file of a package that only tests use
	generated bool
	fset      *token.FileSet
	syntax    *ast.File
}

// A mdFile is one Markdown file.
type mdFile struct {
	name   string
	source string
}

// A sourceTree holds all Go and Markdown files of a checkout, parsed once.
type sourceTree struct {
	files    []*goFile
	markdown []mdFile
}

var readTree = sync.OnceValues(func() (*sourceTree, error) { return loadTree(os.DirFS(*treeFlag)) })

// theTree returns the checkout under test. All tests share one parse.
func theTree(t *testing.T) *sourceTree {
	t.Helper()
	tree, err := readTree()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// loadTree parses the Go files and reads the Markdown files below root.
func loadTree(root fs.FS) (*sourceTree, error) {
	tree := &sourceTree{}
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); path != "." && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")) {
				return fs.SkipDir
			}
		case strings.HasSuffix(path, ".go"):
			tree.files = append(tree.files, &goFile{dir: filepath.ToSlash(filepath.Dir(path)), name: path})
		case strings.HasSuffix(path, ".md"):
			b, err := fs.ReadFile(root, path)
			if err != nil {
				return err
			}
			tree.markdown = append(tree.markdown, mdFile{path, string(b)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.SetLimit(4)
	for _, f := range tree.files {
		g.Go(func() error { return f.parseFile(root) })
	}
	return tree, g.Wait()
}

func (f *goFile) parseFile(root fs.FS) error {
	source, err := fs.ReadFile(root, f.name)
	if err != nil {
		return err
	}
	f.source, f.fset = source, token.NewFileSet()
	f.syntax, err = parser.ParseFile(f.fset, f.name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f.generated = ast.IsGenerated(f.syntax)
	f.test = strings.HasSuffix(f.name, "_test.go") || onlyForTests(f.dir)
	return nil
}

// onlyForTests reports whether the packages in dir link into no program.
func onlyForTests(dir string) bool {
	return strings.HasSuffix(dir, "test") || strings.HasPrefix(dir, "test/") ||
		strings.HasPrefix(dir, "internal/testutil/") || dir == "internal/records/conformance"
}

func (f *goFile) lineOf(p token.Pos) int { return f.fset.PositionFor(p, false).Line }

// splitLines returns the lines of the file without their line ends.
func (f *goFile) splitLines() [][]byte {
	return bytes.Split(bytes.TrimSuffix(f.source, []byte("\n")), []byte("\n"))
}
