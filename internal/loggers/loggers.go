// Package loggers gives each part of the server a logger of its own name, whose
// level changes while it runs (KIP-412: kafka-configs --entity-type broker-loggers).
//
// Apache Kafka's loggers are named after its Java classes, which mean nothing here.
// These are the parts of the server, and root, whose level counts for every part
// that has none of its own:
//
//	broker       starts and stops the node; what it is told of its configuration
//	controller   the metadata quorum, the controller, the cluster's image
//	coordinator  consumer groups, transactions
//	lifecycle    registration and heartbeats; the watch over other brokers
//	network      listeners and connections, the requests on them
//	peer         connections to other nodes
//	replication  replicas of this broker: leaders, followers, in-sync replicas
//	storage      logs, log directories, the cleaner
//
// Levels are log4j's. Weir itself writes at DEBUG, INFO, WARN and ERROR.
package loggers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
)

// Root is the name of the logger that the others inherit from.
const Root = "root"

// The parts of the server.
const (
	Broker      = "broker"
	Controller  = "controller"
	Coordinator = "coordinator"
	Lifecycle   = "lifecycle"
	Network     = "network"
	Peer        = "peer"
	Replication = "replication"
	Storage     = "storage"
)

func parts() []string {
	return []string{Broker, Controller, Coordinator, Lifecycle, Network, Peer, Replication, Storage}
}

// Everything is a level below all that there are: a handler given to New lets it pass.
const Everything = slog.Level(-8)

// level is a level by the name that Kafka gives it.
type level struct {
	name string
	at   slog.Level
}

// levels are Kafka's (LogLevelConfig), in the order of its messages.
func levels() []level {
	return []level{
		{"DEBUG", slog.LevelDebug}, {"ERROR", slog.LevelError}, {"FATAL", slog.LevelError + 4},
		{"INFO", slog.LevelInfo}, {"TRACE", Everything}, {"WARN", slog.LevelWarn},
	}
}

func named(at slog.Level) string {
	all := levels()
	slices.SortFunc(all, func(a, b level) int { return int(a.at - b.at) })
	i, found := slices.BinarySearchFunc(all, at, func(l level, at slog.Level) int { return int(l.at - at) })
	if !found && i > 0 {
		i--
	}
	return all[min(i, len(all)-1)].name
}

// Refusals of Set and Unset; the texts are Kafka's.
var (
	// ErrInvalid is wrapped by the refusal of a name or level that there is not (INVALID_CONFIG).
	ErrInvalid = errors.New("invalid logger or level")
	// ErrRoot refuses to take the root's level away (INVALID_REQUEST).
	ErrRoot = errors.New("Removing the log level of the root logger is not allowed")
)

// invalid is an ErrInvalid with a text of its own.
type invalid string

func (e invalid) Error() string      { return string(e) }
func (invalid) Is(target error) bool { return target == ErrInvalid }

// Set is all loggers of a process. It is safe for concurrent use.
type Set struct {
	handler slog.Handler
	root    slog.LevelVar
	parts   map[string]*part // not changed once made
}

// part is a logger with its own level, nil: the root's.
type part struct{ own atomic.Pointer[slog.Level] }

// New makes the loggers. Records go to handler, which lets all levels pass; at is
// the root's level.
func New(handler slog.Handler, at slog.Level) *Set {
	s := &Set{handler: handler, parts: map[string]*part{}}
	s.root.Set(at)
	for _, name := range parts() {
		s.parts[name] = new(part)
	}
	return s
}

// Logger is the logger of a part; for any other name that of the root.
func (s *Set) Logger(name string) *slog.Logger {
	p, ok := s.parts[name]
	if !ok {
		return slog.New(filter{s.handler, &s.root})
	}
	return slog.New(filter{s.handler.WithAttrs([]slog.Attr{slog.String("logger", name)}), inherited{s, p}})
}

// Level is one logger with the level that counts for it.
type Level struct{ Name, Level string }

// Levels lists all loggers by name.
func (s *Set) Levels() []Level {
	out := []Level{{Root, named(s.root.Level())}}
	for name, p := range s.parts {
		out = append(out, Level{name, named(inherited{s, p}.Level())})
	}
	slices.SortFunc(out, func(a, b Level) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Check tells whether Set, or with a nil level Unset, would be refused.
func (s *Set) Check(name string, to *string) error {
	if _, ok := s.parts[name]; !ok && name != Root {
		return invalid(fmt.Sprintf("Logger %s does not exist!", name))
	}
	if to == nil {
		if name == Root {
			return ErrRoot
		}
		return nil
	}
	if !slices.ContainsFunc(levels(), func(l level) bool { return l.name == *to }) {
		var names []string
		for _, l := range levels() {
			names = append(names, l.name)
		}
		return invalid(fmt.Sprintf("Cannot set the log level of %s to %s as it is not a supported log level. Valid log levels are %s", name, *to, strings.Join(names, ", ")))
	}
	return nil
}

// Change gives a logger a level, or with nil takes it away: then the root's counts.
// It takes effect at once. The error is that of Check.
func (s *Set) Change(name string, to *string) error {
	if err := s.Check(name, to); err != nil {
		return err
	}
	if to == nil {
		s.parts[name].own.Store(nil)
		return nil
	}
	i := slices.IndexFunc(levels(), func(l level) bool { return l.name == *to })
	at := levels()[i].at
	if name == Root {
		s.root.Set(at)
	} else {
		s.parts[name].own.Store(&at)
	}
	return nil
}

// inherited is the level that counts for a part.
type inherited struct {
	s *Set
	p *part
}

func (i inherited) Level() slog.Level {
	if own := i.p.own.Load(); own != nil {
		return *own
	}
	return i.s.root.Level()
}

// filter lets records of a level pass that may change.
type filter struct {
	slog.Handler
	level slog.Leveler
}

func (f filter) Enabled(_ context.Context, l slog.Level) bool { return l >= f.level.Level() }

func (f filter) WithAttrs(a []slog.Attr) slog.Handler { return filter{f.Handler.WithAttrs(a), f.level} }

func (f filter) WithGroup(name string) slog.Handler {
	return filter{f.Handler.WithGroup(name), f.level}
}
