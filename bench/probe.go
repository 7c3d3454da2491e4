package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
)

// A probe writes one record after the other to every partition of a topic, with acks=all and one request in flight, to
// see how long writing stands still. It is a producer tuned for that: whatever fails is tried again after a moment, with
// metadata from whichever node answers.
type probe struct {
	sys    trio
	topic  string
	record []byte
	end    context.CancelFunc
	work   sync.WaitGroup

	mu   sync.Mutex
	last []time.Time // by partition: of the last acknowledgement
	most []time.Duration
}

const (
	probeEvery = 2 * time.Millisecond // pause between two records of a partition
	probeAgain = 2 * time.Millisecond // pause after a failure
	probeLimit = time.Second          // for an answer
)

func startProbe(t testing.TB, sys trio, tp topic) *probe {
	t.Helper()
	b := batch.NewBuilder(batch.NewOptions())
	b.Append(time.Now().UnixMilli(), nil, []byte("x"), nil)
	p := &probe{sys: sys, topic: tp.name, record: slices.Clone(b.Build())}
	p.last, p.most = make([]time.Time, tp.partitions), make([]time.Duration, tp.partitions)
	var ctx context.Context
	ctx, p.end = context.WithCancel(t.Context())
	addrs := sys.Bootstrap()
	for i := range tp.partitions {
		p.work.Go(func() { p.run(ctx, i, addrs) })
	}
	t.Cleanup(p.stop)
	return p
}

func (p *probe) stop() {
	p.end()
	p.work.Wait()
}

// run writes to one partition.
func (p *probe) run(ctx context.Context, partition int32, addrs []string) {
	pause := time.NewTicker(probeEvery)
	defer pause.Stop()
	var c *conn
	for turn := 0; ctx.Err() == nil; {
		var err error
		if c == nil {
			c, err = p.find(addrs[turn%len(addrs)], partition)
			turn++
		}
		if err == nil {
			err = p.write(c, partition)
		}
		if err == nil {
			p.acked(partition)
			pause.Reset(probeEvery)
		} else {
			if c != nil {
				c.close()
				c = nil
			}
			pause.Reset(probeAgain)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	if c != nil {
		c.close()
	}
}

// find asks a node who leads the partition, and connects to that one.
func (p *probe) find(addr string, partition int32) (*conn, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	c.limit = probeLimit
	at, err := c.leader(p.topic, partition)
	if err != nil {
		return nil, err
	}
	leader, err := dial(at)
	if err != nil {
		return nil, err
	}
	leader.limit = probeLimit
	return leader, nil
}

func (p *probe) write(c *conn, partition int32) error {
	req := kmsg.NewProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = produceVersion, -1, int32(patience.Milliseconds())
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = p.topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, p.record
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	var resp kmsg.ProduceResponse
	if err := c.ask(&req, &resp); err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("an answer to one partition has other rows")
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

func (p *probe) acked(partition int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if last := p.last[partition]; !last.IsZero() {
		p.most[partition] = max(p.most[partition], now.Sub(last))
	}
	p.last[partition] = now
}

// flows waits until every partition has been written to since now.
func (p *probe) flows(t testing.TB) {
	t.Helper()
	since := time.Now()
	poll(t, patience, "the probe writes to every partition", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, at := range p.last {
			if !at.After(since) {
				return fmt.Errorf("not to partition %d", i)
			}
		}
		return nil
	})
}

// during is the longest time, in ms, that some partition was not written to while work ran and until all were again.
func (p *probe) during(t testing.TB, work func()) float64 {
	t.Helper()
	p.flows(t)
	p.mu.Lock()
	clear(p.most)
	p.mu.Unlock()
	work()
	p.flows(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(slices.Max(p.most).Microseconds()) / 1000
}

// leader is the address of who leads a partition.
func (c *conn) leader(name string, partition int32) (string, error) {
	m, err := c.metadata(name)
	if err != nil {
		return "", err
	}
	for _, q := range m.Topics[0].Partitions {
		if q.Partition != partition {
			continue
		}
		for _, b := range m.Brokers {
			if b.NodeID == q.Leader {
				return address(b), nil
			}
		}
	}
	return "", fmt.Errorf("nobody leads %s-%d", name, partition)
}
