package lint

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// broken is a repository of one or more small files; want lists "file:line part of the text" of every problem.
type broken struct {
	name  string
	files map[string]string
	want  []string
}

func (b broken) run(t *testing.T, check func(*tree) []Problem) {
	t.Helper()
	files := fstest.MapFS{}
	for name, text := range b.files {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	tr, err := loadTree(files)
	if err != nil {
		t.Fatalf("%s: %v", b.name, err)
	}
	got := check(tr)
	for i, p := range got {
		if i >= len(b.want) {
			t.Errorf("%s: unexpected: %s", b.name, p)
			continue
		}
		place, text, _ := strings.Cut(b.want[i], " ")
		if fmt.Sprintf("%s:%d", p.File, p.Line) != place || !strings.Contains(p.Text, text) {
			t.Errorf("%s:\n have %s\n want %s", b.name, p, b.want[i])
		}
	}
	for _, w := range b.want[min(len(got), len(b.want)):] {
		t.Errorf("%s: not found: %s", b.name, w)
	}
}

func one(file, body string) map[string]string { return map[string]string{file: body} }

func TestLayerRule(t *testing.T) {
	layers, err := parseLayers("0 low\n1 mid -> peer => aide # why\n1 peer\n1 aide\n2 top\n")
	if err != nil {
		t.Fatal(err)
	}
	check := func(tr *tree) []Problem { return checkLayers(tr, layers) }
	src := func(imports ...string) string {
		s := "package x\n"
		for _, i := range imports {
			s += "import _ \"weir/internal/" + i + "\"\n"
		}
		return s
	}
	for _, b := range []broken{
		{"down and by the arrow", one("internal/mid/a.go", src("low", "peer")), nil},
		{"up", one("internal/mid/a.go", src("top")), []string{"internal/mid/a.go:2 must not import top (tier 2): imports go down"}},
		{"sideways", one("internal/peer/a.go", src("mid")), []string{"internal/peer/a.go:2 of its own tier"}},
		{"tests too", one("internal/mid/a_test.go", src("top")), []string{"internal/mid/a_test.go:2 imports go down"}},
		{"what only tests may", one("internal/mid/a_test.go", src("aide")), nil},
		{"and code may not", one("internal/mid/a.go", src("aide")), []string{"internal/mid/a.go:2 of its own tier"}},
		{"no line", one("internal/new/a.go", src()), []string{"internal/new/a.go:1 add one with its tier"}},
		{"import of no line", one("internal/top/a.go", src("new")), []string{"internal/top/a.go:2 add a line"}},
		{"outside", one("cmd/weir/main.go", src("top", "low")), nil},
		{"an exception with a reason", one("internal/mid/a.go", "package x\n// lint: until the two are merged next week\nimport _ \"weir/internal/top\"\n"), nil},
		{"an exception without", one("internal/mid/a.go", "package x\n// lint: x\nimport _ \"weir/internal/top\"\n"), []string{"internal/mid/a.go:3 imports go down"}},
	} {
		b.run(t, check)
	}
	for _, bad := range []string{"x", "one two", "1 a\n1 a", "1 a b"} {
		if _, err := parseLayers(bad); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
	tools := theLayers(t)
	for from, want := range map[string][2]bool{"broker": {true, false}, "tool": {true, true}, "tool/topics": {true, true}} {
		l, _ := layerOf(tools, from)
		for i, to := range []string{"wire", "tool/storage"} {
			if ok := l.forbids(tools, from, to, false) == ""; ok != want[i] {
				t.Errorf("%s imports %s: allowed %v, want %v", from, to, ok, want[i])
			}
		}
	}
	l, _ := layerOf(tools, "tool/topics")
	if l.forbids(tools, "tool/topics", "broker", false) == "" {
		t.Error("a tool may import the broker")
	}
}

func TestCallRule(t *testing.T) {
	layers, err := parseLayers("0 clock\n2 core\n3 run\n4 srv\n")
	if err != nil {
		t.Fatal(err)
	}
	check := func(tr *tree) []Problem { return checkCalls(tr, layers) }
	src := func(imports, body string) string {
		s := "package x\n"
		for i := range strings.FieldsSeq(imports) {
			s += "import \"" + i + "\"\n"
		}
		return s + "func f() {\n" + body + "\n}\n"
	}
	for _, b := range []broken{
		{"clock in a core", one("internal/core/a.go", src("time", "time.Now()")), []string{"internal/core/a.go:4 argument of its step"}},
		{"durations are fine", one("internal/core/a.go", src("time", "_ = 3 * time.Second")), nil},
		{"goroutine in a core", one("internal/core/a.go", src("", "go f()")), []string{"internal/core/a.go:3 starts no goroutine"}},
		{"goroutine in its test", one("internal/core/a_test.go", src("", "go f()")), nil},
		{"imports of a core", one("internal/core/a.go", src("sync net log/slog math/rand/v2 weir/internal/vfs net/netip", "")), []string{
			"internal/core/a.go:2 must not import sync", "internal/core/a.go:3 must not import net",
			"internal/core/a.go:4 must not import log/slog", "internal/core/a.go:5 must not import math/rand/v2", "internal/core/a.go:6 files and time belong",
		}},
		{"clock in a runtime", one("internal/run/a.go", src("time", "time.NewTicker(1)")), []string{"internal/run/a.go:4 clock.Clock"}},
		{"disk in a runtime", one("internal/run/a.go", src("os", "os.Open(\"x\"); _ = os.O_RDONLY")), []string{"internal/run/a.go:4 vfs.FS"}},
		{"dice in a runtime", one("internal/run/a.go", src("math/rand", "rand.Int()")), []string{"internal/run/a.go:2 rng.Source"}},
		{"the clock itself", one("internal/clock/a.go", src("time", "time.Now()")), nil},
		{"a local variable named time", one("internal/run/a.go", src("time", "_ = time.Second; { time := g(); time.Now() }")), nil},
		{"the server", one("internal/srv/a.go", src("time fmt log os", "time.Now(); fmt.Println(); log.Print(); os.Exit(1); println()")), []string{
			"internal/srv/a.go:7 fmt.Println", "internal/srv/a.go:7 log.Print", "internal/srv/a.go:7 return an error", "internal/srv/a.go:7 println",
		}},
		{"a command prints", one("cmd/weir/main.go", src("fmt os", "fmt.Println(); os.Exit(1)")), nil},
		{"a sleeping test", one("internal/run/a_test.go", src("time", "time.Sleep(1)")), []string{"internal/run/a_test.go:4 do not sleep"}},
		{"with a reason", one("internal/run/a_test.go", src("time", "time.Sleep(1) // the kernel closes the port late")), nil},
		{"in a bubble", one("internal/run/a_test.go", src("time testing/synctest", "time.Sleep(1)")), nil},
	} {
		b.run(t, check)
	}
}

func TestGlobalRule(t *testing.T) {
	for _, b := range []broken{
		{"init", one("internal/a/a.go", "package a\nfunc init() {}\n"), []string{"internal/a/a.go:2 no init"}},
		{"a method named init", one("internal/a/a.go", "package a\ntype t int\nfunc (t) init() {}\n"), nil},
		{"constants in all but name", one("internal/a/a.go", "package a\nimport \"errors\"\nvar e = errors.New(\"x\")\nvar none []string\nvar zero [16]byte\nvar table = []int{1}\nvar _ error = e\n"), nil},
		{"embedded text", one("internal/a/a.go", "package a\nimport _ \"embed\"\n//go:embed x\nvar text string\n"), nil},
		{"no value", one("internal/a/a.go", "package a\nvar n int\n"), []string{"internal/a/a.go:2 no initial value"}},
		{"a lock", one("internal/a/a.go", "package a\nimport \"sync\"\nvar mu sync.Mutex\nvar p = sync.Pool{}\n"), []string{"internal/a/a.go:3 shared state", "internal/a/a.go:4 shared state"}},
		{"computed once", one("internal/a/a.go", "package a\nimport \"sync\"\nvar v = sync.OnceValue(f)\nfunc f() int { return 1 }\n"), nil},
		{"an atomic", one("internal/a/a.go", "package a\nimport \"sync/atomic\"\nvar n atomic.Int64\nvar q atomic.Pointer[int]\n"), []string{"internal/a/a.go:3 shared state", "internal/a/a.go:4 shared state"}},
		{"assigned in another file", map[string]string{"internal/a/a.go": "package a\nvar m = map[int]int{}\n", "internal/a/b.go": "package a\nfunc f() { m[1] = 2 }\n"}, []string{"internal/a/b.go:2 m is changed here"}},
		{"a local of the same name", map[string]string{"internal/a/a.go": "package a\nvar m = 1\n", "internal/a/b.go": "package a\nfunc f() { m := 2; m++ }\n"}, nil},
	} {
		b.run(t, checkGlobals)
	}
}

func TestSizeRule(t *testing.T) {
	long := "package a\n\nfunc f() {\n" + strings.Repeat("\n", 99) + "}\n"
	for _, b := range []broken{
		{"function", one("internal/a/a.go", long), []string{"internal/a/a.go:3 f has 101 lines"}},
		{"test function", one("internal/a/a_test.go", long), nil},
		{"file", one("internal/a/a.go", "package a\n"+strings.Repeat("\n", 800)), []string{"internal/a/a.go:1 801 lines"}},
		{"generated", one("internal/a/a.go", "// Code generated by gen. DO NOT EDIT.\n\npackage a\n"+strings.Repeat("\n", 900)), nil},
	} {
		b.run(t, checkSizes)
	}
}

func TestTextRules(t *testing.T) {
	for _, b := range []broken{
		{"no doc", one("internal/a/a.go", "package a\n"), []string{"internal/a/a.go:1 no package comment"}},
		{"two docs", map[string]string{"internal/a/a.go": "// Package a is.\npackage a\n", "internal/a/b.go": "// Package a is too.\npackage a\n"}, []string{"internal/a/b.go:2 second package comment"}},
		{"wrong word", one("internal/a/a.go", "// This is a.\npackage a\n"), []string{"internal/a/a.go:2 must begin with"}},
		{"only tests", one("test/a/a_test.go", "package a\n"), nil},
	} {
		b.run(t, checkPackageDocs)
	}
	for _, b := range []broken{
		{"open end", one("internal/a/a.go", "package a\n\n// TO"+"DO: later\nvar x = 1\n"), []string{"internal/a/a.go:3 finish it"}},
		{"stub", one("internal/a/a.go", "package a\nfunc f() { panic(\"not built yet\") }\n"), []string{"internal/a/a.go:2 a stub"}},
	} {
		b.run(t, checkOpenEnds)
	}
	broken{"machine path", one("Makefile", "x:\n\tls /home"+"/me/x\n\tls /tmp/x\n"), []string{"Makefile:2 one machine"}}.run(t, checkMachinePaths)
	broken{"docs", map[string]string{
		"internal/a/a.go": "// Package a is.\npackage a\n\nfunc F() {}\n",
		"docs/X.md": "see `a/a.go F`, `internal/a`, `a/a.go`, `/metrics`, `GET /x`, `none/such.go`, [ok](Y.md#z), [web](https://x)\n" +
			"`a/b.go` `a/a.go G` `internal/b` [dead](Z.md)\n```\n`a/b.go`\n```\n",
		"docs/Y.md": "x\n",
	}, []string{
		"docs/X.md:2 a/b.go, which does not exist", "docs/X.md:2 names G in internal/a/a.go", "docs/X.md:2 internal/b", "docs/X.md:2 links to Z.md",
	}}.run(t, checkDocPaths)
	broken{"third party", one("internal/a/a.go", "package a\nimport _ \"github.com/spf13/cobra\"\n"), []string{"internal/a/a.go:2 flags belong to commands"}}.run(t, checkThirdParty)
}
