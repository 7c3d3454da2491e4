package interop

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"weir/test/testnode"
)

// TestTools runs the scenarios of testdata/tools: the real command-line tools against a Weir node. What they are expected to
// print was recorded with the real Apache Kafka:
//
//	go test ./test/interop -run TestTools -rewrite
//
// runs the scenarios there and writes the files anew. A long run compares both systems. A block is
//
//	file NAME
//	content of a file in the node's folder
//	----
//
// or
//
//	run [on=weir|kafka] [sort] [numbers] [only=regexp] [find=regexp] [until=regexp]
//	TOOL ARGUMENTS (quotes group, NODE and CONTROLLER are addresses, DIR is the node's folder)
//	standard input …
//	----
//	standard output, then standard error, then the exit code unless it is 0
//
//	member NAME group=GROUP topic=TOPIC [instance=ID]
//	leave NAME
//
// join a classic consumer to a group, with NAME as its client id, and take it out again. The scenarios of
// testdata/tools-long run in long runs only.
//
// sort sorts the lines of the output, numbers writes N for every number, only keeps the lines that match, find
// keeps what matches and sorts it, until repeats the tool until its output matches: brokers hear of changes a little later than the controller answers.
func TestTools(t *testing.T) {
	systems := []testnode.System{testnode.Ours}
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		systems = []testnode.System{testnode.Apache}
	} else if testnode.Full() {
		systems = append(systems, testnode.Apache)
	}
	for _, system := range systems {
		t.Run(string(system), func(t *testing.T) {
			testnode.Oracle(t)
			scenarios := []string{"tools"}
			if testnode.Full() {
				scenarios = append(scenarios, "tools-long")
			}
			for _, folder := range scenarios {
				datadriven.Walk(t, filepath.Join("testdata", folder), func(t *testing.T, path string) {
					n := testnode.New(t, testnode.Options{System: system, LogDirs: 2})
					n.Start(t)
					in := members{}
					datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return runTool(t, n, in, d) })
					n.Stop(t)
				})
			}
		})
	}
}

func runTool(t *testing.T, n *testnode.Node, in members, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "run":
	case "file":
		if err := os.WriteFile(filepath.Join(n.Dir, d.CmdArgs[0].Key), []byte(d.Input), 0o644); err != nil {
			t.Fatal(err)
		}
		return ""
	case "member":
		in.join(t, n, d)
		return ""
	case "leave":
		in.leave(t, d.CmdArgs[0].Key)
		return ""
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	if on, ok := d.Arg("on"); ok && on.SingleVal(t) != string(n.System()) {
		return d.Expected
	}
	command, stdin, _ := strings.Cut(d.Input, "\n")
	args := words(strings.NewReplacer("NODE", n.Addr, "CONTROLLER", n.Controller, "DIR", n.Dir).Replace(command))
	if stdin != "" {
		stdin += "\n"
	}
	once := func() string {
		if n.System() == testnode.Ours {
			figures.tool(args[0])
		}
		return present(t, n, d, testnode.Tool(t, stdin, args[0], args[1:]...))
	}
	until, ok := d.Arg("until")
	if !ok {
		return once()
	}
	re, out := regexp.MustCompile(until.SingleVal(t)), ""
	testnode.Until(t, testnode.Patience, command, func() error {
		if out = once(); !re.MatchString(out) {
			return fmt.Errorf("it prints:\n%s", out)
		}
		return nil
	})
	return out
}

// present writes what a tool has printed without what differs from run to run.
func present(t *testing.T, n *testnode.Node, d *datadriven.TestData, out testnode.Output) string {
	t.Helper()
	lines := strings.Split(strings.Trim(out.Stdout, "\n"), "\n")
	if find, ok := d.Arg("find"); ok {
		lines = regexp.MustCompile(find.SingleVal(t)).FindAllString(out.Stdout, -1)
		slices.Sort(lines)
	}
	if d.HasArg("sort") {
		slices.Sort(lines)
	}
	lines = append(lines, strings.Split(strings.Trim(out.Stderr, "\n"), "\n")...)
	if only, ok := d.Arg("only"); ok {
		re := regexp.MustCompile(only.SingleVal(t))
		lines = slices.DeleteFunc(lines, func(l string) bool { return !re.MatchString(l) })
	}
	// Stack traces are the tool's own; the logger's time stamps too.
	lines = slices.DeleteFunc(lines, func(l string) bool {
		return l == "" || strings.HasPrefix(l, "\tat ") || strings.HasPrefix(l, "\t... ") || strings.Contains(l, " WARN ")
	})
	text := strings.NewReplacer(n.Addr, "NODE", n.Controller, "CONTROLLER", n.Dir, "DIR").Replace(strings.Join(lines, "\n"))
	_, nodePort, _ := strings.Cut(n.Addr, ":")
	_, controllerPort, _ := strings.Cut(n.Controller, ":")
	text = strings.NewReplacer(nodePort, "PORT", controllerPort, "CONTROLLERPORT").Replace(text)
	text = regexp.MustCompile(`(?m)^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] `).ReplaceAllString(text, "")
	text = regexp.MustCompile(`\b1[789]\d{11}\b`).ReplaceAllString(text, "TIME")
	// Sets of Java come in any order.
	text = regexp.MustCompile(`(Valid (?:states|types) are: |topicPartitions=|following scenarios: )([^)\n]*)`).ReplaceAllStringFunc(text, sortItems)
	// What a tool can do is its own affair.
	text = regexp.MustCompile(`(?ms)^Option +(\(\* = required\) +)?Description.*?^--version [^\n]*`).ReplaceAllString(text, "(usage)")
	text = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`).ReplaceAllString(text, "UUID")
	text = regexp.MustCompile(`Epoch: \d+`).ReplaceAllString(text, "Epoch: N")
	text = regexp.MustCompile(`\d+ ms ago +`).ReplaceAllString(text, "N ms ago ")
	text = regexp.MustCompile(`"avg_throughput":[0-9.]+`).ReplaceAllString(text, `"avg_throughput":N`)
	text = regexp.MustCompile(`(^|[\s:="])([A-Za-z0-9_-]{22})\b`).ReplaceAllStringFunc(text, func(s string) string {
		if id := strings.TrimLeft(s, " \t\n:=\""); strings.ContainsAny(id, "0123456789") && id != testnode.ClusterID {
			return strings.TrimSuffix(s, id) + "ID"
		}
		return s
	})
	if d.HasArg("numbers") {
		text = regexp.MustCompile(`\d+(\.\d+)?`).ReplaceAllString(text, "N")
	}
	if out.Code != 0 {
		text += fmt.Sprintf("\nexit code %d", out.Code)
	}
	if text = strings.Trim(text, "\n"); text == "" {
		return ""
	}
	return text + "\n"
}

// sortItems sorts the comma-separated items behind the last "=" or ": ".
func sortItems(s string) string {
	at := max(strings.LastIndex(s, "=")+1, strings.LastIndex(s, ": ")+2)
	items := strings.Split(strings.NewReplacer(" ", "", "[", "", "]", "").Replace(s[at:]), ",")
	slices.Sort(items)
	return s[:at] + strings.Join(items, ",")
}

// words splits a command line; double quotes group.
func words(s string) []string {
	var out []string
	for i, part := range strings.Split(s, `"`) {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}
