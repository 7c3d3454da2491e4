package testnode

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Roles are the process.roles of a node.
type Roles string

// What a node of a Cluster may be.
const (
	Both           Roles = "broker,controller"
	BrokerOnly     Roles = "broker"
	ControllerOnly Roles = "controller"
)

// Member is one node of a Cluster. The zero value is a Weir node with both roles.
type Member struct {
	System System // Ours when empty
	Roles  Roles  // Both when empty
	// LogDirs is how many log.dirs; 1 when 0.
	LogDirs int
	Props   map[string]string
	// First: with dynamic voters, this one is the only voter at the start.
	First bool
}

// ClusterOptions say what cluster to make. Node ids are 1, 2, … in the order of Members.
type ClusterOptions struct {
	Members []Member
	Dynamic bool // kraft.version 1: the voters are in the log, not in controller.quorum.voters
	Props   map[string]string
	Unset   []string // keys that NewCluster would write and that stay at their defaults
	Faulty  bool     // Weir's nodes are a build whose disks can be made to fail: see Node.Faults
	Stock   bool     // Apache Kafka runs as its users do, with the heap of its own start script; see Options.Stock
	Wired   bool     // the network between nodes, and to clients, can be cut: see Wires
}

// Nodes is n members of one kind.
func Nodes(n int, m Member) []Member {
	out := make([]Member, n)
	for i := range out {
		out[i] = m
	}
	return out
}

// Cluster is several nodes of one cluster id, on free loopback ports.
type Cluster struct {
	Nodes []*Node // Nodes[i] has id i+1
	Wires *Wires  // nil unless ClusterOptions.Wired
}

// NewCluster formats the nodes of a cluster. It starts nothing.
func NewCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	c := &Cluster{}
	if o.Wired {
		c.Wires = newWires(t)
	}
	var voters, servers, initial []string
	alone := slices.ContainsFunc(o.Members, func(m Member) bool { return m.First })
	for i, m := range o.Members {
		n := newMember(t, int32(i+1), m)
		if o.Stock {
			n.stock, n.heap = true, scriptHeap
		}
		c.Nodes = append(c.Nodes, n)
		if o.Wired {
			n.wire(t, c.Wires)
		}
		if o.Faulty {
			n.binary, n.faulty = FaultyBinary(t), true
		}
		if n.roles != BrokerOnly {
			voters = append(voters, fmt.Sprintf("%d@%s", n.ID, n.Controller))
			servers = append(servers, n.Controller)
			initial = append(initial, fmt.Sprintf("%d@%s:%s", n.ID, n.Controller, directoryID()))
		}
	}
	for i, m := range o.Members {
		n := c.Nodes[i]
		var args []string
		if o.Dynamic {
			n.props["controller.quorum.bootstrap.servers"] = strings.Join(servers, ",")
			switch {
			case n.roles == BrokerOnly:
			case alone && m.First:
				args = []string{"--standalone"}
			case alone:
				args = []string{"--no-initial-controllers"}
			default:
				args = []string{"--initial-controllers", strings.Join(initial, ",")}
			}
		} else {
			n.props["controller.quorum.voters"] = strings.Join(voters, ",")
		}
		maps.Copy(n.props, o.Props)
		maps.Copy(n.props, m.Props)
		for _, key := range o.Unset {
			delete(n.props, key)
		}
		n.writeProps(t)
		n.formatArgs = args
		n.format(t, n.system, args)
	}
	return c
}

// scriptHeap is what kafka-server-start.sh gives a broker.
const scriptHeap = "-Xmx1G -Xms1G"

// wire puts the node's listeners behind proxies: what others are told are the proxies' addresses.
func (n *Node) wire(t testing.TB, w *Wires) {
	t.Helper()
	n.net = w
	var told []string
	for name, address := range map[string]*string{"PLAINTEXT": &n.Addr, "CONTROLLER": &n.Controller} {
		if *address == "" {
			continue
		}
		x := wire{real: *address, told: "127.0.0.1:" + strconv.Itoa(FreePort(t))}
		*address = x.told
		n.wires, told = append(n.wires, x), append(told, name+"://"+x.told)
	}
	n.props["advertised.listeners"] = strings.Join(told, ",")
}

func (n *Node) faultsFile() string { return filepath.Join(n.Dir, "faults") }

// Faults makes the node's disk fail from now on, by rules as cmd/weir/disk_faults.go reads them: "sync * 200ms",
// "write *.log EIO". None heals it.
func (n *Node) Faults(t testing.TB, rules ...string) {
	t.Helper()
	fresh, text := n.faultsFile()+".new", strings.Join(append(rules, ""), "\n")
	if err := os.WriteFile(fresh, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, n.faultsFile()); err != nil {
		t.Fatal(err)
	}
	if n.Running() {
		Until(t, Patience, "faults that hold", func() error {
			if seen, err := os.ReadFile(n.faultsFile() + ".seen"); err != nil || string(seen) != text {
				return fmt.Errorf("the node has %q, %w", seen, err)
			}
			return nil
		})
	}
}

