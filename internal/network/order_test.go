package network

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// These tests run rule 8 on pipes inside a synctest bubble: synctest.Wait returns when nothing can move any more, so
// "was not executed" can be asserted, and throttle times pass at once.

// bubble is one connection of a server whose handler is told what to do by the test.
type bubble struct {
	t        *testing.T
	mu       sync.Mutex // orders the test's looks, between synctest.Waits, before what happens next
	s        *Server
	logs     logs
	client   net.Conn
	executed []int32                 // correlation ids, in order
	pending  map[int32]chan struct{} // Done of each pending answer
	finished []int32
	respond  func(ctx context.Context, h wire.Header) wire.Response
	answers  []int32
	closed   bool
}

func newBubble(t *testing.T) *bubble {
	b := &bubble{t: t, pending: map[int32]chan struct{}{}}
	s, err := New(options(func(ctx context.Context, _ *Conn, h wire.Header, _ []byte) wire.Response {
		b.mu.Lock()
		b.executed = append(b.executed, h.CorrelationID)
		b.mu.Unlock()
		return b.respond(ctx, h)
	}, &b.logs))
	if err != nil {
		t.Fatal(err)
	}
	b.s = s
	b.respond = func(_ context.Context, h wire.Header) wire.Response { return ok(h) }
	client, server := net.Pipe()
	b.client = client
	if _, err := s.admission.admit(listenerName, addrOf(server.RemoteAddr())); err != nil {
		t.Fatal(err)
	}
	s.stats.Accepted.Add(1)
	s.serve(&boundListener{name: listenerName, life: t.Context()}, server)
	go b.read()
	return b
}

func (b *bubble) read() {
	for {
		var frame [512]byte
		n := 0
		for n < 8 || n < 4+int(frame[2])<<8+int(frame[3]) {
			m, err := b.client.Read(frame[n : n+1])
			if n += m; err != nil {
				b.mu.Lock()
				b.closed = true
				b.mu.Unlock()
				return
			}
		}
		b.mu.Lock()
		b.answers = append(b.answers, int32(frame[4])<<24|int32(frame[5])<<16|int32(frame[6])<<8|int32(frame[7]))
		b.mu.Unlock()
	}
}

// hold makes every Produce pending.
func (b *bubble) hold(_ context.Context, h wire.Header) wire.Response {
	if h.Key != produceKey {
		return ok(h)
	}
	done := make(chan struct{})
	b.mu.Lock()
	b.pending[h.CorrelationID] = done
	b.mu.Unlock()
	return wire.Pending{Done: done, Finish: func() wire.Response {
		b.mu.Lock()
		b.finished = append(b.finished, h.CorrelationID)
		b.mu.Unlock()
		return ok(h)
	}}
}

// send writes without waiting for the server to read.
func (b *bubble) send(frames ...[]byte) {
	b.settle()
	go func() {
		for _, f := range frames {
			if _, err := b.client.Write(f); err != nil {
				return
			}
		}
	}()
	synctest.Wait()
}

func (b *bubble) commit(ids ...int32) {
	b.settle()
	for _, id := range ids {
		close(b.pending[id])
	}
	synctest.Wait()
}

// pass lets the bubble's time go by; ours stands still.
func (b *bubble) pass(d time.Duration) {
	b.settle()
	time.Sleep(d)
	b.settle()
}

func (b *bubble) settle() {
	b.mu.Lock()
	//nolint:staticcheck // SA2001: an empty critical section orders what the test read before what the server does next
	b.mu.Unlock()
	synctest.Wait()
}

func (b *bubble) want(what string, got []int32, want ...int32) {
	b.t.Helper()
	if len(got) != len(want) {
		b.t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			b.t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
}

func (b *bubble) stop() {
	b.settle()
	b.client.Close()
	stop(b.t, b.s)
	synctest.Wait()
}

func TestPendingProducesOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = b.hold
		b.send(produce(1), produce(2), produce(3))
		b.want("executed", b.executed, 1, 2, 3)
		b.commit(3)
		b.commit(2)
		b.want("answers before the first commit", b.answers)
		b.commit(1)
		b.want("answers", b.answers, 1, 2, 3)
		b.want("finished", b.finished, 1, 2, 3)
		b.stop()
	})
}

func TestOtherRequestsWaitForEarlierAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = b.hold
		b.send(metadata(1), produce(2), produce(3), metadata(4), produce(5))
		b.want("executed while two are owed", b.executed, 1, 2, 3)
		b.want("answers", b.answers, 1)
		b.commit(2)
		b.want("executed while one is owed", b.executed, 1, 2, 3)
		b.want("answers", b.answers, 1, 2)
		b.commit(3)
		b.want("executed", b.executed, 1, 2, 3, 4, 5)
		b.want("answers", b.answers, 1, 2, 3, 4)
		b.commit(5)
		b.want("answers", b.answers, 1, 2, 3, 4, 5)
		b.stop()
	})
}

