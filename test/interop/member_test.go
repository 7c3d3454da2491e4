package interop

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// members are consumers that the scenarios of TestTools keep in their groups while tools run.
type members map[string]*member

type member struct {
	client *kgo.Client
	stop   context.CancelFunc
	done   chan struct{} // closed when the polling goroutine has ended
}

// join makes a member of the classic protocol and returns when it has been given partitions. It commits nothing.
func (m members) join(t *testing.T, n *testnode.Node, d *datadriven.TestData) {
	t.Helper()
	name := d.CmdArgs[0].Key
	var group, topic, instance string
	d.ScanArgs(t, "group", &group)
	d.ScanArgs(t, "topic", &topic)
	opts := []kgo.Opt{
		kgo.ClientID(name), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.Balancers(kgo.RangeBalancer()),
	}
	if d.HasArg("instance") {
		d.ScanArgs(t, "instance", &instance)
		opts = append(opts, kgo.InstanceID(instance))
	}
	assigned := make(chan struct{}, 1)
	opts = append(opts, kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) {
		if len(ps) > 0 {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}
	}))
	ctx, stop := context.WithCancel(t.Context())
	mb := &member{client: n.Client(t, opts...), stop: stop, done: make(chan struct{})}
	m[name] = mb
	go func() {
		defer close(mb.done)
		for ctx.Err() == nil {
			fs := mb.client.PollFetches(ctx)
			for _, e := range fs.Errors() {
				if ctx.Err() == nil && !errors.Is(e.Err, kgo.ErrClientClosed) {
					t.Errorf("member %s: %s-%d: %v", name, e.Topic, e.Partition, e.Err)
				}
			}
			if fs.IsClientClosed() {
				return
			}
		}
	}()
	patience, cancel := context.WithTimeout(ctx, testnode.Patience)
	defer cancel()
	select {
	case <-assigned:
	case <-patience.Done():
		t.Fatalf("member %s of group %s was given no partitions", name, group)
	}
}

// leave ends a member; a static one stays in its group until its session ends.
func (m members) leave(t *testing.T, name string) {
	t.Helper()
	mb := m[name]
	if mb == nil {
		t.Fatalf("no member %s", name)
	}
	mb.stop()
	<-mb.done
	mb.client.Close() // leaves the group first
	delete(m, name)
}
