package network

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"weir/internal/clock"
)

const (
	// maxPending is how many answers of one connection may be owed at once (rule 8).
	maxPending = 64
	// maxPlainFrame limits the frames of APIs that carry no records. They hold names and numbers, and decode to up to
	// thirty times their size.
	maxPlainFrame = 8 << 20
	// sendfileMin is the smallest region worth a system call of its own.
	sendfileMin = 32 << 10
	// defaultWriteTimeout is how long a peer may take to accept the next writeChunk bytes of an answer.
	defaultWriteTimeout = 60 * time.Second
)

// Listener says where to accept connections.
type Listener struct {
	Name string // as in the listeners key: PLAINTEXT, CONTROLLER, …
	Host string // empty: every address, IPv4 and IPv6; brackets around an IPv6 address are optional
	Port int    // 0: a free one, see Server.Addr
	// MaxConnections is listener.name.NAME.max.connections; 0 means no limit of its own.
	MaxConnections int
	// MaxCreationRate is listener.name.NAME.max.connection.creation.rate, per second; 0 means no limit of its own.
	MaxCreationRate int
}

// Limits are Kafka's limits on connections, which can change while the server runs. Zero means no limit.
type Limits struct {
	MaxConnections      int            // max.connections
	MaxConnectionsPerIP int            // max.connections.per.ip; with overrides, 0 means that nobody else gets in
	PerIPOverrides      map[string]int // max.connections.per.ip.overrides: address → limit; read only once given
	MaxCreationRate     int            // max.connection.creation.rate, per second
}

// Options make a Server.
type Options struct {
	Listeners []Listener
	// InterBroker is the name of the listener that brokers use among themselves. With more than one listener, its
	// connections are accepted beyond MaxConnections, at the cost of the longest unused connection of another.
	InterBroker string
	Handler     Handler
	Logger      *slog.Logger
	Clock       clock.Clock
	Limits      Limits
	// IdleTimeout is connections.max.idle.ms; 0 or less: never.
	IdleTimeout time.Duration
	// MaxRequestBytes is socket.request.max.bytes.
	MaxRequestBytes int32
	// QueuedMaxBytes is queued.max.request.bytes; 0 or less: a share of the memory there is.
	QueuedMaxBytes int64
	// SendBuffer and ReceiveBuffer are socket.send.buffer.bytes and socket.receive.buffer.bytes; 0 or less: the
	// system's choice.
	SendBuffer, ReceiveBuffer int
	// WriteTimeout is how long a peer may take to accept the next part of an answer; 0: 60 s.
	WriteTimeout time.Duration
}

func (o *Options) validate() error {
	switch {
	case len(o.Listeners) == 0:
		return errors.New("network: no listeners")
	case o.Handler == nil || o.Logger == nil || o.Clock == nil:
		return errors.New("network: Handler, Logger and Clock are needed")
	case o.MaxRequestBytes <= 0:
		return fmt.Errorf("network: socket.request.max.bytes is %d", o.MaxRequestBytes)
	}
	names := map[string]bool{}
	for _, l := range o.Listeners {
		if names[l.Name] {
			return fmt.Errorf("network: two listeners named %s", l.Name)
		}
		names[l.Name] = true
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = defaultWriteTimeout
	}
	return nil
}

// frameTimeout is how long a frame of this size may take from its first byte to its last. It keeps a peer that stops in
// the middle from holding the memory budget.
func frameTimeout(size int64) time.Duration {
	const slowest = 256 << 10 // bytes per second
	return 10*time.Second + time.Duration(min(size, math.MaxInt32))*time.Second/slowest
}