// A Produce that is answered at once (acks=1) behind pending ones keeps its place.
func TestImmediateAnswerBehindPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = func(ctx context.Context, h wire.Header) wire.Response {
			if h.CorrelationID == 2 {
				return ok(h)
			}
			if h.CorrelationID == 3 {
				return wire.NoAnswer{}
			}
			return b.hold(ctx, h)
		}
		b.send(produce(1), produce(2), produce(3), produce(4))
		b.want("executed", b.executed, 1, 2, 3, 4)
		b.want("answers", b.answers)
		b.commit(1)
		b.want("answers", b.answers, 1, 2)
		b.commit(4)
		b.want("answers", b.answers, 1, 2, 4)
		b.stop()
	})
}

func TestAtMost64AnswersAreOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = b.hold
		var frames [][]byte
		for id := int32(1); id <= 70; id++ {
			frames = append(frames, produce(id))
		}
		b.send(frames...)
		if len(b.executed) != 64 {
			t.Fatalf("%d executed", len(b.executed))
		}
		if n := b.s.stats.Pending.Load(); n != 64 {
			t.Fatalf("%d owed", n)
		}
		b.commit(1)
		if len(b.executed) != 65 || len(b.answers) != 1 {
			t.Fatalf("%d executed, %d answered", len(b.executed), len(b.answers))
		}
		for id := int32(2); id <= 70; id++ {
			b.commit(id)
		}
		if len(b.answers) != 70 {
			t.Fatalf("%d answers", len(b.answers))
		}
		b.stop()
	})
}

func TestFailClosesAfterEarlierAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = func(ctx context.Context, h wire.Header) wire.Response {
			if h.CorrelationID == 3 {
				return wire.Fail{Err: errors.New("NOT_LEADER_OR_FOLLOWER with acks=0")}
			}
			return b.hold(ctx, h)
		}
		b.send(produce(1), produce(2), produce(3), produce(4))
		b.want("executed", b.executed, 1, 2, 3)
		if b.closed {
			t.Fatal("closed before the earlier answers left")
		}
		b.commit(2, 1)
		b.want("answers", b.answers, 1, 2)
		if !b.closed || b.s.stats.Failed.Load() != 1 || b.logs.lines("NOT_LEADER_OR_FOLLOWER") != 1 {
			t.Fatalf("closed %v, log %s", b.closed, b.logs.String())
		}
		b.stop()
	})
}

// A pending answer that turns out to be a Fail ends the connection after the answers before it; those behind are dropped.
func TestPendingThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = func(ctx context.Context, h wire.Header) wire.Response {
			resp := b.hold(ctx, h)
			if h.CorrelationID == 2 {
				return wire.Pending{Done: b.pending[2], Finish: func() wire.Response { return wire.Fail{Err: errors.New("lost")} }}
			}
			return resp
		}
		b.send(produce(1), produce(2), produce(3))
		b.commit(1, 2, 3)
		b.want("answers", b.answers, 1)
		b.want("finished", b.finished, 1, 3)
		if !b.closed || b.logs.lines("lost") != 1 {
			t.Fatalf("closed %v, log %s", b.closed, b.logs.String())
		}
		b.stop()
	})
}

func TestBadFrameClosesAfterEarlierAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = b.hold
		b.send(produce(1), []byte("GET / HTTP/1.1\r\n\r\n"))
		if b.closed {
			t.Fatal("closed before the earlier answer left")
		}
		b.commit(1)
		b.want("answers", b.answers, 1)
		if !b.closed || b.s.stats.BadFrames.Load() != 1 {
			t.Fatalf("closed %v, log %s", b.closed, b.logs.String())
		}
		b.stop()
	})
}

// The peer may close its sending side and still take what it is owed.
func TestEndOfStreamWithAnswersOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = b.hold
		b.send(produce(1), produce(2))
		b.client.Close()
		synctest.Wait()
		b.want("finished", b.finished)
		b.commit(1, 2)
		b.want("finished", b.finished, 1, 2)
		b.stop()
	})
}

// Cut connections finish what is pending without waiting for the commit, once each.
func TestCutFinishesPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = b.hold
		b.send(produce(1), produce(2))
		b.s.mu.Lock()
		for c := range b.s.mu.conns {
			c.kill(errors.New("cut by the test"))
		}
		b.s.mu.Unlock()
		synctest.Wait()
		b.want("finished", b.finished, 1, 2)
		b.want("answers", b.answers)
		b.stop()
	})
}

func throttled(h wire.Header, millis int32) wire.Response {
	r := ok(h)
	r.Response.(kmsg.SetThrottleResponse).SetThrottle(millis)
	return r
}

func TestThrottleAnswersFirstAndReadsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = func(_ context.Context, h wire.Header) wire.Response {
			if h.CorrelationID == 1 {
				return throttled(h, 5000)
			}
			return ok(h)
		}
		begun := time.Now()
		b.send(produce(1), produce(2))
		b.want("answers", b.answers, 1)
		b.want("executed", b.executed, 1)
		b.pass(4999 * time.Millisecond)
		b.want("executed after 4,999 ms", b.executed, 1)
		b.pass(time.Millisecond)
		b.want("answers", b.answers, 1, 2)
		if d := time.Since(begun); d != 5*time.Second {
			t.Fatalf("paused %v", d)
		}
		b.stop()
	})
}

