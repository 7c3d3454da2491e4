package coordinator

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group"
	"weir/internal/group/classic"
	"weir/internal/group/consumer"
	"weir/internal/image"
)

// Join waits until the member's rebalance has come to its end.
func (g *Groups) Join(ctx context.Context, q *kmsg.JoinGroupRequest, from classic.Client) kmsg.Response {
	r, err := g.ask(ctx, q.Group, "join", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.Join(s, q, from, to) })
	if err != nil {
		return classic.RefusedJoin(q.Version, "", err)
	}
	return r
}

// Sync waits for the leader's assignment.
func (g *Groups) Sync(ctx context.Context, q *kmsg.SyncGroupRequest) kmsg.Response {
	r, err := g.ask(ctx, q.Group, "sync", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.Sync(s, q, to) })
	if err != nil {
		return &kmsg.SyncGroupResponse{Version: q.Version, ErrorCode: err.Code, MemberAssignment: []byte{}}
	}
	return r
}

// Heartbeat keeps a member's session.
func (g *Groups) Heartbeat(ctx context.Context, q *kmsg.HeartbeatRequest) kmsg.Response {
	r, err := g.ask(ctx, q.Group, "heartbeat", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.Heartbeat(s, q, to) })
	switch {
	case err == kerr.CoordinatorLoadInProgress:
		// Not an error to a member: its session begins anew once all is loaded.
		return q.ResponseKind()
	case err != nil:
		return &kmsg.HeartbeatResponse{Version: q.Version, ErrorCode: err.Code}
	}
	return r
}

// Leave takes members out of a group.
func (g *Groups) Leave(ctx context.Context, q *kmsg.LeaveGroupRequest) kmsg.Response {
	r, err := g.ask(ctx, q.Group, "leave", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.Leave(s, q, to) })
	if err != nil {
		return &kmsg.LeaveGroupResponse{Version: q.Version, ErrorCode: err.Code}
	}
	return r
}

// Commit stores offsets.
func (g *Groups) Commit(ctx context.Context, q *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	r, err := g.ask(ctx, q.Group, "commit", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.Commit(s, q, to) })
	if err != nil {
		return group.CommitRefused(q, err)
	}
	return r.(*kmsg.OffsetCommitResponse)
}

// DeleteOffsets removes offsets.
func (g *Groups) DeleteOffsets(ctx context.Context, q *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	r, err := g.ask(ctx, q.Group, "delete offsets", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.DeleteOffsets(s, q, to) })
	if err != nil {
		return &kmsg.OffsetDeleteResponse{Version: q.Version, ErrorCode: err.Code}
	}
	return r.(*kmsg.OffsetDeleteResponse)
}

// Fetch tells committed offsets. With stable set it sees all that was appended
// before, and leaves out what open transactions are about to change.
func (g *Groups) Fetch(ctx context.Context, q *kmsg.OffsetFetchRequestGroup, stable bool) (kmsg.OffsetFetchResponseGroup, *kerr.Error) {
	id := g.Partition(q.Group)
	if !stable {
		s, err := g.rt.Committed(id)
		if err != nil {
			return kmsg.OffsetFetchResponseGroup{}, kindOf(err)
		}
		if err := s.MayFetch(q); err != nil {
			return kmsg.OffsetFetchResponseGroup{}, err
		}
		return s.Fetch(q, false), nil
	}
	return inLoop(ctx, g, id, func(m *member, v groupView, to func(kmsg.OffsetFetchResponseGroup, error)) (groupResult, error) {
		if err := v.State.MayFetch(q); err != nil {
			return groupResult{}, err
		}
		r := v.State.Fetch(q, true)
		return groupResult{Done: g.await(m, v, func(err error) { to(r, err) })}, nil
	})
}

// read asks a core for what is committed, and waits for no commit.
func read[T any](ctx context.Context, g *Groups, id int32, f func(c *group.Core, s group.Step) T) (T, *kerr.Error) {
	return inLoop(ctx, g, id, func(m *member, v groupView, to func(T, error)) (groupResult, error) {
		s, err := g.rt.Committed(id)
		if err == nil {
			at := g.step(v)
			at.State = s
			to(f(m.core, at), nil)
		}
		return groupResult{}, err
	})
}

