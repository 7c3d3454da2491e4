package sim

import (
	"context"
	"log/slog"
	"time"

	"weir/internal/clock"
)

// timed tells the world's time instead of ours.
type timed struct {
	slog.Handler
	clock *clock.Manual
}

// Handle implements slog.Handler.
func (t timed) Handle(ctx context.Context, r slog.Record) error {
	r.Time = time.UnixMilli(0).Add(t.clock.Now().Sub(begin)).UTC()
	return t.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (t timed) WithAttrs(a []slog.Attr) slog.Handler {
	return timed{t.Handler.WithAttrs(a), t.clock}
}
