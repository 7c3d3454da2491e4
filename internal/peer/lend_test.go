package peer

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// filled answers fetches with a thousand equal bytes, others each time.
func filled() func(h wire.Header, req kmsg.Request) []byte {
	var fetches byte
	return func(h wire.Header, req kmsg.Request) []byte {
		q, ok := req.(*kmsg.FetchRequest)
		if !ok {
			return polite(h, req)
		}
		fetches++
		res := q.ResponseKind().(*kmsg.FetchResponse)
		topic, row := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		row.RecordBatches = bytes.Repeat([]byte{fetches}, 1000)
		topic.Partitions = append(topic.Partitions, row)
		res.Topics = append(res.Topics, topic)
		return wire.AppendResponse(nil, h, res)
	}
}

func TestAnswersAreLent(t *testing.T) {
	for _, lend := range []bool{false, true} {
		c := newNode(t, filled()).client(func(o *Options) { o.Lend = lend })
		defer c.Close()
		records := func() []byte {
			t.Helper()
			r, err := c.Do(t.Context(), kmsg.NewPtrFetchRequest())
			if err != nil {
				t.Fatal(err)
			}
			return r.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches
		}
		first := records()
		second := records()
		if !bytes.Equal(second, bytes.Repeat([]byte{2}, 1000)) {
			t.Errorf("lent %t: the second answer is %v…", lend, second[:1])
		}
		if shared := first[0] == 2; shared != lend {
			t.Errorf("lent %t: answers share their memory: %t", lend, shared)
		}
	}
}

// A client that reads for itself gives its connection up with a request, and dials again.
func TestLentClientGivesUp(t *testing.T) {
	answer := filled()
	var silent atomic.Bool
	silent.Store(true)
	c := newNode(t, func(h wire.Header, req kmsg.Request) []byte {
		if _, ok := req.(*kmsg.FetchRequest); ok && silent.Load() {
			return nil
		}
		return answer(h, req)
	}).client(func(o *Options) { o.Lend = true })
	defer c.Close()
	if _, _, err := c.Range(t.Context(), int16(kmsg.Fetch)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	_, err := c.Do(ctx, kmsg.NewPtrFetchRequest())
	wantKind(t, err, Canceled)
	silent.Store(false)
	if _, err := c.Do(t.Context(), kmsg.NewPtrFetchRequest()); err != nil {
		t.Fatal(err)
	}
}
