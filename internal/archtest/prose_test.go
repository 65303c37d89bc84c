package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A textKind is the place of a text, which decides the rules for it.
type textKind string

const (
	kindMessage  textKind = "message" // an error, a hint, a note, help, a log line
	kindTitle    textKind = "title"   // of a task
	kindShort    textKind = "short"   // of a command
	kindExample  textKind = "example" // of a command: words are checked, sentences are not
	kindComment  textKind = "comment"
	kindTest     textKind = "test comment"
	kindMarkdown textKind = "markdown"
	kindCell     textKind = "table cell"
)

// A text is one piece of prose. Values that the program inserts are "X".
type text struct {
	kind textKind
	file string
	line int
	body string
	// wraps is true if a line break in body is one in the file.
	wraps bool
	// declared holds the identifiers of the package, for comments.
	declared map[string]bool
}

// lineAt returns the line in the file of a byte of the text.
func (t text) lineAt(offset int) int {
	if !t.wraps {
		return t.line
	}
	return t.line + strings.Count(t.body[:offset], "\n")
}

// inProgram reports whether the text is a string of the program.
func (t text) inProgram() bool {
	return t.kind == kindMessage || t.kind == kindTitle || t.kind == kindShort || t.kind == kindExample
}

// parameters maps "package.function" to the names of its parameters, one
// list for each function or method of that name.
type parameters map[string][][]string

func parametersOf(files []*goFile) parameters {
	out := parameters{}
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || f.test {
				continue
			}
			var names []string
			for _, field := range fn.Type.Params.List {
				for _, n := range field.Names {
					names = append(names, n.Name)
				}
			}
			key := f.syntax.Name.Name + "." + fn.Name.Name
			out[key] = append(out[key], names)
		}
	}
	return out
}

// stringsOf returns the texts in a file that users may see: all string
// literals that read as prose, except where the program compares them with
// text of others.
func stringsOf(f *goFile, params parameters) []text {
	var out []text
	var stack []ast.Node
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		e, ok := n.(ast.Expr)
		if !ok || !isText(e) || len(stack) > 1 && isPart(stack[len(stack)-2]) {
			return true
		}
		kind, visible := placeOf(f, params, stack)
		t := text{kind: kind, file: f.name, line: f.lineOf(e.Pos()), body: flattenExpr(e), wraps: isRaw(e)}
		if visible && t.isProse() {
			out = append(out, t)
		}
		return true
	})
	return out
}

// isText reports whether e is a string literal, or a sum with one in it.
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (isText(e.X) || isText(e.Y))
	case *ast.ParenExpr:
		return isText(e.X)
	}
	return false
}

// isPart reports whether a text below parent belongs to a longer text.
func isPart(parent ast.Node) bool {
	e, ok := parent.(ast.Expr)
	return ok && isText(e)
}

func isRaw(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && strings.HasPrefix(lit.Value, "`")
}

var verbs = regexp.MustCompile(`%[-+# 0]*(?:\[\d+\])?[*\d]*(?:\.[*\d]+)?[a-zA-Z]`)

// flattenExpr returns the text of e, with X for each part that is not a literal.
func flattenExpr(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			if err != nil {
				return ""
			}
			return strings.ReplaceAll(verbs.ReplaceAllString(s, "X"), "%%", "%")
		}
	case *ast.BinaryExpr:
		if isText(e) {
			return flattenExpr(e.X) + flattenExpr(e.Y)
		}
	case *ast.ParenExpr:
		return flattenExpr(e.X)
	}
	return "X"
}

var (
	codeStart = regexp.MustCompile(`^\s*(?:[{<#\[$/-]|sh -c|apiVersion:|[A-Z][A-Za-z]+=)`)
	word      = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
)

// isProse reports whether the text is for people: two words, or a title.
func (t text) isProse() bool {
	if t.kind == kindTitle || t.kind == kindShort || t.kind == kindExample {
		return word.MatchString(t.body)
	}
	words := 0
	for _, w := range strings.Fields(t.body) {
		if w = strings.Trim(w, ".,;:()'\"!?"); len(w) > 1 && word.FindString(w) == w {
			words++
		}
	}
	return words >= 2 && !codeStart.MatchString(t.body)
}

// readers are functions whose arguments are text of others.
var readers = map[string]bool{"regexp": true, "has": true, "time.Parse": true, "time.Format": true, "fmt.Sscanf": true, "exec": true}

var comparing = regexp.MustCompile(
	`^(?:strings|bytes)\.(?:Contains|HasPrefix|HasSuffix|Cut|Index|Split|Trim|EqualFold|Replace|NewReplacer|Count|Fields|Last)`)

