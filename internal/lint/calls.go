package lint

import (
	"go/ast"
	"slices"
	"strings"
)

// zone is how strict the rules are for a file.
type zone struct {
	core   bool // tier 2: pure
	below  bool // tiers 0 to 3: clock, dice and disk are handed in
	ground bool // clock, rng, vfs: they are the clock, the dice, the disk
	prints bool // commands: may print, and end the process
	test   bool
}

func zoneOf(f *goFile, layers map[string]layer) zone {
	z := zone{test: f.test}
	pkg, inside := strings.CutPrefix(f.pkg, "internal/")
	z.prints = !inside || strings.HasPrefix(pkg, "tool") || pkg == "records/gen"
	if l, ok := layerOf(layers, pkg); inside && ok {
		z.core = l.tier == 2
		z.below = l.tier <= 3 && pkg != "records/gen"
		z.ground = pkg == "clock" || pkg == "rng" || pkg == "vfs"
	}
	return z
}

// checkCalls looks for calls, statements and imports that a file's zone does not allow.
func checkCalls(t *tree, layers map[string]layer) []Problem {
	var out []Problem
	for _, f := range t.goSrc {
		z := zoneOf(f, layers)
		for _, spec := range f.ast.Imports {
			if why := z.forbidsImport(strings.Trim(spec.Path.Value, `"`)); why != "" {
				out = append(out, f.problem(spec.Pos(), "%s", why)...)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				if z.core && !z.test {
					out = append(out, f.problem(n.Pos(), "a core starts no goroutine: return an effect and let the runtime that steps it act")...)
				}
			case *ast.SelectorExpr:
				pkg, name := f.callee(n)
				if z.test && name == "Sleep" && f.maySleep(n) {
					return true
				}
				if why := z.forbids(pkg, name); why != "" {
					out = append(out, f.problem(n.Pos(), "%s.%s: %s", pkg, name, why)...)
				}
			case *ast.CallExpr:
				id, ok := n.Fun.(*ast.Ident)
				if ok && id.Obj == nil && !z.test && (id.Name == "print" || id.Name == "println") {
					out = append(out, f.problem(n.Pos(), "%s: log with the slog.Logger that the constructor got", id.Name)...)
				}
			}
			return true
		})
	}
	return out
}

// maySleep tells whether a test's sleep takes no time (in a synctest bubble) or says why it must.
func (f *goFile) maySleep(n ast.Node) bool {
	return f.imports["synctest"] == "testing/synctest" || f.commented[f.line(n.Pos())]
}

func (z zone) forbidsImport(p string) string {
	if z.test {
		return ""
	}
	if z.core {
		switch root, _, _ := strings.Cut(p, "/"); {
		case root == "sync", root == "os", root == "net" && p != "net/netip", root == "log", p == "math/rand", p == "math/rand/v2", p == "crypto/rand":
			return "a core must not import " + p + ": it is stepped from one goroutine and gets time, dice and input as arguments"
		case p == module+"/internal/vfs", p == module+"/internal/clock":
			return "a core must not import " + p + ": files and time belong to the runtime that steps it"
		}
	}
	if z.below && !z.ground && (p == "math/rand" || p == "math/rand/v2" || p == "crypto/rand") {
		return p + ": take an *rng.Source, or a small interface, in the constructor, so that a run can be replayed by its seed"
	}
	return ""
}

func (z zone) forbids(pkg, name string) string {
	switch pkg {
	case "time":
		return z.forbidsTime(name)
	case "os":
		if z.below && !z.ground && !z.test && slices.Contains(osCalls(), name) {
			return "take a vfs.FS in the constructor, so that tests can crash and fill the disk"
		}
		if name == "Exit" && !z.prints && !z.test {
			return "return an error; only cmd and tool end the process"
		}
	case "log":
		if !z.test {
			return "log with the slog.Logger that the constructor got, and return errors"
		}
	case "log/slog":
		if !z.test && !z.prints && slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log", "Default", "SetDefault"}, name) {
			return "use the *slog.Logger that the constructor got, not the global one"
		}
	case "fmt":
		if strings.HasPrefix(name, "Print") && !z.prints && !z.test {
			return "log with the slog.Logger that the constructor got; only cmd and tool print"
		}
	}
	return ""
}

func (z zone) forbidsTime(name string) string {
	switch name {
	case "Sleep":
		if z.test {
			return "tests do not sleep: use testing/synctest or clock.Manual, or wait for an event; where a real process leaves no other way, say why in a comment beside it"
		}
	case "Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick":
	default:
		return ""
	}
	switch {
	case z.test || !z.below || z.ground:
		return ""
	case z.core:
		return "a core gets the time as an argument of its step"
	}
	return "take a clock.Clock in the constructor, so that tests can turn the time"
}

// osCalls are the functions of package os that touch a disk.
func osCalls() []string {
	return []string{
		"Open", "OpenFile", "Create", "CreateTemp", "Mkdir", "MkdirAll", "MkdirTemp", "ReadFile", "WriteFile", "ReadDir",
		"Remove", "RemoveAll", "Rename", "Stat", "Lstat", "Truncate", "Link", "Symlink", "Chmod", "DirFS", "Readlink",
	}
}
