package consumer

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/group/classic"
	"weir/internal/group/deadline"
	"weir/internal/image"
)

// Config is what the rules depend on, beside the settings of each group.
type Config struct {
	// MaxSize is group.consumer.max.size, ClassicMaxSize group.max.size, which bounds a
	// group that would become a classic one.
	MaxSize, ClassicMaxSize int
	// Assignors are those of group.consumer.assignors; the first is the default.
	Assignors []string
	// Upgrade and Downgrade are group.consumer.migration.policy: whether a group with
	// members may become one of this protocol, and a classic one again.
	Upgrade, Downgrade bool
	// RegexRefresh is group.consumer.regex.refresh.interval.ms.
	RegexRefresh time.Duration
}

// Settings are those that each group can have of its own.
type Settings struct {
	Session   time.Duration // consumer.session.timeout.ms
	Heartbeat time.Duration // consumer.heartbeat.interval.ms
	// AssignmentInterval is consumer.assignment.interval.ms: a target assignment is
	// not computed anew earlier after the last one.
	AssignmentInterval time.Duration
}

// Error is what a request is refused with.
type Error struct {
	Kind *kerr.Error
	Text string // for whoever asked
}

// Error is its text.
func (e *Error) Error() string { return e.Kind.Message + ": " + e.Text }

func refuse(kind *kerr.Error, format string, args ...any) *Error {
	return &Error{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// Soft is what no record says of a group. It is lost when another node takes the
// group over, as in Kafka.
type Soft struct {
	// refreshAt is when the topics of the group are to be looked at again, whatever
	// happens; refreshEpoch is the group epoch for which that was decided. Should the
	// group be at a lower one, the decision was not committed.
	refreshAt    time.Time
	refreshEpoch int32
	resolving    bool // regular expressions are being resolved
}

// refreshEvery is how often the topics are looked at without a reason.
const refreshEvery = math.MaxInt32 * time.Millisecond

// TopicsChanged has the next heartbeat look at the topics of the group again.
func (f *Soft) TopicsChanged() { f.refreshAt, f.refreshEpoch = time.Time{}, 0 }

func (f *Soft) refreshed(s *Step, epoch int32) {
	f.refreshAt, f.refreshEpoch = s.Now.Add(refreshEvery), epoch
}

func (f *Soft) outdated(s *Step, g *Group) bool {
	return !s.Now.Before(f.refreshAt) || g.Epoch < f.refreshEpoch
}

// Step is the moment at which a method is called, and what came of it.
type Step struct {
	Now    time.Time
	Rand   io.Reader
	Config *Config
	// Settings are those of the group.
	Settings Settings
	Image    *image.Image
	// NewTopicsAt is the offset of the newest image in which a topic was created.
	NewTopicsAt int64
	Timers      *deadline.Queue[classic.Timer]

	Records []Record
	// Resolve, when set, is what to resolve now, beside the step's records and
	// whatever becomes of them; the result comes back with Group.RegexResolved.
	Resolve *Resolve
	Notes   []string // lines for the log
	// Rebalances counts the group epochs that were begun for other topics or
	// subscribers, as Kafka's metric does.
	Rebalances int
}

// Resolve is a request to resolve regular expressions.
type Resolve struct {
	Group   string
	Regexes []string
}

func (s *Step) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

func (s *Step) write(r ...Record) { s.Records = append(s.Records, r...) }

func (s *Step) setTimer(kind classic.TimerKind, g *Group, member string, after time.Duration) {
	s.Timers.Set(classic.Timer{Kind: kind, Group: g.ID, Member: member}, s.Now.Add(after))
}

func (s *Step) cancelTimer(kind classic.TimerKind, g *Group, member string) {
	s.Timers.Cancel(classic.Timer{Kind: kind, Group: g.ID, Member: member})
}

func (s *Step) cancelTimers(g *Group, member string) {
	for _, k := range []classic.TimerKind{classic.MemberSession, classic.MemberRevoke, classic.MemberJoin, classic.MemberSync} {
		s.cancelTimer(k, g, member)
	}
}

func ms(n int32) time.Duration { return time.Duration(n) * time.Millisecond }
