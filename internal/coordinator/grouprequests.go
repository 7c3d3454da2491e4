package coordinator

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group"
	"weir/internal/group/classic"
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
	r, err := g.bounded(ctx, q.Group, "heartbeat", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.Heartbeat(s, q, to) })
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
	r, err := g.bounded(ctx, q.Group, "leave", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.Leave(s, q, to) })
	if err != nil {
		return &kmsg.LeaveGroupResponse{Version: q.Version, ErrorCode: err.Code}
	}
	return r
}

// Commit stores offsets.
func (g *Groups) Commit(ctx context.Context, q *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	r, err := g.bounded(ctx, q.Group, "commit", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.Commit(s, q, to) })
	if err != nil {
		return group.CommitRefused(q, err)
	}
	return r.(*kmsg.OffsetCommitResponse)
}

// DeleteOffsets removes offsets.
func (g *Groups) DeleteOffsets(ctx context.Context, q *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	r, err := g.bounded(ctx, q.Group, "delete offsets", func(c *group.Core, s group.Step, to classic.Waiter) group.Result { return c.DeleteOffsets(s, q, to) })
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
		return s.Fetch(q, false), nil
	}
	v, err := g.read(ctx, id, func(_ *group.Core, s group.Step) any { return s.State.Fetch(q, true) })
	if err != nil {
		return kmsg.OffsetFetchResponseGroup{}, err
	}
	return v.(kmsg.OffsetFetchResponseGroup), nil
}

// read asks a core without changing anything.
func (g *Groups) read(ctx context.Context, id int32, f func(c *group.Core, s group.Step) any) (any, *kerr.Error) {
	ctx, cancel := context.WithTimeout(ctx, g.o.Timeout)
	defer cancel()
	type answer struct {
		v   any
		err error
	}
	out := make(chan answer, 1)
	g.rt.Submit(id, "read", func(m *member, v groupView) (groupResult, error) {
		return groupResult{Response: f(m.core, group.Step{Now: v.Now, State: v.State})}, nil
	}, func(v any, err error) { out <- answer{v, err} })
	select {
	case a := <-out:
		return a.v, kindOf(a.err)
	case <-ctx.Done():
		return nil, kerr.CoordinatorNotAvailable
	}
}

// Describe tells of a group. One that waits for a rebalance is logged, with those
// it waits for.
func (g *Groups) Describe(ctx context.Context, id string, version int16) kmsg.DescribeGroupsResponseGroup {
	type described struct {
		d kmsg.DescribeGroupsResponseGroup
		w *classic.Missing
	}
	v, err := g.read(ctx, g.Partition(id), func(c *group.Core, s group.Step) any {
		d, w := c.Describe(s, id, version)
		return described{d, w}
	})
	if err != nil {
		d := kmsg.NewDescribeGroupsResponseGroup()
		d.Group, d.ErrorCode = id, err.Code
		return d
	}
	x := v.(described)
	if w := x.w; w != nil {
		g.o.Logger.Info("group coordinator: a rebalance waits for members", "group", w.Group, "state", w.State.String(), "members", w.Members, "since", w.Since, "for", w.For)
	}
	return x.d
}

// List tells of the groups of this broker; a partition that is being loaded makes
// the whole list fail, so that no group seems to be missing.
func (g *Groups) List(ctx context.Context, states, types []string) ([]kmsg.ListGroupsResponseGroup, *kerr.Error) {
	ids, loading := g.rt.Active()
	if loading {
		return nil, kerr.CoordinatorLoadInProgress
	}
	out := []kmsg.ListGroupsResponseGroup{}
	for _, id := range ids {
		v, err := g.read(ctx, id, func(c *group.Core, s group.Step) any { return c.List(s, states, types) })
		switch {
		case err == kerr.NotCoordinator: // lost meanwhile: another broker tells of them
		case err != nil:
			return nil, err
		default:
			out = append(out, v.([]kmsg.ListGroupsResponseGroup)...)
		}
	}
	return out, nil
}

// Delete removes a group with its offsets.
func (g *Groups) Delete(ctx context.Context, id string) *kerr.Error {
	ctx, cancel := context.WithTimeout(ctx, g.o.Timeout)
	defer cancel()
	done := make(chan *kerr.Error, 1)
	g.rt.Submit(g.Partition(id), "delete", func(m *member, v groupView) (groupResult, error) {
		return g.decide(m, v, func(s group.Step) group.Result {
			r, refused := m.core.DeleteGroup(s, id)
			r.Answers = nil
			if refused != nil {
				done <- refused
			}
			return r
		})
	}, func(_ any, err error) {
		select {
		case done <- kindOf(err):
		default: // refused
		}
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return kerr.CoordinatorNotAvailable
	}
}

// Apply is quorum.Subscriber's: offsets of deleted topics are forgotten.
func (g *Groups) Apply(_ *image.Image, d *image.Delta) {
	var gone []group.DeletedTopic
	for _, t := range d.DeletedTopics() {
		gone = append(gone, group.DeletedTopic{Name: t.Name, ID: t.ID})
	}
	if len(gone) == 0 {
		return
	}
	ids, _ := g.rt.Active()
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
	Groups, Offsets int
	Waiting         []*classic.Missing // rebalances that wait for somebody
	group.Stats
}

// Summary asks every partition.
func (g *Groups) Summary(ctx context.Context) Summary {
	var out Summary
	var mu sync.Mutex // an answer may come after its wait was given up
	ids, _ := g.rt.Active()
	for _, id := range ids {
		_, err := g.read(ctx, id, func(c *group.Core, s group.Step) any {
			mu.Lock()
			defer mu.Unlock()
			st := c.Stats()
			out.Groups += s.State.NumGroups()
			out.Offsets += s.State.NumOffsets()
			out.Waiting = append(out.Waiting, c.Missing(s.Now)...)
			out.Commits, out.Deletions = out.Commits+st.Commits, out.Deletions+st.Deletions
			out.Expirations, out.Rebalances = out.Expirations+st.Expirations, out.Rebalances+st.Rebalances
			return nil
		})
		if err != nil {
			continue // not ours any more
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return out
}
