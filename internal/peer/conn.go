package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/wire"
)

// conn is one connection and the requests on it. One goroutine reads the
// answers, with Options.Lend the one that asks; requests are written by their
// callers, one after another.
type conn struct {
	client *Client
	nc     net.Conn
	addr   string // ip:port

	// Of the goroutine that reads.
	in   *bufio.Reader
	lent []byte // with Options.Lend: the last answer

	// versions is what the peer serves. It is set before others get the connection.
	versions map[int16]wire.Range

	// turn is held (by taking its element) while a request is written, so that the
	// order of pending is that of the wire.
	turn chan struct{}
	last int32 // correlation id of the last request; under turn

	mu      sync.Mutex
	pending []*call // written or about to be, the next answer's first
	err     *Error  // why the connection died
}

// call is one request that waits for its answer.
type call struct {
	id   int32
	res  kmsg.Response
	err  error
	done chan struct{} // closed when res is filled or err is set
}

func (c *Client) newConn(nc net.Conn, addr string) *conn {
	n := &conn{client: c, nc: nc, addr: addr, in: bufio.NewReaderSize(nc, readBuffer), turn: make(chan struct{}, 1)}
	n.turn <- struct{}{}
	return n
}

func (n *conn) died() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		return nil
	}
	return n.err
}

// fail ends the connection and everything on it; the first reason stays. No lock is
// held while the connection closes: who made it may want to know (Options.Dial),
// and ask back.
func (n *conn) fail(k Kind, err error) {
	n.mu.Lock()
	if n.err != nil {
		n.mu.Unlock()
		return
	}
	why := n.client.fail(k, n.addr, err)
	pending := n.pending
	n.err, n.pending = why, nil
	n.mu.Unlock()
	if err := n.nc.Close(); err != nil {
		n.client.o.Logger.Debug("closing a connection", "address", n.addr, "err", err)
	}
	for _, q := range pending {
		q.err = why
		close(q.done)
	}
}

func (n *conn) version(key, wish int16) (int16, error) {
	v, ok := choose(key, wish, n.versions)
	if !ok {
		theirs, served := n.versions[key]
		why := fmt.Errorf("%s is not served", wire.Name(key))
		if served {
			why = fmt.Errorf("%s is served from version %d to %d, wanted is at most %d", wire.Name(key), theirs.Min, theirs.Max, wish)
		}
		return 0, n.client.fail(UnsupportedVersion, n.addr, why)
	}
	return v, nil
}

// do sends one request and waits for its answer.
func (n *conn) do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	own := req.GetVersion()
	v, err := n.version(req.Key(), own)
	if err != nil {
		return nil, err
	}
	req.SetVersion(v)
	frame := n.client.format.AppendRequest(nil, req, 0)
	q := &call{res: req.ResponseKind(), done: make(chan struct{})}
	req.SetVersion(own)

	select {
	case <-n.turn:
	case <-ctx.Done(): // the connection is whole: nothing of this request was written
		return nil, n.client.fail(ended(ctx), n.addr, errors.New("while others were sending"))
	}
	// From here on the end of ctx is the end of the connection.
	stop := context.AfterFunc(ctx, func() {
		n.fail(ended(ctx), fmt.Errorf("no answer to %s v%d in time", wire.Name(req.Key()), v))
	})
	defer stop()
	n.write(q, frame)
	n.turn <- struct{}{}
	if n.client.o.Lend {
		n.readOne()
	}
	<-q.done
	if q.err != nil {
		return nil, q.err
	}
	return q.res, nil
}

// write puts one request on the wire. What fails, fails q.
func (n *conn) write(q *call, frame []byte) {
	n.last++
	q.id = n.last
	binary.BigEndian.PutUint32(frame[correlationAt:], uint32(q.id))
	n.mu.Lock()
	if n.err != nil {
		q.err = n.err
		close(q.done)
		n.mu.Unlock()
		return
	}
	n.pending = append(n.pending, q)
	n.mu.Unlock()
	if _, err := n.nc.Write(frame); err != nil {
		n.fail(Disconnected, err)
	}
}

