package lint

import (
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// checkPackageDocs demands exactly one package comment per package.
func checkPackageDocs(t *tree) []Problem {
	docs := map[string][]*goFile{}
	first := map[string]*goFile{}
	for _, f := range t.goSrc {
		if f.test {
			continue
		}
		if first[f.pkg] == nil {
			first[f.pkg] = f
		}
		if f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != "" {
			docs[f.pkg] = append(docs[f.pkg], f)
		}
	}
	var out []Problem
	for _, pkg := range t.packages() {
		f := first[pkg]
		if f == nil {
			continue // only tests
		}
		switch d := docs[pkg]; {
		case len(d) == 0:
			out = append(out, f.problem(f.ast.Package, "package %s has no package comment: say in doc.go or its main file what it is for", f.ast.Name.Name)...)
		case len(d) > 1:
			out = append(out, d[1].problem(d[1].ast.Package, "package %s has a second package comment (the other is in %s): join them, or leave an empty line before the package clause", f.ast.Name.Name, path.Base(d[0].name))...)
		case f.ast.Name.Name != "main" && !strings.HasPrefix(d[0].ast.Doc.Text(), "Package "+f.ast.Name.Name+" "):
			out = append(out, d[0].problem(d[0].ast.Package, "the package comment must begin with \"Package %s \"", f.ast.Name.Name)...)
		}
	}
	return out
}

// checkOpenEnds refuses comments that put work off.
func checkOpenEnds(t *tree) []Problem {
	open := regexp.MustCompile(`\b(` + "TO" + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	var out []Problem
	for _, f := range t.goSrc {
		for _, g := range f.ast.Comments {
			for _, c := range g.List {
				if word := open.FindString(c.Text); word != "" {
					out = append(out, f.problem(c.Pos(), "%s: finish it, or file an issue and leave the comment out", word)...)
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || f.test || len(call.Args) != 1 {
				return true
			}
			id, ok := call.Fun.(*ast.Ident)
			lit, ok2 := call.Args[0].(*ast.BasicLit)
			if ok && ok2 && id.Name == "panic" && regexp.MustCompile(`(?i)not (built|implemented)`).MatchString(lit.Value) {
				out = append(out, f.problem(call.Pos(), "a stub: build it, or leave it out")...)
			}
			return true
		})
	}
	return out
}

// checkMachinePaths refuses folders that exist only on somebody's machine.
func checkMachinePaths(t *tree) []Problem {
	machine := regexp.MustCompile(`(^|[\s"'=(:` + "`" + `])/(root|home|work|Users)/[\w.~]`)
	var out []Problem
	for _, name := range sortedNames(t.text) {
		if strings.HasPrefix(name, "internal/lint/") {
			continue
		}
		for i, line := range strings.Split(t.text[name], "\n") {
			if m := machine.FindString(line); m != "" {
				out = append(out, Problem{name, i + 1, "names a path of one machine (" + strings.TrimSpace(m) + "…): use a relative path, a temporary folder or an environment variable"})
			}
		}
	}
	return out
}

// checkDocPaths demands that what the documentation names exists: files and folders in backticks, targets of links,
// and functions written as `path/file.go Name`.
func checkDocPaths(t *tree) []Problem {
	quoted, link := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	var out []Problem
	for _, name := range sortedNames(t.text) {
		if path.Ext(name) != ".md" || strings.Contains(name, "/") && !strings.HasPrefix(name, "docs/") {
			continue
		}
		fenced := false
		for i, line := range strings.Split(t.text[name], "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			if fenced {
				continue
			}
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				if why := t.deadPath(m[1]); why != "" {
					out = append(out, Problem{name, i + 1, why})
				}
			}
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
					continue
				}
				if to := path.Join(path.Dir(name), m[1]); !t.exists(to) {
					out = append(out, Problem{name, i + 1, "links to " + m[1] + ", which does not exist: correct the link"})
				}
			}
		}
	}
	return out
}

// deadPath explains what is wrong with a quoted path of this repository; "" when it is fine or no such path.
func (t *tree) deadPath(quote string) string {
	p, symbol, _ := strings.Cut(quote, " ")
	p = strings.TrimSuffix(strings.TrimPrefix(p, "./"), "/")
	if !regexp.MustCompile(`^[\w.-]+(/[\w.*-]+)+$`).MatchString(p) {
		return ""
	}
	var found string
	for _, dir := range []string{"", "internal/"} {
		head, _, _ := strings.Cut(p, "/")
		if !t.exists(dir + head) {
			continue
		}
		if matches, err := fs.Glob(t.files, dir+p); err == nil && len(matches) > 0 {
			found = matches[0]
			break
		}
		if path.Ext(p) == "" && !strings.HasPrefix(p, "internal/") && !strings.HasPrefix(p, "cmd/") && !strings.HasPrefix(p, "docs/") && !strings.HasPrefix(p, "test/") {
			continue // "config/value" may be prose; folders of ours are written from the root
		}
		found = "-"
	}
	switch {
	case found == "":
		return ""
	case found == "-":
		return "names " + p + ", which does not exist: correct the path, or leave it out"
	}
	if regexp.MustCompile(`^[A-Za-z_]\w*$`).MatchString(symbol) && strings.HasSuffix(found, ".go") &&
		!regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |var |const |\t)`+symbol+`\b`).MatchString(t.text[found]) {
		return "names " + symbol + " in " + found + ", which does not declare it: correct the name"
	}
	return ""
}

func (t *tree) exists(name string) bool {
	if name == "" || !fs.ValidPath(name) {
		return false
	}
	_, err := fs.Stat(t.files, name)
	return err == nil
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
