package testnode

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// System is what runs a node.
type System string

// The systems that can run a node.
const (
	Ours   System = "weir"
	Apache System = "kafka"
)

// ClusterID is the cluster id of every node that New formats.
const ClusterID = "4L6g3nShT-eMCtK--X86sw"

// Options say what node to make. The zero value is a Weir node with id 1, one log directory and a static voter.
type Options struct {
	System     System            // what Start runs; Ours when empty
	Formatter  System            // what formats the directories; System when empty
	ID         int32             // node.id; 1 when 0
	LogDirs    int               // how many log.dirs; 1 when 0
	Dynamic    bool              // kraft.version 1: formatted with --standalone, found by controller.quorum.bootstrap.servers
	FormatArgs []string          // more arguments for `storage format`
	Binary     string            // the weir to run; that of Binary when empty
	Props      map[string]string // more keys of server.properties, also to replace the ones that New writes
	// Stock runs Apache Kafka as its users do, to be measured: the oracle's heap, both compilers, no class data archive.
	Stock bool
}

// Node is a node with its directory: a combined broker and controller, or what a Cluster makes of it. It is not goroutine safe.
type Node struct {
	ID         int32
	Dir        string   // everything of the node: node.properties, node.log, data-1 …
	LogDirs    []string // log.dirs
	Addr       string   // host:port of the PLAINTEXT listener; empty for a controller alone
	Controller string   // host:port of the CONTROLLER listener; empty for a broker alone

	system  System
	roles   Roles
	binary  string
	stock   bool
	heap    string // of a stock Apache Kafka; the oracle's when empty
	props   map[string]string
	started int // how many processes have been started
	proc    *process

	formatArgs []string // of a Cluster's node
	net        *Wires   // nil: its listeners are reached directly
	wires      []wire
	faulty     bool // its disk can be made to fail, see Faults
}

// New formats a node. It starts nothing. When the test ends, a process that still runs is killed, and when the test has
// failed, the end of the node's log is shown.
func New(t testing.TB, o Options) *Node {
	t.Helper()
	n := &Node{ID: max(o.ID, 1), Dir: TempDir(t), system: o.System, roles: Both, binary: o.Binary, stock: o.Stock}
	if n.system == "" {
		n.system = Ours
	}
	if n.binary == "" {
		n.binary = Binary(t)
	}
	if o.Formatter == "" {
		o.Formatter = n.system
	}
	n.Addr = "127.0.0.1:" + strconv.Itoa(FreePort(t))
	n.Controller = "127.0.0.1:" + strconv.Itoa(FreePort(t))
	for i := range max(o.LogDirs, 1) {
		n.LogDirs = append(n.LogDirs, filepath.Join(n.Dir, fmt.Sprintf("data-%d", i+1)))
	}
	n.props = map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          strconv.Itoa(int(n.ID)),
		"controller.listener.names":                        "CONTROLLER",
		"inter.broker.listener.name":                       "PLAINTEXT",
		"listeners":                                        "PLAINTEXT://" + n.Addr + ",CONTROLLER://" + n.Controller,
		"listener.security.protocol.map":                   "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"log.dirs":                                         strings.Join(n.LogDirs, ","),
		"offsets.topic.replication.factor":                 "1",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
	}
	args := o.FormatArgs
	if o.Dynamic {
		n.props["controller.quorum.bootstrap.servers"] = n.Controller
		args = append([]string{"--standalone"}, args...)
	} else {
		n.props["controller.quorum.voters"] = fmt.Sprintf("%d@%s", n.ID, n.Controller)
	}
	maps.Copy(n.props, o.Props)
	n.writeProps(t)
	n.format(t, o.Formatter, args)
	t.Cleanup(func() { n.cleanup(t) })
	return n
}

// Properties is the path of the node's server.properties.
func (n *Node) Properties() string { return filepath.Join(n.Dir, "node.properties") }

// SetProp changes a key of server.properties for the next Start.
func (n *Node) SetProp(t testing.TB, key, value string) {
	t.Helper()
	n.props[key] = value
	n.writeProps(t)
}

func (n *Node) writeProps(t testing.TB) {
	t.Helper()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(n.props)) {
		fmt.Fprintf(&b, "%s=%s\n", key, n.props[key])
	}
	if err := os.WriteFile(n.Properties(), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (n *Node) format(t testing.TB, by System, args []string) {
	t.Helper()
	args = append([]string{"format", "-t", ClusterID, "-c", n.Properties()}, args...)
	var out Output
	switch by {
	case Ours:
		out = Weir(t, "", append([]string{"storage"}, args...)...)
	case Apache:
		out = Tool(t, "", "kafka-storage", args...)
	}
	if out.Code != 0 {
		t.Fatalf("%s storage %v: exit code %d\n%s%s", by, args, out.Code, out.Stdout, out.Stderr)
	}
}

// Log is the path of what the node's processes wrote to stdout and stderr, one after the other.
func (n *Node) Log() string { return filepath.Join(n.Dir, "node.log") }

// LogText is the content of Log.
func (n *Node) LogText(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(n.Log())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// LogTail is the last lines of Log.
func (n *Node) LogTail(lines int) string {
	text, err := os.ReadFile(n.Log())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// System is what runs the node, or will at the next Start.
func (n *Node) System() System { return n.system }

// Become makes the next Start run the given system. The node must be down.
func (n *Node) Become(t testing.TB, s System) {
	t.Helper()
	if n.Running() {
		t.Fatal("testnode: Become needs a node that is down")
	}
	n.system = s
}

func (n *Node) cleanup(t testing.TB) {
	if n.Running() {
		n.proc.signal(sigKill)
		<-n.proc.gone
	}
	if t.Failed() && n.started > 0 {
		t.Logf("end of the log of node %d:\n%s", n.ID, n.LogTail(60))
	}
}
