package lint

import (
	"go/ast"
	"go/token"
	"strings"
)

// checkGlobals refuses init functions and package variables that change: hidden wiring that no constructor shows. A
// variable changes when it has no initial value, when it holds a lock, a pool or an atomic, or when a function of its
// package assigns to it. Values that are fixed once (errors, tables, regular expressions, sync.OnceValue) are fine.
func checkGlobals(t *tree) []Problem {
	var out []Problem
	byPackage := map[string]map[string]bool{}
	for _, f := range t.goSrc {
		if f.test || f.generated || !strings.HasPrefix(f.pkg, "internal/") {
			continue
		}
		if byPackage[f.pkg] == nil {
			byPackage[f.pkg] = map[string]bool{}
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					out = append(out, f.problem(d.Pos(), "no init functions: build it in a constructor, and let package broker call that")...)
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					out = append(out, f.checkVars(d, byPackage[f.pkg])...)
				}
			}
		}
	}
	for _, f := range t.goSrc {
		if !f.test {
			out = append(out, f.assignments(byPackage[f.pkg])...)
		}
	}
	return out
}

const globalRemedy = "package variables must not change: make it a field of the type that uses it, set by its constructor"

// checkVars looks at one var declaration and adds the names to declared.
func (f *goFile) checkVars(d *ast.GenDecl, declared map[string]bool) []Problem {
	var out []Problem
	for _, s := range d.Specs {
		v := s.(*ast.ValueSpec)
		embedded := d.Doc != nil && strings.Contains(commentText(d.Doc), "go:embed") || v.Doc != nil && strings.Contains(commentText(v.Doc), "go:embed")
		for i, name := range v.Names {
			if name.Name == "_" || embedded {
				continue
			}
			declared[name.Name] = true
			shared := v.Type != nil && f.holdsLock(v.Type)
			if i < len(v.Values) {
				if lit, ok := v.Values[i].(*ast.CompositeLit); ok {
					shared = shared || f.holdsLock(lit.Type)
				}
			}
			switch {
			case shared:
				out = append(out, f.problem(name.Pos(), "%s is shared state of the whole process; %s", name.Name, globalRemedy)...)
			case len(v.Values) == 0 && !isZeroConstant(v.Type):
				out = append(out, f.problem(name.Pos(), "%s has no initial value, so it is there to be changed; %s", name.Name, globalRemedy)...)
			}
		}
	}
	return out
}

func commentText(g *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range g.List {
		b.WriteString(c.Text)
	}
	return b.String()
}

// holdsLock tells the types of sync and sync/atomic.
func (f *goFile) holdsLock(e ast.Expr) bool {
	if ix, ok := e.(*ast.IndexExpr); ok {
		e = ix.X
	}
	pkg, _ := f.callee(e)
	return pkg == "sync" || pkg == "sync/atomic"
}

// isZeroConstant tells the types whose zero value is useful as a constant: the empty list, the zero array, the zero id.
func isZeroConstant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ArrayType:
		return true
	case *ast.Ident:
		return e.Name == "UUID"
	}
	return false
}

// assignments finds statements that change a package variable.
func (f *goFile) assignments(declared map[string]bool) []Problem {
	var out []Problem
	target := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
				continue
			case *ast.SelectorExpr:
				e = x.X
				continue
			case *ast.StarExpr:
				e = x.X
				continue
			case *ast.ParenExpr:
				e = x.X
				continue
			}
			break
		}
		id, ok := e.(*ast.Ident)
		// An object that the file knows as a local one is something else of the same name.
		if ok && declared[id.Name] && (id.Obj == nil || f.isPackageVar(id)) {
			out = append(out, f.problem(id.Pos(), "%s is changed here; %s", id.Name, globalRemedy)...)
		}
	}
	for _, d := range f.ast.Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, e := range n.Lhs {
						target(e)
					}
				}
			case *ast.IncDecStmt:
				target(n.X)
			}
			return true
		})
	}
	return out
}

// isPackageVar tells whether the parser resolved the name to a declaration of this file's top level.
func (f *goFile) isPackageVar(id *ast.Ident) bool {
	return f.ast.Scope.Lookup(id.Name) == id.Obj
}
