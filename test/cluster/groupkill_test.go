package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"weir/internal/rng"
	"weir/test/testnode"
)

// groupLoad is several groups that read one topic, of every kind, and a committer that is no member of anything.
type groupLoad struct {
	commits *commits
	seats   []*seat
	places  []place // all that is committed
	stops   []func()
	changes sync.WaitGroup // members that take the place of others
}

const (
	workTopic      = "work"
	workPartitions = 6
)

func startGroups(ctx context.Context, t *testing.T, n *testnode.Node) *groupLoad {
	t.Helper()
	l := &groupLoad{commits: newCommits()}
	createTopic(t, n, workTopic, workPartitions, nil)
	work := newLedger(workTopic, workPartitions, true)
	stop, err := work.steady(ctx, n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	l.stops = append(l.stops, stop)
	for _, g := range []struct {
		name     string
		members  int
		balancer func() kgo.GroupBalancer
		static   bool
	}{
		{"eager", 3, kgo.RangeBalancer, false},
		{"cooperative", 3, kgo.CooperativeStickyBalancer, false},
		{"static-eager", 2, kgo.RoundRobinBalancer, true},
		{"static-cooperative", 2, kgo.CooperativeStickyBalancer, true},
	} {
		for i := range g.members {
			s := &seat{group: g.name, topic: workTopic, balancer: g.balancer}
			if g.static {
				s.instance = fmt.Sprint("instance-", i)
			}
			l.seats = append(l.seats, s)
		}
		l.add(g.name)
	}
	for _, s := range l.seats {
		if err := s.sit(ctx, l.commits, n.Addr); err != nil {
			t.Fatal(err)
		}
	}
	l.add("simple")
	stop, err = l.commits.simple(ctx, n.Addr, "simple", workTopic, workPartitions)
	if err != nil {
		t.Fatal(err)
	}
	l.stops = append(l.stops, stop)
	t.Cleanup(l.stop)
	return l
}

func (l *groupLoad) add(group string) {
	for p := range int32(workPartitions) {
		l.places = append(l.places, place{group, workTopic, p})
	}
}

// steady is an idempotent producer of a record for each partition every few milliseconds.
func (l *ledger) steady(ctx context.Context, addr string) (stop func(), err error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryBackoffFn(quickly), kgo.MetadataMinAge(memberHeartbeat))
	return l.background(ctx, c, err, func(ctx context.Context, c *kgo.Client) {
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for ctx.Err() == nil {
			<-pace.C
			var recs []*kgo.Record
			for p := range l.partitions {
				recs = append(recs, l.next(p))
			}
			c.ProduceSync(ctx, recs...) // what fails is tried again, or the test has ended
		}
	})
}

// stop ends all members and producers, at the same time: each takes a moment.
func (l *groupLoad) stop() {
	l.changes.Wait()
	var done sync.WaitGroup
	for _, s := range l.seats {
		if s.stop != nil {
			done.Go(s.stop)
			s.stop = nil
		}
	}
	for _, stop := range l.stops {
		done.Go(stop)
	}
	done.Wait()
	l.stops = nil
}

// wait waits until all go on: every member has committed something, and every place has moved.
func (l *groupLoad) wait(t *testing.T) {
	t.Helper()
	before, acked := l.commits.promised(), []int64{}
	for _, s := range l.seats {
		acked = append(acked, s.acked.Load())
	}
	testnode.Until(t, testnode.Patience, "commits of all members on all partitions", func() error {
		for i, s := range l.seats {
			if s.acked.Load() == acked[i] {
				return fmt.Errorf("member %d, of group %s, commits nothing", i, s.group)
			}
		}
		now := l.commits.promised()
		for _, at := range l.places {
			if now[at] <= before[at] {
				return fmt.Errorf("%v stays at %d", at, before[at])
			}
		}
		return nil
	})
}

// change has one member leave and another take its seat; it returns at once.
func (l *groupLoad) change(ctx context.Context, s *seat, addr string) (done chan error) {
	done = make(chan error, 1)
	stop := s.stop
	s.stop = nil
	l.changes.Go(func() {
		stop()
		done <- s.sit(ctx, l.commits, addr)
	})
	return done
}

// TestKillGroups kills the node while members of classic groups of every kind, and a committer that is none, commit
// offsets, and while members come and go. No offset that was acked ever goes back, neither to who fetches it nor in the
// order in which it was written down; no generation goes backwards; and all members go on by themselves.
func TestKillGroups(t *testing.T) {
	start := time.Now()
	figures := killGroups(t, testnode.Rounds(4, 50), "")
	t.Log(figures)
	if testnode.Full() {
		testnode.WriteResult(t, "soak-groups", time.Since(start), figures)
	}
}

// TestKillGroupsWithRaceDetector is TestKillGroups on a binary that finds data races.
func TestKillGroupsWithRaceDetector(t *testing.T) {
	if !testnode.Full() {
		t.Skip("part of the long run: WEIR_FULL=1")
	}
	t.Log(killGroups(t, 5, raceBinary(t)))
}

// killGroups returns what it did. An empty binary is the one under test.
func killGroups(t *testing.T, rounds int, binary string) (figures map[string]any) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(60+40*rounds)*time.Second)
	defer cancel()
	props := small()
	props["offsets.topic.num.partitions"] = "4"
	props["offsets.topic.segment.bytes"] = "1048576"
	props["log.cleaner.backoff.ms"] = "500"
	props["group.min.session.timeout.ms"] = "500"
	n := testnode.New(t, testnode.Options{Props: props, Binary: binary})
	n.Start(t)
	l := startGroups(ctx, t, n)
	l.wait(t)
	seen, stop, err := watchGroups(ctx, n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	l.stops = append(l.stops, stop)
	dice := rng.New(uint64(rounds))
	changes, slowest := 0, time.Duration(0)
	for i := range rounds {
		changed := make(chan error, 1)
		if i%3 == 0 { // the rest is killed while nothing moves
			changes++
			changed = l.change(ctx, l.seats[dice.IntN(len(l.seats))], n.Addr)
		} else {
			changed <- nil
		}
		l.commits.waitRequests(t, 1+dice.IntN(testnode.Rounds(500, 3000)))
		n.Kill(t)
		promised := l.commits.promised()
		n.Start(t)
		up := time.Now()
		if err := l.commits.check(ctx, n, promised); err != nil {
			t.Fatal(err)
		}
		l.wait(t)
		slowest = max(slowest, time.Since(up))
		if err := <-changed; err != nil {
			t.Fatal(err)
		}
	}
	seen.finish(t, n)
	l.stop()
	promised := l.commits.promised()
	n.Restart(t)
	if err := l.commits.check(ctx, n, promised); err != nil {
		t.Fatal(err)
	}
	n.Stop(t)
	noCoordinatorErrors(t, n)
	return map[string]any{
		"rounds": rounds, "commits": l.commits.numRequests(), "records": seen.records, "members_changed": changes,
		"slowest_resume_ms": slowest.Milliseconds(),
	}
}