// The throttle time of an owed answer counts from when it leaves, and stops what has been read already.
func TestThrottleOfAnOwedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		done := make(chan struct{})
		b.respond = func(_ context.Context, h wire.Header) wire.Response {
			if h.CorrelationID == 1 {
				return wire.Pending{Done: done, Finish: func() wire.Response { return throttled(h, 1000) }}
			}
			return ok(h)
		}
		b.send(produce(1), metadata(2))
		b.want("executed", b.executed, 1)
		close(done)
		synctest.Wait()
		b.want("answers", b.answers, 1)
		b.want("executed", b.executed, 1)
		b.pass(time.Second)
		b.want("answers", b.answers, 1, 2)
		b.stop()
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.send(metadata(1))
		b.pass(9 * time.Minute)
		b.send(metadata(2))
		b.pass(9 * time.Minute)
		if b.closed {
			t.Fatal("closed although it was used 9 minutes ago")
		}
		b.pass(2 * time.Minute)
		if !b.closed || b.s.stats.IdleClosed.Load() != 1 {
			t.Fatal("not closed after more than 10 minutes")
		}
		b.stop()
	})
}

func TestIdleTimeWhileAnAnswerIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = b.hold
		b.send(produce(1))
		b.pass(time.Hour)
		b.commit(1)
		b.want("answers", b.answers, 1)
		b.stop()
	})
}

func TestHalfAFrameTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		frame := request(0, 3, 1, 8<<20)
		b.send(frame[:100])
		if b.s.stats.BudgetUsed.Load() != 0 {
			t.Fatal("memory is taken for a frame that has hardly begun")
		}
		b.pass(5 * time.Second)
		b.send(frame[100:3000])
		if b.s.stats.BudgetUsed.Load() < 1<<20 {
			t.Fatal("the frame's memory is not accounted for")
		}
		b.pass(15 * time.Second)
		if !b.closed || b.s.stats.SlowClosed.Load() != 1 || b.s.stats.BudgetUsed.Load() != 0 {
			t.Fatalf("closed %v, log %s", b.closed, b.logs.String())
		}
		b.stop()
	})
}

func TestShutdownFinishesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = func(ctx context.Context, h wire.Header) wire.Response {
			if h.CorrelationID == 2 { // a long poll
				<-ctx.Done()
				return ok(h)
			}
			return b.hold(ctx, h)
		}
		b.send(produce(1), metadata(2), metadata(3))
		stopped := false
		go func() {
			stop(b.t, b.s)
			b.mu.Lock()
			stopped = true
			b.mu.Unlock()
		}()
		synctest.Wait()
		b.want("executed", b.executed, 1)
		if stopped {
			t.Fatal("stopped with an answer owed")
		}
		b.commit(1)
		b.want("answers", b.answers, 1)
		if !stopped || !b.closed {
			t.Fatal("not stopped")
		}
	})
}

func TestShutdownEndsLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = func(ctx context.Context, h wire.Header) wire.Response {
			<-ctx.Done()
			return ok(h)
		}
		b.send(fetch(1), fetch(2))
		go stop(b.t, b.s)
		synctest.Wait()
		b.want("executed", b.executed, 1)
		b.want("answers", b.answers, 1)
		if !b.closed {
			t.Fatal("not closed")
		}
	})
}

func TestShutdownDeadlineCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.respond = b.hold
		b.send(produce(1))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("shutdown: %v", err)
		}
		b.want("finished", b.finished, 1)
		b.want("answers", b.answers)
		synctest.Wait()
	})
}

// With the budget for records used up, the next produce is not read, other requests are; freed memory lets it in.
func TestBudgetHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.s.budget = newBudget(1000, 1000, &b.s.stats)
		b.respond = b.hold
		big := func(id int32) []byte { return request(0, 3, id, 500) }
		b.send(big(1), big(2))
		b.want("executed", b.executed, 1)
		if b.s.stats.BudgetWaits.Load() != 1 {
			t.Fatalf("%d waits", b.s.stats.BudgetWaits.Load())
		}
		other, server := net.Pipe()
		if _, err := b.s.admission.admit(listenerName, addrOf(server.RemoteAddr())); err != nil {
			t.Fatal(err)
		}
		b.s.stats.Accepted.Add(1)
		b.s.serve(&boundListener{name: listenerName, life: t.Context()}, server)
		go func() {
			write(t, other, fetch(9))
			wantAnswers(t, other, 9)
		}()
		synctest.Wait()
		b.want("executed", b.executed, 1, 9)
		b.commit(1)
		b.want("executed", b.executed, 1, 9, 2)
		b.commit(2)
		b.want("answers", b.answers, 1, 2)
		other.Close()
		b.stop()
	})
}
