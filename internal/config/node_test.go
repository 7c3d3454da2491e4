package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write our answers into testdata/node.txt where they differ from Kafka's")

// Every combination in testdata/node.txt is accepted or refused as Kafka does, with the same text unless the file says otherwise.
func TestNode(t *testing.T) {
	text, err := os.ReadFile("testdata/node.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		properties, answers, ok := strings.Cut(block, "\n----\n")
		if !ok {
			t.Fatalf("no ---- in %q", block)
		}
		kafka, weir, differs := strings.Cut(answers, "\nweir: ")
		want := kafka
		if differs {
			want = weir
		}
		got := nodeAnswer(properties, kafka)
		name, _, _ := strings.Cut(strings.TrimPrefix(properties, "# "), "\n")
		if got != want && !*rewrite {
			t.Errorf("%s:\n have %s\n want %s", name, got, want)
		}
		block = properties + "\n----\n" + kafka
		if got != kafka {
			block += "\nweir: " + got
		}
		out = append(out, block)
	}
	if *rewrite {
		if err := os.WriteFile("testdata/node.txt", []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// nodeAnswer writes our answer in the form of the file: Kafka's own line when the reason is the same.
func nodeAnswer(properties, kafka string) string {
	s, _, err := Load("server.properties", []byte(properties), nil)
	var n *Node
	if err == nil {
		n, err = s.Node()
	}
	if err != nil {
		e, ok := AsError(err)
		if !ok {
			return fmt.Sprintf("not an *Error: %v", err)
		}
		// Kafka prefixes failed demands with "requirement failed: ", and names neither file nor line.
		if kafka == "error "+e.Reason || kafka == "error requirement failed: "+e.Reason {
			return kafka
		}
		return "error " + e.Error()
	}
	show := func(ls []Listener) string {
		var parts []string
		for _, l := range ls {
			host := l.Host
			if host == "" {
				host = "null"
			}
			parts = append(parts, fmt.Sprintf("%s(%s)://%s|%d", l.Name, l.Protocol, host, l.Port))
		}
		return strings.Join(parts, ",")
	}
	var voters []string
	for _, v := range n.QuorumVoters {
		voters = append(voters, fmt.Sprintf("%d@%s", v.ID, v.HostPort))
	}
	return fmt.Sprintf("ok listeners=%s advertised=%s interBroker=%s metadataDir=%s voters=[%s]",
		show(n.Listeners), show(n.Advertised), n.InterBroker, n.MetadataDir, strings.Join(voters, ", "))
}
