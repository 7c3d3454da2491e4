package network

import (
	"context"

	"weir/internal/wire"
)

// Handler executes requests. Handle is called from the goroutine of the connection, one request after another.
//
// body, and everything decoded from it that is a byte slice, belongs to the handler until the answer is complete: until
// Handle returns, and for a wire.Pending until Finish returns. Then the buffer is used again.
//
// ctx is cancelled when the peer has closed the connection or the server stops, so a long poll ends early.
type Handler interface {
	Handle(ctx context.Context, c *Conn, h wire.Header, body []byte) wire.Response
}
