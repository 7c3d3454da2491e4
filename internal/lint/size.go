package lint

import "go/ast"

// Limits of length. The target is 600 lines a file and 70 a function; beyond these limits something has two subjects.
const (
	maxFileLines     = 800
	maxFuncLines     = 100
	maxTestFuncLines = 200 // most of it is a table
)

// checkSizes measures files and functions that people wrote.
func checkSizes(t *tree) []Problem {
	var out []Problem
	for _, f := range t.goSrc {
		if f.generated {
			continue
		}
		if f.lines > maxFileLines {
			out = append(out, f.problem(f.ast.Package, "%d lines, at most %d: split it by subject", f.lines, maxFileLines)...)
		}
		limit := maxFuncLines
		if f.test {
			limit = maxTestFuncLines
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := f.line(fn.End()) - f.line(fn.Pos()) + 1; n > limit {
				out = append(out, f.problem(fn.Pos(), "%s has %d lines, at most %d: give its steps names of their own", fn.Name.Name, n, limit)...)
			}
		}
	}
	return out
}
