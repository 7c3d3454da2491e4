package network

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"weir/internal/vfs"
	"weir/internal/wire"
)

const (
	// writeChunk is how much is written between two looks at the write deadline.
	writeChunk = 1 << 20
	// stageLen is how much of small regions and bytes between them is collected for one write.
	stageLen = 256 << 10
)

// errShortRegion means that a file ended inside a region. The frame's size has been announced, so only closing is left.
var errShortRegion = errors.New("a file ended inside a region")

// sendOp is one system call in progress, kept in the connection so that the callbacks of RawConn need no closure.
type sendOp struct {
	in   int    // sendfile: the file
	off  int64  // sendfile: its offset, advanced
	left int    // sendfile: how much
	data []byte // send with MSG_MORE: what is left
	err  error
}

// armWrite gives the peer WriteTimeout from now, moving the deadline only when a sixteenth of it has passed.
func (c *Conn) armWrite() error {
	patience := c.srv.o.WriteTimeout
	now := c.srv.o.Clock.Now()
	if c.writeDeadline.Sub(now) >= patience-patience/16 {
		return nil
	}
	c.writeDeadline = now.Add(patience)
	return c.nc.SetWriteDeadline(c.writeDeadline)
}

// send writes bytes that end an answer.
func (c *Conn) send(b []byte) error {
	for len(b) > 0 {
		if err := c.armWrite(); err != nil {
			return err
		}
		n, err := c.nc.Write(b[:min(len(b), writeChunk)])
		c.srv.stats.BytesOut.Add(int64(n))
		if err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// sendMore writes bytes that more will follow at once, so that they share a packet.
func (c *Conn) sendMore(b []byte) error {
	if c.raw == nil {
		return c.send(b)
	}
	for len(b) > 0 {
		if err := c.armWrite(); err != nil {
			return err
		}
		n := min(len(b), writeChunk)
		c.op = sendOp{data: b[:n]}
		err := c.raw.Write(c.sendMoreFn)
		sent := n - len(c.op.data)
		c.srv.stats.BytesOut.Add(int64(sent))
		if err == nil {
			err = c.op.err
		}
		c.op.data = nil
		if err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// sendMoreStep sends c.op.data; false means that the socket is full.
func (c *Conn) sendMoreStep(fd uintptr) bool {
	for len(c.op.data) > 0 {
		n, err := unix.SendmsgN(int(fd), c.op.data, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			c.op.data = c.op.data[n:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			c.op.err = err
			return true
		}
	}
	return true
}

// writeFetch writes an answer around regions: large ones from the page cache by sendfile, everything else collected in
// one buffer and written together.
func (c *Conn) writeFetch(h wire.Header, r *wire.FetchResponse) error {
	g := &c.gather
	if err := r.Encode(g, h); err != nil {
		return err
	}
	defer func() {
		g.Reset()
		if cap(g.Buf) > keepOut {
			*g = wire.Gather{}
		}
	}()
	if len(g.Parts) == 0 {
		return c.send(g.Buf)
	}
	stage := c.srv.pool.get(int(min(c.staged(g), stageLen)))
	defer c.srv.pool.put(stage)
	w := stager{c: c, stage: stage.b[:0]}
	meta := 0
	for i := range g.Parts {
		p := &g.Parts[i]
		if err := w.bytes(g.Buf[meta:p.Meta]); err != nil {
			return err
		}
		meta = p.Meta
		if err := w.bytes(p.Bytes); err != nil {
			return err
		}
		if err := w.region(p.Region); err != nil {
			return err
		}
	}
	if err := w.bytes(g.Buf[meta:]); err != nil {
		return err
	}
	return c.send(w.stage)
}

// staged is how much of a frame does not leave by sendfile.
func (c *Conn) staged(g *wire.Gather) int64 {
	n := g.Size
	for i := range g.Parts {
		if c.canSendfile(g.Parts[i].Region) {
			n -= g.Parts[i].Region.N
		}
	}
	return n
}

// fder is a file with a descriptor, unlike those of memfs.
type fder interface{ Fd() uintptr }

func (c *Conn) canSendfile(r vfs.Region) bool {
	if r.N < sendfileMin || c.raw == nil {
		return false
	}
	_, ok := r.File.File().(fder)
	return ok
}

// stager collects small pieces of one answer.
type stager struct {
	c     *Conn
	stage []byte // capacity fixed
}

func (w *stager) flush() error {
	err := w.c.sendMore(w.stage)
	w.stage = w.stage[:0]
	return err
}

func (w *stager) bytes(b []byte) error {
	if len(w.stage)+len(b) <= cap(w.stage) {
		w.stage = append(w.stage, b...)
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	if len(b) <= cap(w.stage) {
		w.stage = append(w.stage, b...)
		return nil
	}
	return w.c.sendMore(b)
}

func (w *stager) region(r vfs.Region) error {
	if r.N == 0 {
		return nil
	}
	if w.c.canSendfile(r) {
		if err := w.flush(); err != nil {
			return err
		}
		sent, err := w.c.sendfile(int(r.File.File().(fder).Fd()), r.Off, r.N)
		if !errors.Is(err, errNoSendfile) {
			return w.explain(r, err)
		}
		r.Off, r.N = r.Off+sent, r.N-sent
	}
	return w.copyRegion(r)
}

// copyRegion reads the region through the stage.
func (w *stager) copyRegion(r vfs.Region) error {
	for off := int64(0); off < r.N; {
		if len(w.stage) == cap(w.stage) {
			if err := w.flush(); err != nil {
				return err
			}
		}
		at := len(w.stage)
		n := min(cap(w.stage)-at, int(min(r.N-off, stageLen)))
		m, err := r.ReadAt(w.stage[at:at+n], off)
		if m < n {
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return w.explain(r, err)
		}
		w.stage = w.stage[:at+n]
		off += int64(n)
	}
	return nil
}

func (w *stager) explain(r vfs.Region, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s, %d bytes from %d", errShortRegion, r.File.File().Name(), r.N, r.Off)
	}
	return err
}

// errNoSendfile means that this file cannot be sent so; the rest is to be copied.
var errNoSendfile = errors.New("sendfile is not supported here")

// sendfile sends n bytes of a file from off, by explicit offset: the file's own position is shared with everybody who
// reads it. It returns how much has left.
func (c *Conn) sendfile(file int, off, n int64) (int64, error) {
	start := off
	for n > 0 {
		if err := c.armWrite(); err != nil {
			return off - start, err
		}
		c.op = sendOp{in: file, off: off, left: int(min(n, writeChunk))}
		err := c.raw.Write(c.sendfileFn)
		sent := c.op.off - off
		c.srv.stats.BytesOut.Add(sent)
		c.srv.stats.SendfileBytes.Add(sent)
		off, n = c.op.off, n-sent
		if err == nil {
			err = c.op.err
		}
		if errors.Is(err, errNoSendfile) {
			return off - start, err
		}
		if err != nil {
			return off - start, fmt.Errorf("sending a file: %w", err)
		}
	}
	return off - start, nil
}

// sendfileStep sends c.op.left bytes; false means that the socket is full.
func (c *Conn) sendfileStep(fd uintptr) bool {
	op := &c.op
	for op.left > 0 {
		before := op.off
		_, err := unix.Sendfile(int(fd), op.in, &op.off, op.left)
		if sent := op.off - before; sent > 0 {
			op.left -= int(sent)
			continue
		}
		switch {
		case err == nil:
			op.err = io.ErrUnexpectedEOF
			return true
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP):
			op.err = errNoSendfile
			return true
		default:
			op.err = err
			return true
		}
	}
	return true
}
