package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"weir/internal/wire"
)

// errIdle ends a connection after connections.max.idle.ms without a request.
var errIdle = errors.New("idle")

// frame is a request as read, without its size prefix, and the memory it is charged for.
type frame struct {
	buf    *buffer
	charge charge
}

func (s *Server) releaseFrame(f frame) {
	s.pool.put(f.buf)
	s.budget.release(f.charge)
}

const (
	sizePrefix = 4
	// peekLen is the size prefix, the API key and its version: enough to know a frame's limit.
	peekLen = 8
	// inBufferLen holds most requests but Produce, so that one system call reads them.
	inBufferLen = 1024
)

// inBuffer is what has been read from the socket and not yet used: b[r:w].
type inBuffer struct {
	r, w int
	b    [inBufferLen]byte
}

func (in *inBuffer) bytes() []byte { return in.b[in.r:in.w] }

// readFrame reads the next request. Its size is checked and its memory reserved before anything is allocated.
func (c *Conn) readFrame() (frame, error) {
	if err := c.fill(sizePrefix); err != nil {
		return frame{}, err
	}
	size := int64(int32(binary.BigEndian.Uint32(c.in.bytes())))
	first := c.in.bytes()
	limit := int64(c.srv.o.MaxRequestBytes)
	switch {
	case size < 0:
		return frame{}, badFrame(first, "negative frame length %d", size)
	case size > limit:
		return frame{}, badFrame(first, "frame of %d bytes is larger than socket.request.max.bytes=%d", size, limit)
	case size < peekLen:
		return frame{}, badFrame(first, "frame of %d bytes is too short for a request", size)
	}
	if err := c.fill(peekLen); err != nil {
		return frame{}, err
	}
	first = c.in.bytes()
	key := int16(binary.BigEndian.Uint16(first[sizePrefix:]))
	if _, known := wire.Supported(key); !known {
		return frame{}, badFrame(first, "unknown API key %d", key)
	}
	records := wire.CarriesRecords(key)
	if !records && size > maxPlainFrame {
		return frame{}, badFrame(first, "frame of %d bytes is larger than the %d that %s may have", size, maxPlainFrame, wire.Name(key))
	}
	// Who only claims to send a large frame takes no memory from those who do send.
	if size > inBufferLen {
		if err := c.fill(inBufferLen); err != nil {
			return frame{}, err
		}
	}
	charge, err := c.srv.budget.acquire(c.ctx, size, records)
	if err != nil {
		return frame{}, err
	}
	f := frame{c.srv.pool.get(int(size)), charge}
	if err := c.readBody(f.buf.b); err != nil {
		c.srv.releaseFrame(f)
		return frame{}, err
	}
	c.srv.stats.BytesIn.Add(size + sizePrefix)
	return f, nil
}

// readBody fills b with what follows the size prefix in the input buffer and, beyond that, from the socket.
func (c *Conn) readBody(b []byte) error {
	n := copy(b, c.in.b[c.in.r+sizePrefix:c.in.w])
	c.in.r += sizePrefix + n
	if n == len(b) {
		return nil
	}
	c.in.r, c.in.w = 0, 0
	whole := c.srv.o.Clock.Now().Add(frameTimeout(int64(len(b))))
	for n < len(b) {
		part := b[n:min(n+partLen, len(b))]
		left := whole.Sub(c.srv.o.Clock.Now())
		if err := c.setReadDeadline(max(min(frameTimeout(int64(len(part))), left), 1)); err != nil {
			return err
		}
		m, err := io.ReadFull(c.nc, part)
		if n += m; err != nil {
			return c.cutInFrame(err, n, len(b))
		}
	}
	c.readDeadline = time.Time{}
	return nil
}

// partLen is how much of a large frame has a deadline of its own, so that a peer that stalls is noticed long before the
// whole frame is late: it holds memory that others wait for.
const partLen = 1 << 20

// fill reads until at least n bytes are in the input buffer. While it is empty, the peer may take its time.
func (c *Conn) fill(n int) error {
	have := c.in.w - c.in.r
	if have >= n {
		return nil
	}
	if len(c.in.b)-c.in.r < n {
		c.in.w = copy(c.in.b[:], c.in.bytes())
		c.in.r = 0
	}
	for have < n {
		if err := c.setFillDeadline(have); err != nil {
			return err
		}
		if have == 0 {
			c.in.r, c.in.w = 0, 0
		}
		m, err := c.nc.Read(c.in.b[c.in.w:])
		c.in.w += m
		have += m
		switch {
		case m > 0 || err == nil:
		case have > 0:
			return c.cutInFrame(err, have, n)
		case errors.Is(err, os.ErrDeadlineExceeded) && c.draining.Load():
			return errStopping
		case errors.Is(err, os.ErrDeadlineExceeded) && c.owed.Load() > 0:
			c.readDeadline = time.Time{} // the peer waits for us, not we for it
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errIdle
		default:
			return err
		}
	}
	return nil
}

// cutInFrame explains an error in the middle of a frame.
func (c *Conn) cutInFrame(err error, have, want int) error {
	switch {
	case c.draining.Load():
		return errStopping
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return badFrame(c.in.bytes(), "the connection ended after %d of %d bytes of a frame", have, want)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%d of %d bytes of a frame came in time: %w", have, want, err)
	}
	return err
}

// setFillDeadline allows for the idle time before a frame's first byte, and for a short time inside its head. The idle
// deadline is moved only when a sixteenth of it has passed, so it may be late by that much.
func (c *Conn) setFillDeadline(have int) error {
	if have > 0 {
		return c.setReadDeadline(frameTimeout(0))
	}
	idle := c.srv.o.IdleTimeout
	if idle <= 0 {
		if c.readDeadline.IsZero() {
			return c.setReadDeadline(0)
		}
		return nil
	}
	if c.readDeadline.Sub(c.srv.o.Clock.Now()) >= idle {
		return nil
	}
	return c.setReadDeadline(idle + idle/16)
}

// setReadDeadline sets it to d from now, or to never when d is 0.
func (c *Conn) setReadDeadline(d time.Duration) error {
	var at time.Time
	if d > 0 {
		at = c.srv.o.Clock.Now().Add(d)
	}
	c.readDeadline = at
	if err := c.nc.SetReadDeadline(at); err != nil {
		return err
	}
	if c.draining.Load() {
		return errStopping
	}
	return nil
}
