package metalog

import (
	"errors"
	"syscall"
	"time"

	"weir/internal/kraft"
)

// stall is what a full disk keeps this replica from doing. Its epoch, its vote or
// the record that opens its epoch as leader cannot be written: nothing that the
// core has decided since may be seen by anybody. So, to the others, it is a node
// that does not answer; they elect a leader among themselves. To those on this
// node there is no leader. When there is room the replica goes on from where it
// stands, and finds out what the others have decided.
type stall struct {
	at     time.Time     // when it is tried again
	ready  kraft.Ready   // what is left of it
	events []kraft.Event // what came meanwhile, in order; no more than requests were under way
}

// noRoom tells whether an operation failed because the disk is full.
func noRoom(err error) bool {
	return errors.Is(err, ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// stallOn leaves off in the middle of r; mu is held.
func (l *Log) stallOn(r kraft.Ready, err error) {
	l.noSpace(err)
	l.stall = &stall{at: l.o.Clock.Now().Add(spaceInterval), ready: r}
	l.news = &kraft.LeaderAndEpoch{ID: kraft.None, Epoch: l.core.State().Epoch}
}

// postpone keeps an event for later, as far as it is not told again anyway.
func (l *Log) postpone(ev kraft.Event) {
	switch ev.(type) {
	case kraft.Tick, kraft.Flushed, kraft.Refused:
	default:
		l.stall.events = append(l.stall.events, ev)
	}
}

// resume tries again what found no room.
func (l *Log) resume() (bool, error) {
	l.mu.Lock()
	defer l.release()
	s := l.stall
	if s == nil || l.err != nil || l.o.Clock.Now().Before(s.at) {
		return false, l.err
	}
	l.stall = nil
	err := l.carryOut(s.ready)
	if l.stall == nil && err == nil {
		l.o.Logger.Info("there is room for the metadata log again", "dir", l.dir)
		if s.ready.Leader == nil {
			le := l.leaderNow()
			l.news = &le
		}
	}
	for _, ev := range s.events {
		if err == nil {
			err = l.step(ev)
		}
	}
	return l.stall == nil, err
}
