package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/network"
	"weir/internal/quorum"
	"weir/internal/wire"
)

// Call is one request and where it came from.
type Call struct {
	Conn   *network.Conn
	Header wire.Header
	// Body is the encoded request; see network.Handler for how long it lives.
	Body []byte
}

// ClientID is what the client calls itself, empty for null.
func (c *Call) ClientID() string {
	if c.Header.ClientID == nil {
		return ""
	}
	return *c.Header.ClientID
}

// Handler answers one API. It is called by many connections at once. The
// request and all its byte slices are valid until the answer is complete.
type Handler interface {
	// Key is the API key it serves, at every version that wire.Supported names.
	Key() kmsg.Key
	Handle(ctx context.Context, c *Call, req kmsg.Request) wire.Response
}

// Table is the handlers of one kind of listener. It is network's Handler.
type Table struct {
	logger   *slog.Logger
	handlers [maxKey + 1]Handler
}

const maxKey = 127

// NewTable makes a table. Two handlers with one key are a bug.
func NewTable(logger *slog.Logger, handlers ...Handler) *Table {
	t := &Table{logger: logger}
	for _, h := range handlers {
		k := h.Key()
		if t.handlers[k] != nil {
			panic(fmt.Sprintf("BUG: two handlers for %s", wire.Name(int16(k))))
		}
		t.handlers[k] = h
	}
	return t
}

// Keys lists what the table serves, in the order of API keys.
func (t *Table) Keys() []int16 {
	var keys []int16
	for k, h := range t.handlers {
		if h != nil {
			keys = append(keys, int16(k))
		}
	}
	return slices.Clip(keys)
}

// Handlers lists the handlers, in the order of API keys.
func (t *Table) Handlers() []Handler {
	var list []Handler
	for _, h := range t.handlers {
		if h != nil {
			list = append(list, h)
		}
	}
	return list
}

// Handle decodes one request and runs its handler. A request that does not
// decode, or whose API or version is not served, closes the connection, since no
// answer could be shaped for it; only ApiVersions has an answer for a version
// that it does not know (KIP-511).
func (t *Table) Handle(ctx context.Context, conn *network.Conn, h wire.Header, body []byte) wire.Response {
	var handler Handler
	if h.Key >= 0 && h.Key <= maxKey {
		handler = t.handlers[h.Key]
	}
	if handler == nil {
		return wire.Fail{Err: fmt.Errorf("%s is not served on listener %s", wire.Name(h.Key), conn.Listener())}
	}
	req, err := wire.ReadRequest(h, body)
	var unsupported *wire.UnsupportedVersionError
	switch {
	case errors.As(err, &unsupported) && h.Key == int16(kmsg.ApiVersions):
		return apiVersionsUnsupported(t)
	case err != nil:
		return wire.Fail{Err: err}
	}
	if quorum.Forwardable(kmsg.Key(h.Key)) {
		ctx = quorum.OnBehalf(ctx, origin(conn, h))
	}
	return handler.Handle(ctx, &Call{Conn: conn, Header: h, Body: body}, req)
}

// reply makes the answer to req.
func reply(r kmsg.Response) wire.Response { return wire.Message{Response: r} }

// as narrows the request to its type: the table guarantees it.
func as[T kmsg.Request](req kmsg.Request) T { return req.(T) }

// responseTo makes an empty answer of the request's version.
func responseTo[T kmsg.Response](req kmsg.Request) T { return req.ResponseKind().(T) }