// correlationAt is the place of the correlation id in a request's frame: after
// size, key and version.
const correlationAt = 4 + 2 + 2

// read takes the answers until the connection ends.
func (n *conn) read() {
	for n.readOne() {
	}
}

// readOne takes one answer. False: the connection has ended.
func (n *conn) readOne() bool {
	frame, err := n.frame()
	var bad *answerError
	switch {
	case errors.As(err, &bad):
		n.fail(BadAnswer, err)
		return false
	case err != nil:
		n.fail(Disconnected, err)
		return false
	}
	if err := n.deliver(frame); err != nil {
		n.fail(BadAnswer, err)
		return false
	}
	return true
}

const readBuffer = 4 << 10

// deliver hands an answer to the oldest request.
func (n *conn) deliver(frame []byte) error {
	n.mu.Lock()
	if len(n.pending) == 0 {
		n.mu.Unlock()
		return &answerError{"nothing was asked"}
	}
	q := n.pending[0]
	n.mu.Unlock()
	// Only this goroutine takes from the front, so q stays there while it is decoded.
	if err := decode(frame, q.id, q.res); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil { // else fail has closed it
		n.pending = n.pending[1:]
		close(q.done)
	}
	return nil
}

// frame reads one answer, into what is lent if that is large enough.
func (n *conn) frame() ([]byte, error) {
	size, err := readSize(n.in, n.client.o.MaxAnswer)
	if err != nil {
		return nil, err
	}
	frame, err := readFrame(n.in, size, n.lent)
	if n.client.o.Lend && cap(frame) <= keepFrame {
		n.lent = frame
	}
	return frame, err
}

// answerError says what is wrong with the bytes of an answer.
type answerError struct{ reason string }

func (e *answerError) Error() string { return e.reason }

// readSize reads and checks the size of one answer.
func readSize(r io.Reader, limit int32) (int32, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return 0, err
	}
	size := int32(binary.BigEndian.Uint32(prefix[:]))
	if size < 4 || size > limit {
		return 0, &answerError{fmt.Sprintf("an answer of %d bytes; the limit is %d", size, limit)}
	}
	return size, nil
}

// readFrame reads the bytes of one answer. Memory is taken as they arrive: a size
// alone costs nothing.
func readFrame(r io.Reader, size int32, lent []byte) ([]byte, error) {
	if int(size) <= cap(lent) {
		frame := lent[:size]
		_, err := io.ReadFull(r, frame)
		return frame, err
	}
	frame := make([]byte, min(size, firstPiece))
	for at := 0; ; {
		if _, err := io.ReadFull(r, frame[at:]); err != nil {
			return nil, err
		}
		if at = len(frame); at == int(size) {
			return frame, nil
		}
		more := make([]byte, min(int(size), 4*at))
		copy(more, frame)
		frame = more
	}
}

const (
	// firstPiece is how much of a frame is allocated before anything has arrived.
	firstPiece = 256 << 10
	// keepFrame is the largest frame that is kept for the next answer.
	keepFrame = 2 << 20
)

// decode reads an answer into res, whose version is that of the request.
func decode(frame []byte, id int32, res kmsg.Response) (err error) {
	got, body, err := wire.ParseResponseHeader(frame, res.Key(), res.GetVersion())
	if err != nil {
		return &answerError{err.Error()}
	}
	if got != id {
		return &answerError{fmt.Sprintf("correlation id %d where %d was expected", got, id)}
	}
	if res.Key() == int16(kmsg.ApiVersions) && len(body) >= 2 && int16(binary.BigEndian.Uint16(body)) == kerr.UnsupportedVersion.Code {
		res.SetVersion(0) // KIP-511
	}
	defer func() {
		if p := recover(); p != nil {
			err = &answerError{fmt.Sprintf("%s v%d: decoder: %v", wire.Name(res.Key()), res.GetVersion(), p)}
		}
	}()
	if err := res.ReadFrom(body); err != nil {
		return &answerError{fmt.Sprintf("%s v%d does not decode: %v", wire.Name(res.Key()), res.GetVersion(), err)}
	}
	return nil
}
