package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerWithin is how long a node may take for any answer of these cases.
const answerWithin = 15 * time.Second

// conn is one connection to a node. It does not hide anything: requests go out as
// they are, answers are read when asked for.
type conn struct {
	net.Conn
	last int32 // correlation id
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, answerWithin)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// frame encodes a request with its size prefix.
func (c *conn) frame(req kmsg.Request) []byte {
	c.last++
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire")).AppendRequest(nil, req, c.last)
}

// send writes a request and returns its correlation id.
func (c *conn) send(req kmsg.Request) (int32, error) {
	b := c.frame(req)
	_, err := c.Write(b)
	return c.last, err
}

// readFrame reads one answer without its size prefix.
func (c *conn) readFrame(within time.Duration) ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	if n < 4 || n > 256<<20 {
		return nil, fmt.Errorf("answer of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	return b, err
}

// receive reads the answer to a request.
func (c *conn) receive(req kmsg.Request, id int32) (kmsg.Response, error) {
	b, err := c.readFrame(answerWithin)
	if err != nil {
		return nil, err
	}
	return parseAnswer(b, req, id)
}

func parseAnswer(b []byte, req kmsg.Request, id int32) (kmsg.Response, error) {
	if got := int32(binary.BigEndian.Uint32(b)); got != id {
		return nil, fmt.Errorf("answer has correlation id %d, the request had %d", got, id)
	}
	b = b[4:]
	res := req.ResponseKind()
	if res.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if len(b) == 0 || b[0] != 0 {
			return nil, errors.New("the answer's header has tagged fields")
		}
		b = b[1:]
	}
	if err := readWhole(res, b); err != nil {
		return nil, fmt.Errorf("%s v%d: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return res, nil
}

// readWhole decodes an answer and insists that nothing is left over: encoding it
// again must give as many bytes.
func readWhole(res kmsg.Response, b []byte) error {
	if err := res.ReadFrom(b); err != nil {
		return err
	}
	if n := len(res.AppendTo(nil)); n != len(b) {
		return fmt.Errorf("the answer has %d bytes, its fields take %d", len(b), n)
	}
	return nil
}

// do sends a request at a version and reads its answer.
func (c *conn) do(req kmsg.Request, version int16) (kmsg.Response, error) {
	req.SetVersion(version)
	id, err := c.send(req)
	if err != nil {
		return nil, err
	}
	return c.receive(req, id)
}

// closedByPeer tells whether the other side closes the connection without another byte.
func (c *conn) closedByPeer(within time.Duration) (bool, error) {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return false, err
	}
	var b [1]byte
	n, err := c.Read(b[:])
	var timeout net.Error
	switch {
	case n > 0:
		return false, fmt.Errorf("got a byte (%#x) instead of the end of the connection", b[0])
	case errors.As(err, &timeout) && timeout.Timeout():
		return false, nil
	}
	return true, nil
}
