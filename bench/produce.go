package bench

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// inFlight is max.in.flight.requests.per.connection of a producer.
const inFlight = 5

// producer sends the batches of some partitions over one connection.
type producer struct {
	*conn
	load     load
	requests []*request
	turn     int
	sequence map[int32]int32 // by partition
	// delays are those of acknowledged requests, from when they were due.
	delays []time.Duration
}

// newProducer connects and makes its requests. partitions are those it writes to, all in each
// request; one broker leads them.
func newProducer(tp topic, l load, partitions []int32, seed uint64) (*producer, error) {
	c, err := dial(tp.leaders[partitions[0]])
	if err != nil {
		return nil, err
	}
	p := &producer{conn: c, load: l, sequence: map[int32]int32{}}
	id, epoch, err := c.producerID()
	if err != nil {
		return nil, err
	}
	dice := rand.New(rand.NewPCG(seed, 1))
	for range variants {
		r, err := l.buildRequest(c.fmt, tp, partitions, dice, id, epoch)
		if err != nil {
			return nil, err
		}
		p.requests = append(p.requests, r)
	}
	return p, nil
}

// bytes is what one request carries, as the application sees it.
func (p *producer) bytes() int64 {
	return int64(len(p.requests[0].batches)) * int64(p.load.records()) * int64(p.load.valueBytes)
}

// next is the next frame to send.
func (p *producer) next() []byte {
	r := p.requests[p.turn%len(p.requests)]
	p.turn++
	p.conn.next++
	binary.BigEndian.PutUint32(r.frame[8:], uint32(p.conn.next))
	for _, b := range r.batches {
		s := p.sequence[b.partition]
		b.patch(s)
		p.sequence[b.partition] = (s + int32(p.load.records())) & 0x7fffffff
	}
	return r.frame
}

// pace says when the i-th request of a run is due; nil sends as fast as requests are acknowledged.
type pace func(i int) time.Time

// run sends n requests with at most depth unanswered and waits for all answers.
func (p *producer) run(n, depth int, due pace) error {
	sent := make(chan time.Time, depth)
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		// The token is taken after the answer: a full channel is what holds the sender.
		for range n {
			err := p.acknowledged()
			at, more := <-sent
			if !more {
				return
			}
			if err != nil {
				failed <- err
				p.close()
				for range sent { // let the sender run into the closed connection
				}
				return
			}
			p.delays = append(p.delays, time.Since(at))
		}
	})
	var err error
	for i := range n {
		at := time.Now()
		if due != nil {
			at = due(i)
			sleepUntil(at)
		}
		frame := p.next()
		sent <- at
		if _, err = p.nc.Write(frame); err != nil {
			p.close()
			break
		}
	}
	close(sent)
	wg.Wait()
	select {
	case err = <-failed:
	default:
	}
	return err
}

// acknowledged reads one answer and looks for errors in it.
func (p *producer) acknowledged() error {
	req := kmsg.ProduceRequest{Version: produceVersion}
	var resp kmsg.ProduceResponse
	if err := p.answer(&req, &resp); err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, q := range t.Partitions {
			if err := kerr.ErrorForCode(q.ErrorCode); err != nil {
				return fmt.Errorf("producing to %s-%d: %w", t.Topic, q.Partition, err)
			}
		}
	}
	return nil
}

// sleepUntil sleeps in the kernel, which is more exact than Go's timers.
func sleepUntil(at time.Time) {
	for wait := time.Until(at); wait > 0; wait = time.Until(at) {
		ts := unix.NsecToTimespec(int64(wait))
		_ = unix.Nanosleep(&ts, nil) // an interrupted sleep goes on
	}
}

// producers share the partitions of a topic.
type producers []*producer

// newProducers makes n producers for each broker, which share the partitions that it leads. A producer's request has a
// batch for each of its partitions.
func newProducers(t testing.TB, tp topic, l load, n int) producers {
	t.Helper()
	var ps producers
	for _, led := range tp.byLeader() {
		for i := range min(n, len(led)) {
			var mine []int32
			for k := i; k < len(led); k += n {
				mine = append(mine, led[k])
			}
			p, err := newProducer(tp, l, mine, uint64(len(ps)))
			if err != nil {
				t.Fatal(err)
			}
			ps = append(ps, p)
		}
	}
	return ps
}

func (ps producers) close() {
	for _, p := range ps {
		p.close()
	}
}

// sent is what a run did.
type sent struct {
	bytes, records int64
	took           time.Duration
	delays         []time.Duration // ascending
}

// run sends about so many bytes.
func (ps producers) run(t testing.TB, bytes int64, depth int, due pace) sent {
	t.Helper()
	each := int(max(1, bytes/int64(len(ps))/ps[0].bytes()))
	var wg sync.WaitGroup
	errs := make([]error, len(ps))
	start := time.Now()
	for i, p := range ps {
		p.delays = p.delays[:0]
		wg.Go(func() { errs[i] = p.run(each, depth, due) })
	}
	wg.Wait()
	out := sent{took: time.Since(start)}
	for i, p := range ps {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		out.bytes += int64(each) * p.bytes()
		out.delays = append(out.delays, p.delays...)
	}
	out.records = out.bytes / int64(ps[0].load.valueBytes)
	slices.Sort(out.delays)
	return out
}

// quantile of sorted delays, in ms.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := min(len(sorted)-1, int(q*float64(len(sorted))))
	return float64(sorted[i].Microseconds()) / 1000
}