// Wipe gives the node, which must be down, a new and empty disk.
func (n *Node) Wipe(t testing.TB) {
	t.Helper()
	for _, dir := range n.LogDirs {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	n.format(t, n.system, n.formatArgs)
}

// directoryID is a random id that begins with no dash: the tools would take it for a flag.
func directoryID() string {
	var id [16]byte
	for i := range id {
		id[i] = byte(rand.IntN(256))
	}
	id[0] = 0x41
	return base64.RawURLEncoding.EncodeToString(id[:])
}

func newMember(t testing.TB, id int32, m Member) *Node {
	t.Helper()
	n := &Node{ID: id, Dir: TempDir(t), system: m.System, roles: m.Roles}
	if n.system == "" {
		n.system = Ours
	}
	if n.roles == "" {
		n.roles = Both
	}
	n.binary = Binary(t)
	for i := range max(m.LogDirs, 1) {
		n.LogDirs = append(n.LogDirs, filepath.Join(n.Dir, fmt.Sprintf("data-%d", i+1)))
	}
	var listeners []string
	if n.roles != ControllerOnly {
		n.Addr = "127.0.0.1:" + strconv.Itoa(FreePort(t))
		listeners = append(listeners, "PLAINTEXT://"+n.Addr)
	}
	if n.roles != BrokerOnly {
		n.Controller = "127.0.0.1:" + strconv.Itoa(FreePort(t))
		listeners = append(listeners, "CONTROLLER://"+n.Controller)
	}
	n.props = map[string]string{
		"process.roles":                            string(n.roles),
		"node.id":                                  strconv.Itoa(int(n.ID)),
		"controller.listener.names":                "CONTROLLER",
		"listeners":                                strings.Join(listeners, ","),
		"listener.security.protocol.map":           "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"log.dirs":                                 strings.Join(n.LogDirs, ","),
		"offsets.topic.replication.factor":         "1",
		"transaction.state.log.replication.factor": "1",
		"transaction.state.log.min.isr":            "1",
		"group.initial.rebalance.delay.ms":         "0",
	}
	if n.roles != ControllerOnly {
		n.props["inter.broker.listener.name"] = "PLAINTEXT"
	}
	t.Cleanup(func() { n.cleanup(t) })
	return n
}

// DirectoryID is the id of the node's first log directory, as meta.properties has it.
func (n *Node) DirectoryID(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.LogDirs[0], "meta.properties"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "directory.id="); ok {
			return id
		}
	}
	t.Fatalf("no directory.id in\n%s", text)
	return ""
}

// Roles is what the node is.
func (n *Node) Roles() Roles { return n.roles }

// Node finds a node by its id.
func (c *Cluster) Node(id int32) *Node { return c.Nodes[id-1] }

// Start starts all nodes at once and waits until each is ready.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	for _, n := range c.Nodes {
		n.Launch(t)
	}
	for _, n := range c.Nodes {
		n.WaitReady(t)
	}
}

// Controllers lists the nodes that are voters from the start.
func (c *Cluster) Controllers() []*Node {
	var out []*Node
	for _, n := range c.Nodes {
		if n.roles != BrokerOnly {
			out = append(out, n)
		}
	}
	return out
}

// QuorumState is what the leader of the metadata quorum tells of it.
type QuorumState struct {
	Leader, Epoch int32
	HighWatermark int64
	Voters        map[int32]int64 // log end by node id, -1 unknown
	Observers     map[int32]int64
}

// Quorum asks the controllers that run for the state of the quorum; an error says that none of them leads.
func (c *Cluster) Quorum() (QuorumState, error) {
	err := fmt.Errorf("no controller runs")
	for _, n := range c.Controllers() {
		if !n.Running() {
			continue
		}
		var s QuorumState
		if s, err = n.quorum(); err == nil {
			return s, nil
		}
	}
	return QuorumState{}, err
}

// quorum asks one controller.
func (n *Node) quorum() (QuorumState, error) {
	var s QuorumState
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic, topic.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{{}}
	req.Topics = append(req.Topics, topic)
	r, err := n.askController(req)
	if err != nil {
		return s, err
	}
	res := r.(*kmsg.DescribeQuorumResponse)
	if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
		return s, err
	}
	p := &res.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return s, err
	}
	s = QuorumState{Leader: p.LeaderID, Epoch: p.LeaderEpoch, HighWatermark: p.HighWatermark, Voters: map[int32]int64{}, Observers: map[int32]int64{}}
	for _, v := range p.CurrentVoters {
		s.Voters[v.ReplicaID] = v.LogEndOffset
	}
	for _, v := range p.Observers {
		s.Observers[v.ReplicaID] = v.LogEndOffset
	}
	return s, nil
}

// askController sends one request to the node's controller listener.
func (n *Node) askController(req kmsg.Request) (kmsg.Response, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(n.Controller), kgo.RequestRetries(0))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return client.SeedBrokers()[0].Request(ctx, req)
}

// WaitLeader waits until the quorum has a leader other than not, and returns it.
func (c *Cluster) WaitLeader(t testing.TB, limit time.Duration, not int32) QuorumState {
	t.Helper()
	var s QuorumState
	Until(t, limit, "a leader of the metadata quorum", func() (err error) {
		if s, err = c.Quorum(); err == nil && s.Leader == not {
			err = fmt.Errorf("node %d leads", s.Leader)
		}
		return err
	})
	return s
}

// Client is a client of all brokers, closed at the end of the test.
func (c *Cluster) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	var seeds []string
	for _, n := range c.Nodes {
		if n.roles != ControllerOnly {
			seeds = append(seeds, n.Addr)
		}
	}
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
