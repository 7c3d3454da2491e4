package interop

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"weir/test/interop/normal"
	"weir/test/testnode"
)

// TestTools runs the scenarios of testdata/tools: the real command-line tools against a Weir node, and those of
// testdata/tools-cluster and testdata/tools-static against three nodes. What they are expected to print was recorded with the real Apache Kafka:
//
//	go test ./test/interop -run TestTools -rewrite
//
// runs the scenarios there and writes the files anew. A long run compares both systems. A block is
//
//	file NAME
//	content of a file in the (first) node's folder
//	----
//
// or
//
//	run [on=weir|kafka differs=NAME] [sort] [only=regexp] [find=regexp] [until=regexp] [seconds=N]
//	TOOL ARGUMENTS (quotes group, NODE and CONTROLLER are addresses, DIR is the node's folder; of three nodes NODE1, DIR1 …)
//	standard input …
//	----
//	standard output, then standard error, then the exit code unless it is 0
//
//	member NAME group=GROUP topic=TOPIC [instance=ID]
//	leave NAME
//
//	kill|stop|start ID…
//
// member and leave join a classic consumer to a group, with NAME as its client id, and take it out again; the last ones are for
// the nodes with these ids. The scenarios of testdata/tools-long run in long runs only.
//
// sort sorts the lines of the output, only keeps the lines that match, find keeps what matches (its groups, if it has
// some) and sorts it, until repeats the tool until its output matches: brokers hear of changes a little later than the
// controller answers. seconds ends a tool that never ends by itself. What differs between two runs is taken out by package
// normal and by nothing else. Where the systems are meant to differ, there is a block for each with the name of the
// difference, which docs/differences.md explains.
func TestTools(t *testing.T) {
	for _, system := range systems() {
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
					s := &stage{nodes: []*testnode.Node{n}, in: members{}, names: normal.Names{}}
					s.name("", n)
					datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
					n.Stop(t)
				})
			}
		})
	}
}

// TestToolsOfClusters is the part of TestTools with three nodes, which live through all scenarios.
func TestToolsOfClusters(t *testing.T) { playOnThree(t, "tools-cluster", true) }

// TestToolsOfStaticVoters is the same in a cluster whose voters stand in the files, at kraft.version 0.
func TestToolsOfStaticVoters(t *testing.T) { playOnThree(t, "tools-static", false) }

func playOnThree(t *testing.T, folder string, dynamicVoters bool) {
	for _, system := range systems() {
		t.Run(string(system), func(t *testing.T) {
			testnode.Oracle(t)
			c := testnode.NewCluster(t, testnode.ClusterOptions{
				Members: testnode.Nodes(3, testnode.Member{System: system}), Dynamic: dynamicVoters,
				Props: map[string]string{"auto.leader.rebalance.enable": "false"},
			})
			c.Start(t)
			s := &stage{nodes: c.Nodes, in: members{}, names: normal.Names{}}
			for _, n := range c.Nodes {
				s.name(fmt.Sprint(n.ID), n)
			}
			datadriven.Walk(t, filepath.Join("testdata", folder), func(t *testing.T, path string) {
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
			})
		})
	}
}

// systems are those that scenarios run on: ours; the other where they are recorded; both in a long run.
func systems() []testnode.System {
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		return []testnode.System{testnode.Apache}
	}
	if testnode.Full() {
		return []testnode.System{testnode.Ours, testnode.Apache}
	}
	return []testnode.System{testnode.Ours}
}

// stage is where a scenario plays.
type stage struct {
	nodes []*testnode.Node
	in    members
	names normal.Names // what stands in the outputs for the nodes' addresses and folders
}

// name gives a node's addresses and folder the names that scenarios use.
func (s *stage) name(suffix string, n *testnode.Node) {
	_, nodePort, _ := strings.Cut(n.Addr, ":")
	_, controllerPort, _ := strings.Cut(n.Controller, ":")
	s.names[n.Addr], s.names[n.Controller], s.names[n.Dir] = "NODE"+suffix, "CONTROLLER"+suffix, "DIR"+suffix
	s.names[nodePort], s.names[controllerPort] = "PORT"+suffix, "CONTROLLERPORT"+suffix
}

