package broker

import "log/slog"

// log is the logger of a part of this node; see package loggers.
func (b *Broker) log(part string) *slog.Logger { return b.o.Loggers.Logger(part) }
