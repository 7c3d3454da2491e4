package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"weir/test/testnode"
)

// Nothing is private: a broker of one system joins a cluster of the other, and a topic is led and followed by nodes of
// either kind in turn, moved by the real tools, while its leader is killed under load. At the end all replicas hold the
// same bytes.
func TestNothingIsPrivate(t *testing.T) {
	t.Parallel()
	testnode.Oracle(t)
	short := map[string]string{"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500", "log.segment.bytes": "1048576"}
	broker := func(s testnode.System) testnode.Member { return testnode.Member{System: s, Roles: testnode.BrokerOnly} }
	apaches := append(testnode.Nodes(1, testnode.Member{System: testnode.Apache}), broker(testnode.Apache), broker(testnode.Ours))
	// The first of each is the leader that is killed: nobody kills the one controller of Apache Kafka in the short form.
	guestOfWeir, guestOfApache := [][]int32{{1, 2, 4}, {4, 3, 2}}, [][]int32{{3, 1, 2}, {2, 3, 1}}
	if testnode.Full() {
		apaches = append(testnode.Nodes(3, testnode.Member{System: testnode.Apache}), broker(testnode.Ours))
		guestOfWeir = append(guestOfWeir, [][]int32{{2, 4, 1}, {4, 1, 3}, {3, 2, 4}, {1, 4, 3}, {4, 2, 1}}...)
		guestOfApache = [][]int32{{4, 1, 2}, {1, 4, 3}, {2, 3, 4}, {4, 3, 1}, {3, 4, 2}, {1, 2, 4}}
	}
	for _, x := range []struct {
		name    string
		members []testnode.Member
		orders  [][]int32
	}{
		{"Apache Kafka broker in a cluster of Weir", append(testnode.Nodes(3, testnode.Member{}), broker(testnode.Apache)), guestOfWeir},
		{"Weir broker in a cluster of Apache Kafka", apaches, guestOfApache},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := testnode.NewCluster(t, testnode.ClusterOptions{Members: x.members, Props: short})
			c.Start(t)
			p := &mover{T: t, c: c, topic: "moved"}
			p.tool("kafka-topics", "--create", "--topic", p.topic, "--replica-assignment", strings.Join(ids(x.orders[0]), ":"), "--config", "min.insync.replicas=2")
			s := startStream(t, c, p.topic)
			for _, order := range x.orders {
				p.move(order)
				s.more(t, 300)
				p.kill(s)
			}
			figures.add("mixed_records", s.stop(t))
			p.sameBytes()
			p.sameDump()
			complain(t, c)
		})
	}
}

// mover is a partition on its way through a cluster.
type mover struct {
	*testing.T
	c     *testnode.Cluster
	topic string
}

// tool runs one of the real tools against a broker that runs, and wants it to succeed.
func (p *mover) tool(name string, args ...string) {
	p.Helper()
	var seeds []string
	for _, n := range p.c.Nodes {
		if n.Running() && n.Addr != "" {
			seeds = append(seeds, n.Addr)
		}
	}
	figures.tool(name)
	out := testnode.Tool(p.T, "", name, append([]string{"--bootstrap-server", strings.Join(seeds, ",")}, args...)...)
	if out.Code != 0 {
		p.Fatalf("%s %v: exit code %d\n%s%s", name, args, out.Code, out.Stdout, out.Stderr)
	}
}

// file writes a file for a tool.
func (p *mover) file(content string) string {
	p.Helper()
	path := filepath.Join(p.c.Nodes[0].Dir, "tool.json")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		p.Fatal(err)
	}
	return path
}

func (p *mover) state() (kadm.PartitionDetail, error) {
	for _, n := range p.c.Nodes {
		if !n.Running() || n.Addr == "" {
			continue
		}
		topics, err := n.Admin(p.T).ListTopics(p.Context(), p.topic)
		if err != nil {
			return kadm.PartitionDetail{}, err
		}
		d := topics[p.topic].Partitions[0]
		return d, d.Err
	}
	return kadm.PartitionDetail{}, fmt.Errorf("no broker runs")
}

// move gives the partition other replicas, and its first one the lead.
func (p *mover) move(order []int32) {
	p.Helper()
	p.tool("kafka-reassign-partitions", "--execute", "--reassignment-json-file",
		p.file(fmt.Sprintf(`{"version":1,"partitions":[{"topic":%q,"partition":0,"replicas":[%s]}]}`, p.topic, strings.Join(ids(order), ","))))
	p.await("reassigned", func(d kadm.PartitionDetail) bool { return slices.Equal(d.Replicas, order) && len(d.ISR) == len(order) })
	p.tool("kafka-leader-election", "--election-type", "preferred", "--topic", p.topic, "--partition", "0")
	p.await("led by the first", func(d kadm.PartitionDetail) bool { return d.Leader == order[0] })
}

func (p *mover) await(what string, ok func(kadm.PartitionDetail) bool) (d kadm.PartitionDetail) {
	p.Helper()
	testnode.Until(p.T, 2*testnode.Patience, what, func() (err error) {
		if d, err = p.state(); err == nil && !ok(d) {
			err = fmt.Errorf("leader %d, replicas %v, in sync %v", d.Leader, d.Replicas, d.ISR)
		}
		return err
	})
	return d
}

