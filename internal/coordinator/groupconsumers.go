package coordinator

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group"
	"weir/internal/group/classic"
	"weir/internal/group/consumer"
	"weir/internal/image"
)

// ConsumerHeartbeat is the heartbeat of a member of a consumer group, by which it
// also joins and leaves.
func (g *Groups) ConsumerHeartbeat(ctx context.Context, q *kmsg.ConsumerGroupHeartbeatRequest, from classic.Client) kmsg.Response {
	if err := consumer.Validate(q, g.o.Config.Consumer.Assignors); err != nil {
		return consumer.Refused(q.Version, err)
	}
	r, err := g.ask(ctx, q.Group, "consumer heartbeat", func(c *group.Core, s group.Step, to classic.Waiter) group.Result {
		return c.ConsumerHeartbeat(s, q, from, to)
	})
	if err != nil {
		return consumer.Refused(q.Version, &consumer.Error{Kind: err, Text: err.Description})
	}
	return r
}

// DescribeConsumer tells of a consumer group.
func (g *Groups) DescribeConsumer(ctx context.Context, id string) kmsg.ConsumerGroupDescribeResponseGroup {
	err := kerr.InvalidGroupID
	if id != "" {
		var d kmsg.ConsumerGroupDescribeResponseGroup
		d, err = read(ctx, g, g.Partition(id), func(c *group.Core, s group.Step) kmsg.ConsumerGroupDescribeResponseGroup {
			return c.DescribeConsumer(s, id)
		})
		if err == nil {
			return d
		}
	}
	d := kmsg.NewConsumerGroupDescribeResponseGroup()
	d.Group, d.ErrorCode = id, err.Code
	return d
}

// resolve looks up the topics of regular expressions, which may take long, and
// brings them back to the group.
func (g *Groups) resolve(q *consumer.Resolve) {
	go func() {
		g.resolving <- struct{}{}
		found := consumer.ResolveIn(g.image(), g.o.Clock.Now(), q.Regexes)
		<-g.resolving
		g.rt.Submit(g.Partition(q.Group), "regular expressions", func(m *member, v groupView) (groupResult, error) {
			return g.decide(m, v, func(s group.Step) group.Result { return m.core.RegexResolved(s, q.Group, found) })
		}, func(_ any, err error) {
			if kind := kindOf(err); kind != nil && kind != kerr.NotCoordinator {
				g.o.Logger.Error("group coordinator: what regular expressions match is not stored", "group", q.Group, "err", err)
			}
		})
	}()
}

// see takes a new image and returns the topics that have changed, by name.
func (g *Groups) see(img *image.Image, d *image.Delta) (names []string) {
	g.seen.Store(img)
	created := g.newTopics.Load() == 0 // nothing is known of the time before
	for _, id := range d.ChangedTopics() {
		if t, ok := img.TopicByID(id); ok {
			names = append(names, t.Name)
		}
		if _, existed := d.Base().TopicByID(id); !existed {
			created = true
		}
	}
	if created {
		g.newTopics.Store(img.Provenance.Offset)
	}
	for _, t := range d.DeletedTopics() {
		names = append(names, t.Name)
	}
	return names
}

// topicsChanged tells the consumer groups of partitions which topics have changed.
func (g *Groups) topicsChanged(names []string, ids []int32) {
	if len(names) == 0 {
		return
	}
	for _, id := range ids {
		g.rt.Submit(id, "topics changed", func(m *member, v groupView) (groupResult, error) {
			m.core.TopicsChanged(g.step(v), names)
			return groupResult{}, nil
		}, func(any, error) {}) // who does not lead has nothing to look at
	}
}
