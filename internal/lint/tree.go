package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// module is the path of the Go module that the rules are about.
const module = "weir"

// Problem is one broken rule. Text says what is wrong and what to do.
type Problem struct {
	File string // relative to the repository
	Line int    // 0: the file as a whole
	Text string
}

// String returns file:line: text.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// goFile is one parsed Go file.
type goFile struct {
	name      string // relative to the repository, with slashes
	pkg       string // its folder: "internal/storage"
	test      bool
	generated bool
	lines     int
	fset      *token.FileSet
	ast       *ast.File
	imports   map[string]string // by the name used in the file
	excused   map[int]bool      // lines that a "lint:" comment covers
	commented map[int]bool      // lines that any comment of some length covers
}

// tree is the parsed repository.
type tree struct {
	files fs.FS
	goSrc []*goFile
	text  map[string]string // the other text files: md, Makefile, yml, sh, txt
}

// loadTree reads and parses the repository. Folders named testdata, results or beginning with a dot or underscore are
// left out, except .ci.
func loadTree(files fs.FS) (*tree, error) {
	t := &tree{files: files, text: map[string]string{}}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name != "." && (base == "testdata" || base == "bin" || base == "weir-data" || base != ".ci" && strings.ContainsAny(base[:1], "._")) {
				return fs.SkipDir
			}
			return nil
		}
		switch path.Ext(base) {
		case ".go", ".md", ".yml", ".sh", ".txt", ".properties", "":
		default:
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := fs.ReadFile(files, name)
		if err != nil || bytes.IndexByte(data, 0) >= 0 {
			return err
		}
		t.text[name] = string(data)
		if path.Ext(base) != ".go" {
			return nil
		}
		f, err := parseGo(name, data)
		if err != nil {
			return err
		}
		t.goSrc = append(t.goSrc, f)
		return nil
	})
	return t, err
}

func parseGo(name string, src []byte) (*goFile, error) {
	f := &goFile{
		name: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), fset: token.NewFileSet(),
		lines: bytes.Count(src, []byte("\n")), imports: map[string]string{}, excused: map[int]bool{}, commented: map[int]bool{},
	}
	var err error
	if f.ast, err = parser.ParseFile(f.fset, name, src, parser.ParseComments); err != nil {
		return nil, err
	}
	f.generated = ast.IsGenerated(f.ast)
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		local := path.Base(p)
		if regexp.MustCompile(`^v[0-9]+$`).MatchString(local) {
			local = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		f.imports[local] = p
	}
	reason := regexp.MustCompile(`^// lint: .{10,}`)
	for _, g := range f.ast.Comments {
		for _, c := range g.List {
			line, below := f.line(c.Pos()), f.line(g.End())+1
			if len(c.Text) > 12 {
				f.commented[line], f.commented[below] = true, true
			}
			if reason.MatchString(c.Text) {
				f.excused[line], f.excused[below] = true, true
			}
		}
	}
	return f, nil
}

func (f *goFile) line(p token.Pos) int { return f.fset.Position(p).Line }

// problem reports at a place, unless a comment there gives a reason.
func (f *goFile) problem(p token.Pos, format string, args ...any) []Problem {
	if f.excused[f.line(p)] {
		return nil
	}
	return []Problem{{File: f.name, Line: f.line(p), Text: fmt.Sprintf(format, args...)}}
}

// callee returns the import path and name behind a selector such as time.Now; "" when it is no imported package.
func (f *goFile) callee(e ast.Expr) (pkg, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok || id.Obj != nil { // a local variable of that name
		return "", ""
	}
	return f.imports[id.Name], sel.Sel.Name
}

// packages returns the folders that hold Go files, sorted.
func (t *tree) packages() []string {
	var out []string
	for _, f := range t.goSrc {
		if !slices.Contains(out, f.pkg) {
			out = append(out, f.pkg)
		}
	}
	slices.Sort(out)
	return out
}
