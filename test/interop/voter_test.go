package interop

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// A controller of Apache Kafka is a voter among controllers of Weir (K37). The leadership goes to it, because the one
// other voter that lives has slept through what was committed, and back.
func TestForeignVoter(t *testing.T) {
	t.Parallel()
	testnode.Oracle(t)
	only := func(s testnode.System) testnode.Member {
		return testnode.Member{System: s, Roles: testnode.ControllerOnly}
	}
	const java, broker = 3, 4
	c := testnode.NewCluster(t, testnode.ClusterOptions{
		Members: []testnode.Member{only(testnode.Ours), only(testnode.Ours), only(testnode.Apache), {Roles: testnode.BrokerOnly}},
		Dynamic: true,
	})
	c.Start(t)
	controllerVersions(t, c.Node(1))
	for round := range testnode.Rounds(1, 3) {
		name := func(part string) string { return fmt.Sprintf("round-%d-%s", round, part) }
		old := c.WaitLeader(t, testnode.Patience, -1)
		if old.Leader == java { // by chance, at the start
			c.Node(java).Kill(t)
			old = c.WaitLeader(t, testnode.Patience, java)
			c.Node(java).Start(t)
		}
		everyBrokerCreates(t, c, name("start"))
		followed(t, c)
		leader, sleeper := c.Node(old.Leader), c.Node(3-old.Leader)
		sleeper.Kill(t)
		everyBrokerCreates(t, c, name("missed"))
		leader.Kill(t)
		sleeper.Start(t)
		if now := c.WaitLeader(t, testnode.Patience, leader.ID); now.Leader != java {
			t.Fatalf("node %d leads, which has not what was committed: %+v", now.Leader, now)
		}
		everyBrokerCreates(t, c, name("under-java"))
		leader.Start(t)
		followed(t, c)
		c.Node(java).Kill(t)
		c.WaitLeader(t, testnode.Patience, java)
		everyBrokerCreates(t, c, name("under-weir"))
		c.Node(java).Start(t)
		followed(t, c)
	}
	if c.Node(broker).Running() {
		everyBrokerCreates(t, c, "end")
	}
	complain(t, c)
}

// controllerVersions asks a controller as a voter in a JVM does first, and wants what it will speak afterwards.
func controllerVersions(t *testing.T, n *testnode.Node) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(n.Controller))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "apache-kafka-java", "4.3.1"
	r, err := client.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	res := r.(*kmsg.ApiVersionsResponse)
	if err := kerr.ErrorForCode(res.ErrorCode); err != nil || res.Version != 4 {
		t.Fatalf("version %d: %v", res.Version, err)
	}
	top := map[int16]int16{}
	for _, k := range res.ApiKeys {
		top[k.ApiKey] = k.MaxVersion
	}
	for key, want := range map[kmsg.Key]int16{kmsg.Fetch: 17, kmsg.Vote: 2, kmsg.BeginQuorumEpoch: 1, kmsg.EndQuorumEpoch: 1, kmsg.FetchSnapshot: 1} {
		if got, ok := top[key.Int16()]; !ok || got < want {
			t.Errorf("%s up to version %d (%v), want %d", key.Name(), got, ok, want)
		}
	}
}
