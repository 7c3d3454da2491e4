package follower

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kind says what an Action asks for.
type Kind uint8

// The kinds of Action.
const (
	// Append: add Records to the log's end, then take over HighWatermark and
	// LogStart. Records may be empty and may end in a cut batch.
	Append Kind = iota
	// Truncate: cut the log to where it agrees with the leader's, which says that
	// its epoch Epoch ended at Offset.
	Truncate
	// Relocate: our place is outside the leader's log. The driver asks the leader
	// where its log begins and ends (ListOffsets), and truncates or starts anew.
	Relocate
)

// Action is one thing to do with a partition's log. Its outcome goes to Done.
type Action struct {
	Key         Key
	Kind        Kind
	LeaderEpoch int32 // of the request that was answered

	Records       []byte // shared with the answer
	HighWatermark int64
	LogStart      int64 // the leader's

	Epoch  int32
	Offset int64

	p *part
}

// Lost tells that the request had no answer. The next one starts a new session, after a
// pause unless hurry says that there is no need of one.
func (c *Core) Lost(nowMs int64, hurry bool) {
	c.asked = false
	c.session.epoch = 0
	if hurry {
		return
	}
	c.pause = longer(c.pause, c.o)
	c.retryAt = nowMs + c.pause
}

// Response takes the leader's answer to the request under way.
func (c *Core) Response(nowMs int64, res *kmsg.FetchResponse) []Action {
	c.asked = false
	if res.ErrorCode != 0 {
		c.refused(nowMs, res.ErrorCode)
		return nil
	}
	c.pause, c.retryAt = 0, 0
	switch {
	case res.SessionID == 0: // none was granted, or it ended because it had become empty
		c.session.id, c.session.epoch = 0, 0
	case c.session.epoch == 0: // the answer to a full request tells the new session
		c.session.id, c.session.epoch = res.SessionID, 1
	case c.session.epoch == 1<<31-1:
		c.session.epoch = 1
	default:
		c.session.epoch++
	}
	var out []Action
	for i := range res.Topics {
		t := &res.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			p := c.parts[Key{t.TopicID, rp.Partition}]
			if p == nil || p.state != fetching || p.queued || !p.inSession {
				continue // removed, added anew or put aside meanwhile
			}
			if a, ok := c.take(nowMs, p, rp); ok {
				out = append(out, a)
			}
		}
	}
	return out
}

// refused is an answer that is an error as a whole.
func (c *Core) refused(nowMs int64, code int16) {
	c.session.epoch = 0
	switch code {
	case kerr.FetchSessionIDNotFound.Code:
		c.session.id = 0
	case kerr.InvalidFetchSessionEpoch.Code, kerr.FetchSessionTopicIDError.Code, kerr.InconsistentTopicID.Code:
	default:
		c.pause = longer(c.pause, c.o)
		c.retryAt = nowMs + c.pause
	}
}

// take turns a partition's row into an action, or puts the partition aside.
func (c *Core) take(nowMs int64, p *part, rp *kmsg.FetchResponseTopicPartition) (Action, bool) {
	a := Action{Key: p.key, LeaderEpoch: p.at.LeaderEpoch, HighWatermark: rp.HighWatermark, LogStart: rp.LogStartOffset, p: p}
	switch rp.ErrorCode {
	case 0:
		if d := rp.DivergingEpoch; d.Epoch >= 0 || d.EndOffset >= 0 {
			a.Kind, a.Epoch, a.Offset = Truncate, d.Epoch, d.EndOffset
			break
		}
		a.Kind, a.Records = Append, rp.RecordBatches
	case kerr.OffsetOutOfRange.Code:
		a.Kind = Relocate
	case kerr.FencedLeaderEpoch.Code: // the image will tell of the next leader epoch
		c.leaveSession(p)
		p.state = failed
		return a, false
	default:
		c.delay(p, nowMs)
		return a, false
	}
	p.state = busy
	return a, true
}

// Outcome is how an Action ended.
type Outcome struct {
	Action Action
	// Where the log stands now, also after a failure, which may have come half-way;
	// see Start.
	Offset    int64
	LastEpoch int32
	LogStart  int64
	// Failed puts the partition aside for a pause; with Stop, until it is added
	// again.
	Failed, Stop bool
}

// Done takes the outcome of an action.
func (c *Core) Done(nowMs int64, o Outcome) {
	p := o.Action.p
	if p.state != busy {
		return // removed or added anew meanwhile
	}
	was := p.at
	p.at = Start{LeaderEpoch: was.LeaderEpoch, Offset: o.Offset, LastEpoch: o.LastEpoch, LogStart: o.LogStart}
	switch {
	case o.Stop:
		c.leaveSession(p)
		p.state = failed
	case o.Failed:
		c.delay(p, nowMs)
	default:
		p.pause, p.state = 0, fetching
		if p.at != was {
			c.enqueue(p)
		}
	}
}