// kill ends the leader, waits for another, and takes it back.
func (p *mover) kill(s *stream) {
	p.Helper()
	d, err := p.state()
	if err != nil {
		p.Fatal(err)
	}
	old := p.c.Node(d.Leader)
	old.Kill(p.T)
	began := time.Now()
	d = p.await("another leader", func(d kadm.PartitionDetail) bool { return d.Leader >= 0 && d.Leader != old.ID })
	s.more(p.T, 300)
	p.Logf("%s node %d was killed, %s node %d leads; written again after %v", old.System(), old.ID, p.c.Node(d.Leader).System(), d.Leader, time.Since(began).Round(time.Millisecond))
	old.Start(p.T)
	p.await("all in sync", func(d kadm.PartitionDetail) bool { return len(d.ISR) == len(d.Replicas) })
}

// replicas are the partition's directories, by node.
func (p *mover) replicas() map[int32]string {
	p.Helper()
	d := p.await("all in sync", func(d kadm.PartitionDetail) bool { return len(d.ISR) == len(d.Replicas) })
	out := map[int32]string{}
	for _, id := range d.Replicas {
		out[id] = filepath.Join(p.c.Node(id).LogDirs[0], p.topic+"-0")
	}
	return out
}

// sameBytes compares the contents of the replicas' segments, which may begin at other offsets, and may be padded.
func (p *mover) sameBytes() {
	p.Helper()
	var first []byte
	for id, dir := range p.replicas() {
		segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			p.Fatal(err)
		}
		slices.Sort(segments)
		var all []byte
		for _, path := range segments {
			b, err := os.ReadFile(path)
			if err != nil {
				p.Fatal(err)
			}
			all = append(all, unpadded(b)...)
		}
		if first == nil {
			first = all
		}
		if len(all) == 0 || !bytes.Equal(all, first) {
			p.Errorf("node %d (%s): %d bytes that are not another replica's %d", id, p.c.Node(id).System(), len(all), len(first))
		}
	}
}

// unpadded cuts what follows the last batch: zeros, if anything.
func unpadded(segment []byte) []byte {
	end := 0
	for len(segment)-end >= 12 {
		size := int(binary.BigEndian.Uint32(segment[end+8:]))
		if size == 0 {
			break
		}
		end += 12 + size
	}
	if len(bytes.TrimRight(segment[min(end, len(segment)):], "\x00")) == 0 {
		return segment[:min(end, len(segment))]
	}
	return segment
}

// sameDump compares what kafka-dump-log shows of the replicas' batches.
func (p *mover) sameDump() {
	p.Helper()
	var files []string
	for _, dir := range p.replicas() {
		found, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			p.Fatal(err)
		}
		files = append(files, found...)
	}
	position := regexp.MustCompile(` position: \d+`)
	batches, at := map[string][]string{}, ""
	for line := range strings.Lines(dumpLog(p.T, files)) {
		if name, ok := strings.CutPrefix(line, "Dumping "); ok {
			at = filepath.Dir(name)
		} else if strings.HasPrefix(line, "baseOffset: ") {
			batches[at] = append(batches[at], position.ReplaceAllString(line, ""))
		}
	}
	var first []string
	for dir, got := range batches {
		if first == nil {
			first = got
		}
		if len(got) == 0 || !slices.Equal(got, first) {
			p.Errorf("%s: kafka-dump-log shows %d batches that are not another replica's %d", dir, len(got), len(first))
		}
	}
	if len(batches) != len(p.replicas()) {
		p.Errorf("kafka-dump-log shows %d replicas", len(batches))
	}
}

// expected are the complaints of Apache Kafka's nodes that no answer of ours causes: of nodes that were killed, of leaders
// that changed a moment ago (FENCED_LEADER_EPOCH marks a partition as failed until the image has it; a new leader may
// know less of what is committed than another follower; a new leader of the quorum is not at once the active
// controller), and of a machine that is too slow for its time limits.
var expected = regexp.MustCompile(`could not be established|Error in response for fetch request|marked as failed|` +
	`Non-monotonic update of high watermark|The active controller appears to be node|Performing controller activation|insufficient to satisfy the min.isr|Error processing append operation|` +
	`Exceptionally slow|event queue overloaded|received error REQUEST_TIMED_OUT|due to request timeout|was too slow`)

// complain looks for what Apache Kafka's nodes have to say about ours.
func complain(t *testing.T, c *testnode.Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		if n.System() != testnode.Apache {
			continue
		}
		for _, m := range complaint.FindAllString(n.LogText(t), -1) {
			if !expected.MatchString(m) {
				t.Errorf("node %d says: %s", n.ID, strings.TrimSpace(m))
			}
		}
	}
}

// complaint is an entry of Apache Kafka's log, with the line of its exception.
var complaint = regexp.MustCompile(`(?m)^\[[^\]]*\] (?:ERROR|WARN) .*\n(?:[^\[=\t].*\n)?`)

func ids(of []int32) []string {
	var out []string
	for _, id := range of {
		out = append(out, fmt.Sprint(id))
	}
	return out
}
