package network

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"weir/internal/clock"
)

// frameError tells why what a peer sent is no request. The connection is closed and one line logged.
type frameError struct{ reason string }

func (e *frameError) Error() string { return e.reason }

// guess names the protocol that the first bytes of a connection look like, or "".
func guess(first []byte) string {
	if len(first) >= 2 && first[0] == 0x16 && first[1] == 3 {
		return "looks like TLS: this listener is PLAINTEXT"
	}
	for _, verb := range []string{"GET ", "POST", "PUT ", "HEAD", "OPTI", "DELE", "PATC", "CONN", "PRI "} {
		if bytes.HasPrefix(first, []byte(verb)) {
			return "looks like HTTP: this listener speaks the Kafka protocol"
		}
	}
	if bytes.HasPrefix(first, []byte("SSH-")) {
		return "looks like SSH: this listener speaks the Kafka protocol"
	}
	return ""
}

// badFrame makes the error for a frame that starts with these bytes: what they look like, or else the plain reason.
func badFrame(first []byte, format string, args ...any) error {
	if g := guess(first); g != "" {
		return &frameError{g}
	}
	return &frameError{fmt.Sprintf(format, args...)}
}

// logLimiter lets a burst of lines through and then one a second, each saying how many were left out.
type logLimiter struct {
	logger *slog.Logger
	clock  clock.Clock

	mu struct {
		sync.Mutex
		tokens     float64
		last       time.Time
		suppressed int
	}
}

const logBurst = 10

func newLogLimiter(logger *slog.Logger, c clock.Clock) *logLimiter {
	l := &logLimiter{logger: logger, clock: c}
	l.mu.tokens, l.mu.last = logBurst, c.Now()
	return l
}

func (l *logLimiter) warn(msg string, args ...any) {
	now := l.clock.Now()
	l.mu.Lock()
	l.mu.tokens = min(logBurst, l.mu.tokens+now.Sub(l.mu.last).Seconds())
	l.mu.last = now
	if l.mu.tokens < 1 {
		l.mu.suppressed++
		l.mu.Unlock()
		return
	}
	l.mu.tokens--
	suppressed := l.mu.suppressed
	l.mu.suppressed = 0
	l.mu.Unlock()
	if suppressed > 0 {
		args = append(args, "similar_lines_left_out", suppressed)
	}
	l.logger.Warn(msg, args...)
}
