package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topic      = "demo"
	group      = "demo-readers"
	partitions = 6
	// startTimeout is how long the nodes may take until the topic is there.
	startTimeout = 30 * time.Second
)

// load produces to the topic and consumes it again, with default clients, and
// keeps count of what it sees.
type load struct {
	client  *kgo.Client // produces, and asks for metadata
	readers *kgo.Client
	nodes   int
	rate    int

	mu       sync.Mutex
	acked    int64
	failed   int64
	read     int64
	lastAck  map[int32]time.Time // of each partition
	gap      time.Duration       // the longest time that one was without, since resetGap
	lastErr  string
	previous counts // at the last look
}

type counts struct {
	at          time.Time
	acked, read int64
}

func newLoad(bootstrap []string, nodes, rate int) (*load, error) {
	l := &load{nodes: nodes, rate: rate, lastAck: map[int32]time.Time{}}
	var err error
	if l.client, err = kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })); err != nil {
		return nil, err
	}
	l.readers, err = kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
	return l, err
}

// prepare waits for the cluster and creates the topic.
func (l *load) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, partitions, int16(min(l.nodes, 3))
	if l.nodes >= 3 {
		two := "2"
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = "min.insync.replicas", &two
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	for {
		res, err := req.RequestWith(ctx, l.client)
		if err == nil && len(res.Topics) == 1 {
			err = kerr.ErrorForCode(res.Topics[0].ErrorCode)
		}
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster has not come up within %s: %w", startTimeout, err)
		case <-time.After(100 * time.Millisecond): // not all of the nodes are there yet
		}
	}
}

func (l *load) close() {
	l.client.Close()
	l.readers.Close()
}

// produce sends records at the rate, whatever becomes of them.
func (l *load) produce(ctx context.Context) {
	const perSecond = 20
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for range max(l.rate/perSecond, 1) {
			n++
			l.client.TryProduce(ctx, &kgo.Record{Value: fmt.Appendf(nil, "record %d, which every in-sync replica holds before it counts", n)}, l.answered)
		}
	}
}

func (l *load) answered(r *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		now := time.Now()
		if last, ok := l.lastAck[r.Partition]; ok {
			l.gap = max(l.gap, now.Sub(last))
		}
		l.acked++
		l.lastAck[r.Partition], l.lastErr = now, ""
	case errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrMaxBuffered): // the end; or nothing is written for a while
	default:
		l.failed++
		l.lastErr = err.Error()
	}
}

// consume reads as a group does, and commits.
func (l *load) consume(ctx context.Context) {
	for {
		f := l.readers.PollFetches(ctx)
		if ctx.Err() != nil || f.IsClientClosed() {
			return
		}
		l.mu.Lock()
		l.read += int64(f.NumRecords())
		l.mu.Unlock()
	}
}

// controller is the leader of the metadata quorum, -1 while there is none.
func (l *load) controller(ctx context.Context) int32 {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	res, err := req.RequestWith(ctx, l.client)
	if err != nil || len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return -1
	}
	return res.Topics[0].Partitions[0].LeaderID
}

// resetGap begins a new measurement of the longest gap between acknowledgements.
func (l *load) resetGap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gap = 0
}

// topicView is the topic as the table shows it.
type topicView struct {
	partitions    []kmsg.MetadataResponseTopicPartition
	controller    int32
	acked, failed int64
	writes, reads float64 // per second
	gap           time.Duration
	err           string
}

func (l *load) look(ctx context.Context) topicView {
	v := topicView{controller: -1}
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	name := topic
	rt.Topic = &name
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(ctx, refresh)
	defer cancel()
	if res, err := req.RequestWith(ctx, l.client); err == nil && len(res.Topics) == 1 {
		v.partitions = res.Topics[0].Partitions
	}
	v.controller = l.controller(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := counts{at: time.Now(), acked: l.acked, read: l.read}
	if s := now.at.Sub(l.previous.at).Seconds(); !l.previous.at.IsZero() && s > 0 {
		v.writes, v.reads = float64(now.acked-l.previous.acked)/s, float64(now.read-l.previous.read)/s
	}
	l.previous = now
	v.acked, v.failed, v.err, v.gap = l.acked, l.failed, l.lastErr, l.gap
	for _, last := range l.lastAck {
		v.gap = max(v.gap, now.at.Sub(last)) // one that has not ended yet
	}
	return v
}
