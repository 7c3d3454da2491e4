package network

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// answer is a request that has been executed, and what it is to be answered with.
type answer struct {
	header  wire.Header
	resp    wire.Response
	frame   frame // kept until the answer is complete
	started time.Time
}

// owe hands an answer to the writer goroutine, which is started with the first.
func (c *Conn) owe(a answer) {
	if c.queue == nil {
		c.queue = make(chan answer, maxPending)
		c.written = make(chan struct{})
		go c.writeOwed()
	}
	c.owed.Add(1)
	c.srv.stats.Pending.Add(1)
	c.queue <- a
}

// writeOwed is the writer goroutine. Answers leave in the order of their requests. After a wire.Fail, or when the
// connection is cut, the rest is completed and dropped.
func (c *Conn) writeOwed() {
	defer close(c.written)
	for a := range c.queue {
		resp := a.resp
		if p, ok := resp.(wire.Pending); ok {
			select {
			case <-p.Done:
			case <-c.life.Done():
			}
			resp = p.Finish()
		}
		c.settleError(a, c.complete(a, resp))
		c.srv.stats.Pending.Add(-1)
		c.mu.Lock()
		c.owed.Add(-1)
		c.mu.Unlock()
		c.settled.Broadcast()
	}
}

// settleError deals with an error of writing an owed answer. The reader has already stopped for an answer that was a
// wire.Fail from the start; for one that became it, it is stopped here and closes the connection.
func (c *Conn) settleError(a answer, err error) {
	if err == nil || c.life.Err() != nil || c.refused != nil {
		return
	}
	var fail *failure
	if !errors.As(err, &fail) {
		c.report(err)
		c.kill(err)
		return
	}
	c.refused = fail
	if _, known := a.resp.(wire.Fail); !known {
		c.report(err)
		c.drain()
	}
}

// complete writes the answer and gives back all memory of the request. The caller owns the socket's writing side. After
// an error the connection must be cut, for a frame may have left in part.
func (c *Conn) complete(a answer, resp wire.Response) error {
	err := c.write(a.header, resp)
	if f, ok := resp.(*wire.FetchResponse); ok {
		f.Release()
	}
	c.srv.releaseFrame(a.frame)
	c.srv.stats.API(a.header.Key).Total.Observe(c.srv.o.Clock.Now().Sub(a.started))
	return err
}

func (c *Conn) write(h wire.Header, resp wire.Response) error {
	if c.life.Err() != nil {
		return c.life.Err()
	}
	if c.refused != nil {
		return errStopping
	}
	switch r := resp.(type) {
	case wire.Message:
		err := c.writeMessage(h, r.Response)
		if t, ok := r.Response.(kmsg.ThrottleResponse); ok && err == nil {
			millis, _ := t.Throttle()
			c.mute(millis)
		}
		return err
	case *wire.FetchResponse:
		err := c.writeFetch(h, r)
		if err == nil {
			c.mute(r.ThrottleMillis)
		}
		return err
	case wire.NoAnswer:
		return nil
	case wire.Fail:
		return &failure{h, r.Err}
	default:
		// A handler that returns nothing, or a Pending from Finish, leaves its client waiting for ever: close instead.
		return &failure{h, fmt.Errorf("BUG: %s answered with %T", wire.Name(h.Key), resp)}
	}
}

// mute pauses reading for the throttle time of an answer that has just left.
func (c *Conn) mute(millis int32) {
	if millis <= 0 {
		return
	}
	c.srv.stats.Throttled.Add(1)
	until := c.srv.o.Clock.Now().Add(time.Duration(millis) * time.Millisecond).UnixNano()
	for {
		old := c.muteUntil.Load()
		if old >= until || c.muteUntil.CompareAndSwap(old, until) {
			return
		}
	}
}

// keepOut is the largest encoding buffer a connection keeps between answers.
const keepOut = 64 << 10

func (c *Conn) writeMessage(h wire.Header, r kmsg.Response) error {
	out := wire.AppendResponse(c.out[:0], h, r)
	err := c.send(out)
	if cap(out) <= keepOut {
		c.out = out
	} else {
		c.out = nil
	}
	return err
}
