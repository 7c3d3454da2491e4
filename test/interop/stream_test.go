package interop

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// stream writes numbered records to one partition with acks=all, one producer, for as long as nodes come and go. It is
// promised that each record is there once, in order, and where its ack said.
type stream struct {
	topic  string
	client *kgo.Client
	cancel context.CancelFunc
	over   chan struct{} // closed when the last record was answered

	mu    sync.Mutex
	acked map[int64]string // value by offset
	errs  []error
}

// startStream begins to write to partition 0 of a topic.
func startStream(t *testing.T, c *testnode.Cluster, topic string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{topic: topic, cancel: cancel, over: make(chan struct{}), acked: map[int64]string{}}
	s.client = c.Client(t, kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.AlwaysRetryEOF(),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MaxBufferedRecords(500), kgo.ProducerLinger(2*time.Millisecond))
	go func() {
		defer close(s.over)
		pace := time.NewTicker(time.Millisecond) // leaves the processor to the nodes
		defer pace.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-pace.C
			value := fmt.Sprintf("%d %s", i, strings.Repeat("·", i%200))
			s.client.Produce(t.Context(), &kgo.Record{Value: []byte(value)}, func(r *kgo.Record, err error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if err != nil {
					s.errs = append(s.errs, err)
					return
				}
				s.acked[r.Offset] = value
			})
		}
		if err := s.client.Flush(t.Context()); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.errs = append(s.errs, err)
		}
	}()
	t.Cleanup(cancel)
	return s
}

// count is how many records were acked.
func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked)
}

// more waits until so many more records were acked.
func (s *stream) more(t *testing.T, n int) {
	t.Helper()
	want := s.count() + n
	testnode.Until(t, 2*testnode.Patience, fmt.Sprintf("%d more acks", n), func() error {
		if got := s.count(); got < want {
			return fmt.Errorf("%d of %d", got-want+n, n)
		}
		return nil
	})
}

// stop ends the producer and checks what is in the partition. It returns the number of records.
func (s *stream) stop(t *testing.T) int {
	t.Helper()
	s.cancel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*testnode.Patience)
	defer cancel()
	select {
	case <-s.over:
	case <-ctx.Done():
		t.Fatal("the producer does not end")
	}
	for _, err := range s.errs {
		t.Errorf("a record was refused: %v", err)
	}
	var last int64 = -1
	for offset := range s.acked {
		last = max(last, offset)
	}
	s.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: {0: kgo.NewOffset().AtStart()}})
	got := 0
	for done := last < 0; !done; {
		fetches := s.client.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			t.Fatalf("reading %s: %v", s.topic, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if number, _, _ := strings.Cut(string(r.Value), " "); number != strconv.Itoa(got) && !t.Failed() {
				t.Errorf("offset %d holds record %.20q, expected number %d", r.Offset, r.Value, got)
			}
			if want, ok := s.acked[r.Offset]; ok && want != string(r.Value) && !t.Failed() {
				t.Errorf("offset %d holds %.20q, but %.20q was acked there", r.Offset, r.Value, want)
			}
			delete(s.acked, r.Offset)
			got++
			done = done || r.Offset >= last
		})
	}
	if len(s.acked) > 0 {
		t.Errorf("%d acked records of %s are lost", len(s.acked), s.topic)
	}
	return got
}
