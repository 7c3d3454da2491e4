package clients

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"weir/test/testnode"
)

// life is what a test of a client's group differs in.
type life struct {
	protocol    string // the assignor that the group must have agreed on, by its name on the wire
	cooperative bool   // a member that stays must never be without partitions while others come and go
	extras      bool   // the program knows "extra"
	lateCommits bool   // members commit every few seconds and when they leave: only then it is waited for
	each        int    // records of every step
}

// groupPartitions is the size of the topic: enough for three members and not the same for all counts of members.
const groupPartitions = 6

// live leads a group through its life: two members, a third that joins, one that leaves, the node killed and started again,
// all gone, and one that resumes. Nothing may be lost, offsets must be committed up to the end at every step, and who resumes
// must begin exactly there.
func (c *crew) live(l life) {
	t := c.t
	t.Helper()
	began := time.Now()
	l.each = testnode.Rounds(1_000, 20_000)
	committed := c.awaitCommitted
	if l.lateCommits {
		committed = func() {}
	}
	topic(t, c.n, c.topic, groupPartitions, nil)
	c.send(l.each)
	c.join("a", "")
	c.join("b", "")
	c.awaitShares(groupPartitions, "a", "b")
	c.awaitRecords()

	c.join("c", "")
	c.awaitShares(groupPartitions, "a", "b", "c")
	c.send(2 * l.each)
	c.awaitRecords()
	c.awaitGroup("Stable", 3, l.protocol)

	c.leave("b")
	c.awaitShares(groupPartitions, "a", "c")
	c.send(3 * l.each)
	c.awaitRecords()
	committed()
	if l.cooperative {
		c.checkKept("a", "c")
	}
	calm := c.again

	c.n.Kill(t)
	c.n.Start(t)
	c.send(4 * l.each)
	c.awaitRecords()
	c.awaitShares(groupPartitions, "a", "c")
	committed()

	c.leave("a")
	c.leave("c")
	c.awaitGroup("Empty", 0, "")
	c.send(5 * l.each)
	before := c.again
	c.join("d", "")
	c.awaitRecords()
	committed()
	if c.again != before {
		t.Fatalf("who resumed read %d records that had been committed", c.again-before)
	}
	c.check()
	if l.extras {
		c.extras()
	}
	c.leave("d")
	c.awaitCommitted()
	report(t, "clients-groups", t.Name(), map[string]any{"records": c.sent, "read_again_calm": calm, "read_again_killed": before - calm,
		"ms": time.Since(began).Milliseconds()})
}

// awaitCommitted waits until the group's committed offsets are the ends of all partitions.
func (c *crew) awaitCommitted() {
	t := c.t
	t.Helper()
	adm := c.n.Admin(t)
	testnode.Until(t, crewPatience, "offsets are committed", func() error {
		ends, err1 := adm.ListEndOffsets(t.Context(), c.topic)
		offsets, err2 := adm.FetchOffsets(t.Context(), c.group)
		if err := errors.Join(err1, err2, ends.Error(), offsets.Error()); err != nil {
			return err
		}
		for p := range int32(groupPartitions) {
			end, _ := ends.Lookup(c.topic, p)
			at, is := offsets.Lookup(c.topic, p)
			if end.Offset > 0 && (!is || at.At != end.Offset) {
				return fmt.Errorf("%s-%d: committed %d (%t), the end is %d%s", c.topic, p, at.At, is, end.Offset, c.state())
			}
		}
		return nil
	})
}

// awaitGroup waits until the group is in a state, with so many members, and has agreed on an assignor ("" is any).
func (c *crew) awaitGroup(state string, members int, protocol string) {
	t := c.t
	t.Helper()
	adm := c.n.Admin(t)
	testnode.Until(t, crewPatience, fmt.Sprintf("the group is %s with %d members", state, members), func() error {
		groups, err := adm.DescribeGroups(t.Context(), c.group)
		if err != nil {
			return err
		}
		g := groups[c.group]
		if g.Err != nil || g.State != state || len(g.Members) != members || protocol != "" && g.Protocol != protocol {
			return fmt.Errorf("%s with %d members by %q, error %v", g.State, len(g.Members), g.Protocol, g.Err)
		}
		return nil
	})
}

// checkKept fails when a member held nothing between two assignments.
func (c *crew) checkKept(members ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range members {
		had := false
		for _, held := range c.history[m] {
			if held == "[]" && had {
				c.t.Errorf("%s lost all its partitions on the way: %v", m, c.history[m])
			}
			had = had || held != "[]"
		}
	}
}

// together lets a test run beside others in the short form: members of groups spend most of their time waiting. The long
// form runs one after the other, and measures.
func together(t *testing.T) {
	if !testnode.Full() {
		t.Parallel()
	}
}

// bothSystems runs a test on Weir and, in the long form, on Apache Kafka.
func bothSystems(t *testing.T, test func(t *testing.T, n *testnode.Node)) {
	systems := []testnode.System{testnode.Ours}
	if testnode.Full() {
		systems = append(systems, testnode.Apache)
	}
	for _, system := range systems {
		t.Run(string(system), func(t *testing.T) {
			n := testnode.New(t, testnode.Options{System: system})
			n.Start(t)
			test(t, n)
		})
	}
}

// olderApache is the last Apache Kafka that serves the clients which 4 turns away.
const olderApache = "3.9.2"

// oracleVersion makes the tools and nodes of Apache Kafka of another version for the rest of the test.
func oracleVersion(t *testing.T, version string) {
	t.Helper()
	oracle := testnode.Oracle(t)
	t.Setenv("KAFKA_VERSION", version)
	t.Setenv("ORACLE_HOME", "") // the usual folder of that version
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, oracle, "install").CombinedOutput(); err != nil {
		unavailable(t, "Apache Kafka %s cannot be had: %v\n%s", version, err, out)
	}
}

// oldClient runs a test on Weir and, in the long form, on the last Apache Kafka that serves such a client.
func oldClient(t *testing.T, test func(t *testing.T, n *testnode.Node)) {
	t.Run(string(testnode.Ours), func(t *testing.T) { test(t, start(t)) })
	if !testnode.Full() {
		return
	}
	t.Run("kafka-"+olderApache, func(t *testing.T) {
		oracleVersion(t, olderApache)
		n := testnode.New(t, testnode.Options{System: testnode.Apache})
		n.Start(t)
		test(t, n)
	})
}