// inLoop runs f with a partition's core and waits until f, or what it leaves
// behind, calls to: the first call counts. An error of f is an answer, too.
func inLoop[T any](ctx context.Context, g *Groups, id int32, f func(m *member, v groupView, to func(T, error)) (groupResult, error)) (T, *kerr.Error) {
	type answer struct {
		v   T
		err error
	}
	out := make(chan answer, 1)
	to := func(v T, err error) {
		select {
		case out <- answer{v, err}:
		default: // it has been answered
		}
	}
	g.rt.Submit(id, "read", func(m *member, v groupView) (groupResult, error) { return f(m, v, to) }, func(_ any, err error) {
		var none T
		to(none, err)
	})
	var a answer
	select {
	case a = <-out:
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	return a.v, kindOf(a.err)
}

// Describe tells of a group. One that waits for a rebalance is logged, with those
// it waits for, unless that was done a moment ago.
func (g *Groups) Describe(ctx context.Context, id string, version int16) kmsg.DescribeGroupsResponseGroup {
	type described struct {
		d kmsg.DescribeGroupsResponseGroup
		w *classic.Missing
	}
	x, err := read(ctx, g, g.Partition(id), func(c *group.Core, s group.Step) described {
		d, w := c.Describe(s, id, version)
		return described{d, w}
	})
	if err != nil {
		d := kmsg.NewDescribeGroupsResponseGroup()
		d.Group, d.ErrorCode = id, err.Code
		return d
	}
	if x.w != nil && !x.w.Told {
		g.logWaiting(x.w)
	}
	return x.d
}

// List tells of the groups of this broker; a partition that is being loaded makes
// the whole list fail, so that no group seems to be missing.
func (g *Groups) List(ctx context.Context, states, types []string) ([]kmsg.ListGroupsResponseGroup, *kerr.Error) {
	ids, loading := g.rt.Active()
	if loading > 0 {
		return nil, kerr.CoordinatorLoadInProgress
	}
	out := []kmsg.ListGroupsResponseGroup{}
	for _, id := range ids {
		some, err := read(ctx, g, id, func(c *group.Core, s group.Step) []kmsg.ListGroupsResponseGroup { return c.List(s, states, types) })
		switch {
		case err == kerr.NotCoordinator: // lost meanwhile: another broker tells of them
		case err != nil:
			return nil, err
		default:
			out = append(out, some...)
		}
	}
	return out, nil
}

// Delete removes a group with its offsets.
func (g *Groups) Delete(ctx context.Context, id string) *kerr.Error {
	_, err := inLoop(ctx, g, g.Partition(id), func(m *member, v groupView, to func(struct{}, error)) (groupResult, error) {
		var refused *kerr.Error
		r, err := g.decide(m, v, func(s group.Step) (r group.Result) {
			r, refused = m.core.DeleteGroup(s, id)
			return r
		})
		follow := r.Done
		tell := g.await(m, v, func(err error) {
			if err == nil && refused != nil {
				err = refused
			}
			to(struct{}{}, err)
		})
		r.Done = func(err error) { follow(err); tell(err) }
		return r, err
	})
	return err
}

// Apply is quorum.Subscriber's: offsets of deleted topics are forgotten, and consumer
// groups look at the topics that have changed.
func (g *Groups) Apply(img *image.Image, d *image.Delta) {
	var gone []group.DeletedTopic
	for _, t := range d.DeletedTopics() {
		gone = append(gone, group.DeletedTopic{Name: t.Name, ID: t.ID})
	}
	// A partition that becomes active after it was asked for has to see this image.
	names := g.see(img, d)
	ids, _ := g.rt.Active()
	g.topicsChanged(names, ids)
	if len(gone) == 0 {
		return
	}
	for _, id := range ids {
		g.rt.Submit(id, "topics deleted", func(m *member, v groupView) (groupResult, error) {
			return g.decide(m, v, func(s group.Step) group.Result { return m.core.TopicsDeleted(s, gone) })
		}, func(_ any, err error) {
			if err != nil {
				g.o.Logger.Error("group coordinator: offsets of deleted topics are left", "partition", id, "err", err)
			}
		})
	}
}

// Summary is the groups of this broker for metrics.
type Summary struct {
	// Partitions of __consumer_offsets that this broker leads, and those of them
	// that are still being loaded.
	Partitions, Loading int
	Offsets             int
	States              map[classic.State]int  // classic groups in each state
	Consumers           map[consumer.State]int // consumer groups in each state
	Waiting             []*classic.Missing     // rebalances that wait for somebody, the oldest first
	group.Stats
}

// Summary asks every partition; it waits for no commit.
func (g *Groups) Summary(ctx context.Context) Summary {
	out := Summary{States: map[classic.State]int{}, Consumers: map[consumer.State]int{}}
	ids, loading := g.rt.Active()
	out.Partitions, out.Loading = len(ids)+loading, loading
	for _, id := range ids {
		one, err := read(ctx, g, id, func(c *group.Core, s group.Step) Summary {
			return Summary{
				Offsets: s.State.NumOffsets(), States: c.States(s), Consumers: c.ConsumerStates(s), Waiting: c.Missing(s.Now), Stats: c.Stats(),
			}
		})
		if err != nil {
			continue // not ours any more
		}
		out.Offsets += one.Offsets
		for state, n := range one.States {
			out.States[state] += n
		}
		for state, n := range one.Consumers {
			out.Consumers[state] += n
		}
		out.Waiting = append(out.Waiting, one.Waiting...)
		out.Commits, out.Deletions = out.Commits+one.Commits, out.Deletions+one.Deletions
		out.Expirations, out.Rebalances = out.Expirations+one.Expirations, out.Rebalances+one.Rebalances
		out.Bumps += one.Bumps
	}
	slices.SortFunc(out.Waiting, func(a, b *classic.Missing) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Group, b.Group))
	})
	return out
}
