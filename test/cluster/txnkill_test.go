package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// TestExactlyOnceThroughKills has a consume–transform–produce loop go on while the three nodes of a cluster, which
// coordinate its transactions and its group and lead its partitions, are killed one after the other. In the end every
// source record stands in the target exactly once for those who read what is committed. The long form kills each node
// three times.
func TestExactlyOnceThroughKills(t *testing.T) {
	t.Parallel()
	kills, records := 2, 600
	if testnode.Full() {
		kills, records = 9, 6000
	}
	c := testnode.NewCluster(t, testnode.ClusterOptions{
		Members: testnode.Nodes(3, testnode.Member{}),
		Props: map[string]string{
			"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3", "min.insync.replicas": "2",
			"group.initial.rebalance.delay.ms": "0",
		},
	})
	c.Start(t)
	for _, topic := range []string{"source", "target"} {
		if _, err := c.Node(1).Admin(t).CreateTopic(t.Context(), 3, 3, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	fillSource(t, c, records)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 2)
	for i := range 2 {
		s := session(t, c, fmt.Sprintf("etl-%d", i))
		go func() { done <- transform(ctx, s) }()
	}
	moved := func() int { return len(committed(t, c, "target")) }
	for k := range kills {
		testnode.Until(t, 3*testnode.Patience, "the loop goes on", func() error {
			if n, want := moved(), records*(k+1)/(kills+2); n < want {
				return fmt.Errorf("%d of %d records have moved", n, want)
			}
			return nil
		})
		n := c.Node(int32(k%3) + 1)
		n.Kill(t)
		n.Start(t)
		n.WaitReady(t)
	}
	testnode.Until(t, 3*testnode.Patience, "all is moved", func() error {
		select {
		case err := <-done:
			t.Fatal("the loop has ended: ", err)
		default:
		}
		if n := moved(); n < records {
			return fmt.Errorf("%d of %d records have moved", n, records)
		}
		return nil
	})
	stop()
	for range 2 {
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	seen := map[string]int{}
	for _, v := range committed(t, c, "target") {
		seen[v]++
	}
	for i := range records {
		if n := seen[fmt.Sprint("record ", i)]; n != 1 {
			t.Errorf("record %d stands there %d times", i, n)
		}
	}
	if len(seen) != records {
		t.Errorf("%d different records", len(seen))
	}
}

func fillSource(t *testing.T, c *testnode.Cluster, records int) {
	t.Helper()
	p := c.Client(t)
	for i := range records {
		p.Produce(t.Context(), &kgo.Record{Topic: "source", Key: []byte(fmt.Sprint(i)), Value: []byte(fmt.Sprint("record ", i))}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func session(t *testing.T, c *testnode.Cluster, id string) *kgo.GroupTransactSession {
	t.Helper()
	s, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(c.Node(1).Addr, c.Node(2).Addr, c.Node(3).Addr), kgo.TransactionalID(id), kgo.TransactionTimeout(10*time.Second),
		kgo.ConsumerGroup("etl"), kgo.ConsumeTopics("source"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.MetadataMinAge(200*time.Millisecond), kgo.AlwaysRetryEOF(), kgo.DefaultProduceTopic("target"),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// transform copies records, some in each transaction. What the session reports is
// retried; only what it cannot go on from ends it.
func transform(ctx context.Context, s *kgo.GroupTransactSession) error {
	for ctx.Err() == nil {
		fs := s.PollRecords(ctx, 20)
		if ctx.Err() != nil {
			break
		}
		if fs.NumRecords() == 0 {
			continue
		}
		if err := s.Begin(); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		var failed kgo.FirstErrPromise
		for r := range fs.RecordsAll() {
			s.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value}, failed.Promise())
		}
		how := kgo.TransactionEndTry(failed.Err() == nil)
		if _, err := s.End(ctx, how); err != nil && ctx.Err() == nil {
			return fmt.Errorf("end: %w", err)
		}
	}
	return ctx.Err()
}

// committed reads all that is committed of a topic.
func committed(t *testing.T, c *testnode.Cluster, topic string) []string {
	t.Helper()
	var out []string
	adm := c.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.MetadataMinAge(200*time.Millisecond))
	defer adm.Close()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		fs := adm.PollFetches(ctx)
		idle := ctx.Err() != nil
		cancel()
		for r := range fs.RecordsAll() {
			out = append(out, string(r.Value))
		}
		if idle {
			return out
		}
	}
}