// given puts addresses and folders where a scenario names them.
func (s *stage) given(text string) string {
	var pairs []string
	for given, name := range s.names {
		pairs = append(pairs, name, given)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (s *stage) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "run":
		return s.tool(t, d)
	case "file":
		if err := os.WriteFile(filepath.Join(s.nodes[0].Dir, d.CmdArgs[0].Key), []byte(d.Input), 0o644); err != nil {
			t.Fatal(err)
		}
	case "member":
		s.in.join(t, s.nodes[0], d)
	case "leave":
		s.in.leave(t, d.CmdArgs[0].Key)
	case "kill", "stop", "start":
		for _, id := range d.CmdArgs {
			i := slices.IndexFunc(s.nodes, func(n *testnode.Node) bool { return fmt.Sprint(n.ID) == id.Key })
			if i < 0 {
				d.Fatalf(t, "no node %s", id.Key)
			}
			map[string]func(testing.TB){"kill": s.nodes[i].Kill, "stop": s.nodes[i].Stop, "start": func(t testing.TB) { s.nodes[i].Start(t) }}[d.Cmd](t)
		}
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	return ""
}

// tool runs a tool as a block says.
func (s *stage) tool(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	system := s.nodes[0].System()
	if on, ok := d.Arg("on"); ok && on.SingleVal(t) != string(system) {
		return d.Expected
	}
	command, stdin, _ := strings.Cut(d.Input, "\n")
	args := words(s.given(command))
	if stdin != "" {
		stdin += "\n"
	}
	limit := testnode.ToolLimit
	if seconds, ok := d.Arg("seconds"); ok {
		n, err := strconv.Atoi(seconds.SingleVal(t))
		if err != nil {
			t.Fatal(err)
		}
		limit = time.Duration(n) * time.Second
	}
	once := func() string {
		if system == testnode.Ours {
			figures.tool(args[0])
		}
		out := testnode.ToolFor(t, limit, stdin, args[0], args[1:]...)
		text := strings.Trim(normal.Text(pick(t, d, out), s.names, testnode.ClusterID), "\n")
		if out.Code != 0 && !d.HasArg("seconds") {
			text += fmt.Sprintf("\nexit code %d", out.Code)
		}
		if text = strings.Trim(text, "\n"); text == "" {
			return ""
		}
		return text + "\n"
	}
	until, ok := d.Arg("until")
	if !ok {
		return once()
	}
	re, out := regexp.MustCompile(until.SingleVal(t)), ""
	testnode.Until(t, 2*testnode.Patience, command, func() error {
		if out = once(); !re.MatchString(out) {
			return fmt.Errorf("it prints:\n%s", out)
		}
		return nil
	})
	return out
}

var (
	// What a tool can do is its own affair.
	usage = regexp.MustCompile(`(?ms)^Option +(\(\* = required\) +)?Description.*?^--version [^\n]*`)
	// Sets of Java come in any order.
	sets   = regexp.MustCompile(`(Valid (?:states|types) are: |topicPartitions=|following scenarios: )([^)\n]*)`)
	voters = regexp.MustCompile(`ReplicaKey\([^)]*\)(?:, ReplicaKey\([^)]*\))+`)
)

// pick takes from the output what a block asks for. Stack traces and warnings are the tool's own.
func pick(t *testing.T, d *datadriven.TestData, out testnode.Output) string {
	t.Helper()
	lines := strings.Split(strings.Trim(out.Stdout, "\n"), "\n")
	if find, ok := d.Arg("find"); ok {
		lines = nil
		for _, m := range regexp.MustCompile(`(?m)`+find.SingleVal(t)).FindAllStringSubmatch(out.Stdout, -1) {
			lines = append(lines, strings.Join(m[min(1, len(m)-1):], " "))
		}
		if slices.Sort(lines); d.HasArg("seconds") { // it repeats its report until it is ended
			lines = slices.Compact(lines)
		}
	}
	if d.HasArg("sort") {
		slices.Sort(lines)
	}
	lines = append(lines, strings.Split(strings.Trim(out.Stderr, "\n"), "\n")...)
	if only, ok := d.Arg("only"); ok {
		re := regexp.MustCompile(only.SingleVal(t))
		lines = slices.DeleteFunc(lines, func(l string) bool { return !re.MatchString(l) })
	}
	lines = slices.DeleteFunc(lines, func(l string) bool {
		return l == "" || strings.HasPrefix(l, "\tat ") || strings.HasPrefix(l, "\t... ") || strings.Contains(l, " WARN ")
	})
	text := usage.ReplaceAllString(strings.Join(lines, "\n"), "(usage)")
	text = sets.ReplaceAllStringFunc(text, sortItems)
	return voters.ReplaceAllStringFunc(text, func(set string) string {
		keys := strings.Split(strings.TrimPrefix(set, "ReplicaKey"), ", ReplicaKey")
		slices.Sort(keys)
		return "ReplicaKey" + strings.Join(keys, ", ReplicaKey")
	})
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
