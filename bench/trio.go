package bench

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// trio is three combined nodes, each broker and controller, that form one cluster.
type trio struct{ *testnode.Cluster }

// members is how many nodes a trio has: each partition may have a replica on every one.
const members = 3

// newTrio formats three nodes of a system, with the keys of Properties.
func newTrio(t testing.TB, s testnode.System) trio {
	return trio{testnode.NewCluster(t, testnode.ClusterOptions{
		Members: testnode.Nodes(members, testnode.Member{System: s}), Props: Properties(), Stock: true,
	})}
}

func (c trio) Name() testnode.System { return c.Nodes[0].System() }

func (c trio) Launch(t testing.TB) {
	for _, n := range c.Nodes {
		n.Launch(t)
	}
}

func (c trio) Ready(t testing.TB) {
	t.Helper()
	for _, n := range c.Nodes {
		c.ready(t, n)
	}
}

// ready waits until a node answers and knows all others that run.
func (c trio) ready(t testing.TB, n *testnode.Node) {
	t.Helper()
	poll(t, readyLimit, "a node knows the others", func() error {
		for _, other := range c.Nodes {
			if other.Running() {
				if err := answers(n.Addr, other.ID); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (c trio) Stop(t testing.TB) {
	for _, n := range c.Nodes {
		n.Stop(t)
	}
}

func (c trio) Kill(t testing.TB) {
	for _, n := range c.Nodes {
		n.Kill(t)
	}
}

// Bootstrap are the addresses of the nodes that run.
func (c trio) Bootstrap() []string {
	var out []string
	for _, n := range c.Nodes {
		if n.Running() {
			out = append(out, n.Addr)
		}
	}
	return out
}

func (c trio) Pids() []int {
	var out []int
	for _, n := range c.Nodes {
		if n.Running() {
			out = append(out, n.PID())
		}
	}
	return out
}

func (c trio) Holds(topic string) error {
	for _, n := range c.Nodes {
		if err := holds(n, topic); err != nil {
			return err
		}
	}
	return nil
}

// victim is the node that leads the metadata quorum, or one that does not.
func (c trio) victim(t testing.TB, leads bool) *testnode.Node {
	t.Helper()
	leader := c.WaitLeader(t, patience, -1).Leader
	if leads {
		return c.Node(leader)
	}
	return c.Node(leader%members + 1)
}

// topics looks topics up at some node that runs.
func (c trio) topics(names []string) ([]topic, error) {
	to, err := dial(c.Bootstrap()[0])
	if err != nil {
		return nil, err
	}
	defer to.close()
	var out []topic
	for _, name := range names {
		tp, err := to.leaders(name)
		if err != nil {
			return nil, err
		}
		out = append(out, tp)
	}
	return out, nil
}

// lead asks every leader for the log ends of its partitions: they answer once they lead.
func (c trio) lead(names []string) error {
	topics, err := c.topics(names)
	if err != nil {
		return err
	}
	for _, tp := range topics {
		if _, err := tp.ends(); err != nil {
			return err
		}
	}
	return nil
}

// electPreferred makes the first replica of every partition its leader, where that is possible.
func (c trio) electPreferred() error {
	to, err := dial(c.Bootstrap()[0])
	if err != nil {
		return err
	}
	defer to.close()
	req := kmsg.NewElectLeadersRequest()
	req.Version, req.TimeoutMillis = electLeadersVersion, int32(patience.Milliseconds())
	resp := kmsg.NewElectLeadersResponse()
	if err := to.ask(&req, &resp); err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}
