package classic

import (
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/deadline"
	"weir/internal/records"
)

// Config is what the rules depend on.
type Config struct {
	// MaxSize is group.max.size.
	MaxSize int
	// InitialDelay is group.initial.rebalance.delay.ms: how long the first
	// rebalance of an empty group waits for more members.
	InitialDelay time.Duration
}

// newMemberJoinTimeout is how long a member that joins for the first time is kept
// while its group rebalances (Kafka's constant).
const newMemberJoinTimeout = 5 * time.Minute

// Timer is what a deadline is about.
type Timer struct {
	Kind   TimerKind
	Group  string
	Member string // only for Session
}

// TimerKind tells the timers of a group apart.
type TimerKind uint8

// The timers.
const (
	// Session is due when a member has not been heard of for too long.
	Session TimerKind = iota
	// Join is due when a rebalance no longer waits for members to join.
	Join
	// Sync is due when members that have joined should have asked for their assignment.
	Sync
	// Overdue is due when a rebalance that waits for members is to be told of again.
	Overdue
	// Expiry is due when offsets and groups are to be checked for their age. It
	// belongs to package group.
	Expiry
	// The others are of members of consumer groups and belong to package consumer:
	// the session, the time to give up partitions, and for members that use the
	// classic protocol the times to join again and to ask for the assignment.
	MemberSession
	MemberRevoke
	MemberJoin
	MemberSync
)

// Waiter takes the answer of one request. Cores never call it: they put it into
// Answers, which are given out once all is committed.
type Waiter func(kmsg.Response)

// Waiting is a request that has not been answered.
type Waiting struct {
	To      Waiter
	Version int16 // of the request
}

// Answer is an answer to give.
type Answer struct {
	To       Waiter
	Response kmsg.Response
}

// Step is the moment at which a method is called, and what came of it.
type Step struct {
	Now    time.Time
	Rand   io.Reader
	Config *Config
	Timers *deadline.Queue[Timer]

	// Answers are given when everything this step has seen is committed.
	Answers []Answer
	// Record, when set, is the group's new stored state.
	Record *records.GroupMetadataValue
	// Then, when set, is the next step of the same request: it is called when
	// Record is committed (failed is nil) or was refused.
	Then func(s *Step, failed *kerr.Error)
	// Notes are lines for the log, and so are Waits.
	Notes []string
	Waits []*Missing
}

func (s *Step) answer(w *Waiting, r kmsg.Response) {
	r.SetVersion(w.Version)
	s.Answers = append(s.Answers, Answer{To: w.To, Response: r})
}

func (s *Step) nowMs() int64 { return s.Now.UnixMilli() }

func ms(n int32) time.Duration { return time.Duration(n) * time.Millisecond }
