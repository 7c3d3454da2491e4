package peer

import (
	"errors"
	"fmt"
)

// Kind is what went wrong, as far as the caller's next step depends on it.
type Kind uint8

const (
	// Refused: nobody listens there (ECONNREFUSED). Nothing was sent.
	Refused Kind = iota + 1
	// Unreachable: the name does not resolve, there is no route, there are no
	// addresses. Nothing was sent.
	Unreachable
	// Timeout: the request's time was over, or that of the dial. The request may
	// have taken effect if it had been sent.
	Timeout
	// Canceled: the caller gave up. The request may have taken effect.
	Canceled
	// Disconnected: the connection ended before the answer. The request may have
	// taken effect.
	Disconnected
	// UnsupportedVersion: the peer does not serve the API, or no version that both
	// know. Nothing was sent.
	UnsupportedVersion
	// BadAnswer: the peer sent what is no answer to the request, or one that is too
	// large. The connection was given up.
	BadAnswer
	// ClientClosed: Close was called.
	ClientClosed
)

func (k Kind) String() string {
	names := [...]string{"no error", "connection refused", "unreachable", "timed out", "canceled", "disconnected",
		"unsupported version", "bad answer", "client closed"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", k)
}

// Error is every error of this package.
type Error struct {
	Kind Kind
	Node int32  // -1 when the node's id is not known
	Addr string // host:port that was tried last; empty before there was one
	// Gone is set when an address that had answered before refused the connection
	// and none was merely silent: the node's process has ended (availability C3).
	Gone bool
	Err  error // what the system said; may be nil
}

func (e *Error) Error() string {
	who := e.Addr
	switch {
	case e.Node >= 0 && e.Addr != "":
		who = fmt.Sprintf("node %d at %s", e.Node, e.Addr)
	case e.Node >= 0:
		who = fmt.Sprintf("node %d", e.Node)
	case who == "":
		who = "peer"
	}
	if e.Err == nil {
		return fmt.Sprintf("%s: %s", who, e.Kind)
	}
	return fmt.Sprintf("%s: %s: %v", who, e.Kind, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Sent tells whether the request may have reached the peer and taken effect.
func (e *Error) Sent() bool {
	switch e.Kind {
	case Refused, Unreachable, UnsupportedVersion, ClientClosed:
		return false
	}
	return true
}

// KindOf is the Kind of err, 0 when it is not one of this package's.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

// IsGone tells whether err proves that the node's process has ended; see [Error.Gone].
func IsGone(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Gone
}
