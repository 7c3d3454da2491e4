package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// place is where a committed offset is kept.
type place struct {
	group, topic string
	partition    int32
}

// commits is what members of groups and committers without a group did and were told.
type commits struct {
	mu          sync.Mutex
	tried       map[place]int64  // the highest offset that somebody tried to commit
	acked       map[place]int64  // the highest that somebody was told is stored
	found       map[place]int64  // what the last check found
	generations map[string]int32 // by member id: the last one it was assigned partitions in
	requests    int              // commits that were acked
	errs        []error          // what must never happen
}

func newCommits() *commits {
	return &commits{tried: map[place]int64{}, acked: map[place]int64{}, found: map[place]int64{}, generations: map[string]int32{}}
}

func (c *commits) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// promised is what was acked so far.
func (c *commits) promised() map[place]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.acked)
}

func (c *commits) numRequests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// commit runs one commit and notes what became of it.
func (c *commits) commit(offsets map[place]int64, do func() error) error {
	note := func(m map[place]int64) {
		for at, o := range offsets {
			m[at] = max(m[at], o)
		}
	}
	c.mu.Lock()
	note(c.tried)
	c.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	note(c.acked)
	c.requests++
	return nil
}

// assigned notes the generation in which a member got partitions.
func (c *commits) assigned(group string, cl *kgo.Client) {
	id, generation := cl.GroupMetadata()
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.generations[id]; generation < last {
		c.errs = append(c.errs, fmt.Errorf("group %s: member %s has generation %d after %d", group, id, generation, last))
	}
	c.generations[id] = generation
}

// check holds the committed offsets of all groups against what was acked before.
func (c *commits) check(ctx context.Context, n *testnode.Node, promised map[place]int64) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	groups := map[string]bool{}
	for at := range promised {
		groups[at.group] = true
	}
	for g := range groups {
		have, err := kadm.NewClient(cl).FetchOffsets(ctx, g)
		if err = errors.Join(err, have.Error()); err != nil {
			return fmt.Errorf("offsets of group %s: %w", g, err)
		}
		if err := c.checkGroup(g, have, promised); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}

func (c *commits) checkGroup(group string, have kadm.OffsetResponses, promised map[place]int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, acked := range promised {
		if at.group != group {
			continue
		}
		o, ok := have.Lookup(at.topic, at.partition)
		switch {
		case !ok:
			return fmt.Errorf("%v: offset %d was acked, and there is none", at, acked)
		case o.At < acked, o.At < c.found[at]:
			return fmt.Errorf("%v: offset %d went back: %d was acked, and %d was found before", at, o.At, acked, c.found[at])
		case o.At > c.tried[at]:
			return fmt.Errorf("%v: offset %d was never committed: the highest was %d", at, o.At, c.tried[at])
		}
		c.found[at] = o.At
	}
	return nil
}

// waitRequests waits for so many acked commits more, of whomever.
func (c *commits) waitRequests(t *testing.T, more int) {
	t.Helper()
	want := c.numRequests() + more
	testnode.Until(t, testnode.Patience, "acked commits", func() error {
		if n := c.numRequests(); n < want {
			return fmt.Errorf("%d, not %d", n, want)
		}
		return nil
	})
}

// Times of the members: short, since rounds wait for those that are gone.
const (
	memberSession   = 2 * time.Second
	memberHeartbeat = 200 * time.Millisecond
	memberRebalance = 4 * time.Second
)

// seat is a member of a group that is always there: should it leave, another takes its place.
type seat struct {
	group    string
	topic    string
	balancer func() kgo.GroupBalancer
	instance string // group.instance.id, empty for a dynamic member
	stop     func()
	acked    atomic.Int64 // commits
}

// sit starts the member. It commits what it has read after each poll, and lets nobody take its partitions in between,
// so that offsets of a partition are committed in order.
func (s *seat) sit(ctx context.Context, c *commits, addrs ...string) error {
	opts := []kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.ConsumerGroup(s.group), kgo.ConsumeTopics(s.topic), kgo.Balancers(s.balancer()),
		kgo.SessionTimeout(memberSession), kgo.HeartbeatInterval(memberHeartbeat), kgo.RebalanceTimeout(memberRebalance),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(100 * time.Millisecond), kgo.RetryBackoffFn(quickly), kgo.MetadataMinAge(memberHeartbeat),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, _ map[string][]int32) { c.assigned(s.group, cl) }),
	}
	if s.instance != "" {
		opts = append(opts, kgo.InstanceID(s.instance))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			s.turn(ctx, c, cl)
			cl.AllowRebalance()
		}
	})
	s.stop = func() {
		cancel()
		done.Wait()
		cl.CloseAllowingRebalance() // a dynamic member leaves, a static one keeps its place
	}
	return nil
}

func quickly(int) time.Duration { return 20 * time.Millisecond }

func (s *seat) turn(ctx context.Context, c *commits, cl *kgo.Client) {
	fetches := cl.PollRecords(ctx, 50)
	fetches.EachError(func(topic string, p int32, err error) {
		if lost := (*kgo.ErrDataLoss)(nil); errors.As(err, &lost) {
			c.fail(fmt.Errorf("group %s: %s-%d: %w", s.group, topic, p, err))
		}
	})
	recs := fetches.Records()
	if len(recs) == 0 {
		return
	}
	offsets := map[place]int64{}
	for _, r := range recs {
		offsets[place{s.group, r.Topic, r.Partition}] = r.Offset + 1
	}
	// A commit may fail: the node is down, or the group goes on without this
	// member. The client reads on, or begins at what is committed.
	if err := c.commit(offsets, func() error { return cl.CommitRecords(ctx, recs...) }); err == nil {
		s.acked.Add(1)
	}
}

// simple commits higher and higher offsets without being a member.
func (c *commits) simple(ctx context.Context, addr, group, topic string, partitions int32) (stop func(), err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RetryBackoffFn(quickly), kgo.MetadataMinAge(memberHeartbeat))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		adm := kadm.NewClient(cl)
		for i := int64(1); ctx.Err() == nil; i++ {
			offsets, places := kadm.Offsets{}, map[place]int64{}
			for p := range partitions {
				offsets.AddOffset(topic, p, i, -1)
				places[place{group, topic, p}] = i
			}
			err := c.commit(places, func() error {
				res, err := adm.CommitOffsets(ctx, group, offsets)
				return errors.Join(err, res.Error())
			})
			if err != nil { // the node is down: again a little later
				select {
				case <-ctx.Done():
				case <-time.After(quickly(0)):
				}
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
		cl.Close()
	}, nil
}