// placeOf returns what the last node of stack is used for, and false if no
// user sees it.
func placeOf(f *goFile, params parameters, stack []ast.Node) (textKind, bool) {
	node := stack[len(stack)-1]
	for i := len(stack) - 2; i >= 0; i-- {
		switch parent := stack[i].(type) {
		case *ast.ImportSpec, *ast.Field, *ast.CaseClause, *ast.IndexExpr:
			return "", false
		case *ast.BinaryExpr:
			return "", false // a comparison: sums do not get here
		case *ast.KeyValueExpr:
			if parent.Key == node {
				return "", false
			}
			return kindNamed(nameOf(parent.Key), typeOf(stack[:i]))
		case *ast.AssignStmt:
			if len(parent.Lhs) == len(parent.Rhs) {
				for j := range parent.Rhs {
					if parent.Rhs[j] == node {
						return kindNamed(nameOf(parent.Lhs[j]), "")
					}
				}
			}
			return kindMessage, true
		case *ast.CallExpr:
			return argumentKind(f, params, parent, node)
		case *ast.ParenExpr:
			node = parent
		default:
			return kindMessage, true
		}
	}
	return kindMessage, true
}

// argumentKind returns the kind of the text that a call has as an argument.
func argumentKind(f *goFile, params parameters, call *ast.CallExpr, node ast.Node) (textKind, bool) {
	name := nameOf(call.Fun)
	pkg, _, _ := strings.Cut(name, ".")
	if readers[name] || readers[pkg] || comparing.MatchString(name) {
		return "", false
	}
	position := slices.IndexFunc(call.Args, func(a ast.Expr) bool { return a == node })
	last := name[strings.LastIndex(name, ".")+1:]
	for _, key := range []string{name, f.syntax.Name.Name + "." + last} {
		for _, names := range params[key] {
			if 0 <= position && position < len(names) {
				if kind, _ := kindNamed(names[position], ""); kind != kindMessage {
					return kind, kind != ""
				}
			}
		}
	}
	return kindMessage, true
}

// kindNamed returns the kind of the text that a field, a variable or a
// parameter of this name holds.
func kindNamed(name, typ string) (textKind, bool) {
	switch strings.ToLower(name[strings.LastIndex(name, ".")+1:]) {
	case "title":
		if typ == "cobra.Group" {
			return kindMessage, true
		}
		return kindTitle, true
	case "short":
		return kindShort, true
	case "example":
		return kindExample, true
	case "use", "licence":
		return "", false
	}
	return kindMessage, true
}

// typeOf returns the type of the innermost composite literal.
func typeOf(stack []ast.Node) string {
	for i := len(stack) - 1; i >= 0; i-- {
		lit, ok := stack[i].(*ast.CompositeLit)
		if !ok || lit.Type == nil {
			continue
		}
		if list, ok := lit.Type.(*ast.ArrayType); ok {
			return nameOf(list.Elt)
		}
		return nameOf(lit.Type)
	}
	return ""
}

// nameOf returns the name in an expression: "f", "pkg.F".
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return nameOf(e.X) + "." + e.Sel.Name
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.IndexExpr:
		return nameOf(e.X)
	}
	return ""
}

var directive = regexp.MustCompile(`^//(?:[a-z]+:|nolint|\+build|line )`)

// declaredNames returns the names that the files of each directory declare:
// functions, types, fields, variables and constants.
func declaredNames(files []*goFile) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, f := range files {
		if out[f.dir] == nil {
			out[f.dir] = map[string]bool{}
		}
		add := func(names ...*ast.Ident) {
			for _, n := range names {
				out[f.dir][n.Name] = true
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(n.Name)
			case *ast.TypeSpec:
				add(n.Name)
			case *ast.ValueSpec:
				add(n.Names...)
			case *ast.Field:
				add(n.Names...)
			}
			return true
		})
	}
	return out
}

// isIdentifier reports whether a hit in a comment is the name of something:
// the first word of the comment, or a word with a capital letter.
func (t text) isIdentifier(at [2]int) bool {
	hit := t.body[at[0]:at[1]]
	name := hit[strings.LastIndexAny(hit, " \n\t")+1:]
	first := at[0] == 0 && slices.Contains([]string{"", "A", "An", "The"}, strings.TrimSpace(strings.TrimSuffix(hit, name)))
	return t.declared[name] && len(strings.Fields(hit)) <= 2 && (first || ast.IsExported(name))
}

// commentsOf returns the comments in a file. The identifiers of its package
// are in declared.
func commentsOf(f *goFile, declared map[string]bool) []text {
	kind := kindComment
	if f.test {
		kind = kindTest
	}
	var out []text
	for _, group := range f.syntax.Comments {
		var lines []string
		for _, c := range group.List {
			line := strings.TrimPrefix(c.Text, "//")
			if directive.MatchString(c.Text) {
				line = ""
			}
			lines = append(lines, strings.TrimPrefix(strings.TrimSuffix(line, "*/"), "/*"))
		}
		body := strings.Join(lines, "\n")
		trimmed := strings.TrimLeft(body, " \t\n")
		skipped := strings.Count(body[:len(body)-len(trimmed)], "\n")
		if trimmed != "" {
			out = append(out, text{kind: kind, file: f.name, line: f.lineOf(group.Pos()) + skipped, body: trimmed, wraps: true, declared: declared})
		}
	}
	return out
}
