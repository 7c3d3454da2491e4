package replication

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/isr"
	"weir/internal/partition"
	"weir/internal/uuid"
	"weir/internal/wire"
)

// proposed is an ISR change on its way to the controller.
type proposed struct {
	replica  *partition.Replica
	proposal *isr.Proposal
}

// alterTimeout bounds one AlterPartition; an unanswered one is sent again, since
// it may have been committed.
const alterTimeout = 5 * time.Second

// dueSet is the set of replicas whose ISR may be due for a change.
type dueSet struct {
	mu   sync.Mutex
	set  map[*partition.Replica]struct{}
	all  bool
	wake chan struct{}
}

// add puts a replica on the list.
func (d *dueSet) add(r *partition.Replica) {
	d.mu.Lock()
	if d.set == nil {
		d.set = map[*partition.Replica]struct{}{}
	}
	d.set[r] = struct{}{}
	d.mu.Unlock()
	poke(d.wake)
}

// everyone puts all replicas on the list.
func (d *dueSet) everyone() {
	d.mu.Lock()
	d.all = true
	d.mu.Unlock()
	poke(d.wake)
}

func (d *dueSet) take() (set map[*partition.Replica]struct{}, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set, all = d.set, d.all
	d.set, d.all = nil, false
	return set, all
}

// runProposals sends the ISR changes that are due until ctx ends: expansions as
// soon as a follower has come far enough, shrinks when one lags for too long, and
// the end of a recovery after an unclean election.
func (m *Manager) runProposals(ctx context.Context) error {
	for {
		if list := m.proposals.next(m); len(list) > 0 {
			m.alter(ctx, list)
		}
		pause := m.proposals.at().Sub(m.o.Clock.Now())
		if len(m.proposals.open) > 0 {
			pause = retryAlter
		}
		if !m.sleep(ctx, pause) {
			return nil
		}
	}
}

// proposals is the state of the one who sends ISR changes.
type proposals struct {
	open  []proposed // sent, outcome not known
	sweep time.Time  // when all replicas are looked at again
	// refused are replicas whose proposal was turned down; they propose nothing
	// before again, or each fetch of a follower would bring another attempt.
	refused map[*partition.Replica]struct{}
	again   time.Time
}

// next lists the changes to send now: those whose outcome is not known, and new ones.
func (s *proposals) next(m *Manager) []proposed {
	now := m.o.Clock.Now()
	if !now.Before(s.sweep) {
		m.isrs.everyone()
		s.sweep = now.Add(m.o.MaxLag / 2)
	}
	if len(s.refused) > 0 && !now.Before(s.again) {
		for r := range s.refused {
			m.isrs.add(r)
		}
		s.refused = nil
	}
	s.open = slices.DeleteFunc(s.open, func(p proposed) bool { return !p.replica.InFlight(p.proposal) }) // the image was faster
	s.open = append(s.open, m.due()...)
	return s.open
}

// at is when next has something to do, if nothing happens before.
func (s *proposals) at() time.Time {
	if len(s.refused) > 0 && s.again.Before(s.sweep) {
		return s.again
	}
	return s.sweep
}

// refuse notes that the proposal of a replica was turned down.
func (s *proposals) refuse(r *partition.Replica, now time.Time) {
	if s.refused == nil {
		s.refused = map[*partition.Replica]struct{}{}
	}
	s.refused[r] = struct{}{}
	s.again = now.Add(refusedPause)
}

const (
	// retryAlter is the pause before an AlterPartition without an answer is sent again.
	retryAlter = 50 * time.Millisecond
	// refusedPause is how long a replica keeps quiet whose proposal was turned down.
	refusedPause = 200 * time.Millisecond
)

// sleep waits for d, or until a replica is due; false when ctx ended.
func (m *Manager) sleep(ctx context.Context, d time.Duration) bool {
	fired, stop := clock.After(m.o.Clock, max(d, 0))
	defer stop()
	select {
	case <-ctx.Done():
		return false
	case <-m.isrs.wake:
	case <-fired:
	}
	return true
}

// due collects those of the replicas that are due.
func (m *Manager) due() (out []proposed) {
	set, all := m.isrs.take()
	brokers := m.brokers()
	ask := func(r *partition.Replica) {
		if _, wait := m.proposals.refused[r]; wait {
			return
		}
		if p := r.Propose(m.o.Clock.Now(), m.o.MaxLag, brokers); p != nil {
			out = append(out, proposed{r, p})
		}
	}
	if all {
		m.Each(ask)
	} else {
		for r := range set {
			ask(r)
		}
	}
	slices.SortFunc(out, func(a, b proposed) int { // the same in every run
		return cmp.Or(cmp.Compare(a.replica.Topic(), b.replica.Topic()), cmp.Compare(a.replica.ID(), b.replica.ID()))
	})
	return out
}

// brokers is what the image that was applied last says of brokers.
func (m *Manager) brokers() isr.Brokers {
	img := m.image.Load()
	return func(id int32) (isr.Broker, bool) {
		b, ok := img.Broker(id)
		if !ok {
			return isr.Broker{}, false
		}
		return isr.Broker{Epoch: b.Epoch, Fenced: b.Fenced, ShuttingDown: b.InControlledShutdown}, true
	}
}

// alter sends the open proposals. Without an answer they stay open.
func (m *Manager) alter(ctx context.Context, list []proposed) {
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	if r, err := m.o.Controller.Do(ctx, m.alterRequest(list)); err == nil {
		m.altered(list, r.(*kmsg.AlterPartitionResponse))
	}
}

// altered takes the outcome of the open proposals; those stay open that the
// controller has not decided about.
func (m *Manager) altered(list []proposed, res *kmsg.AlterPartitionResponse) {
	if res.ErrorCode != 0 { // this broker's registration is older than the controller's image, or the controller than this broker's
		m.o.Logger.Warn("the controller refused an ISR change, sending it again", "partitions", len(list), "err", kerr.ErrorForCode(res.ErrorCode))
		return
	}
	m.proposals.open = nil
	rows := map[key]*kmsg.AlterPartitionResponseTopicPartition{}
	for i := range res.Topics {
		t := &res.Topics[i]
		for j := range t.Partitions {
			rows[key{uuid.UUID(t.TopidID), t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	for _, p := range list {
		if row := rows[key{p.replica.TopicID(), p.replica.ID()}]; row == nil || !m.settle(p, row) {
			m.proposals.open = append(m.proposals.open, p)
		}
	}
}

// settle gives a replica the outcome of its proposal; false when there is none yet
// (Partition.handleAlterPartitionError). Only a member that may not be in the ISR
// proves that the proposal was not and will not be committed. Any other refusal may
// answer a second copy of a proposal whose first was committed: until the image
// tells, its members count.
func (m *Manager) settle(p proposed, row *kmsg.AlterPartitionResponseTopicPartition) (settled bool) {
	if row.ErrorCode != 0 {
		m.stats.Refused.Add(1)
		m.o.Logger.Info("ISR change refused", "partition", p.replica.String(), "err", kerr.ErrorForCode(row.ErrorCode))
	}
	switch row.ErrorCode {
	case 0:
		m.tell(p, row)
		p.replica.Committed(p.proposal, isr.Assignment{
			ISR: row.ISR, LeaderEpoch: row.LeaderEpoch, PartitionEpoch: row.PartitionEpoch, Recovering: row.LeaderRecoveryState == 1,
		}, m.o.Clock.Now())
	case kerr.IneligibleReplica.Code, kerr.OperationNotAttempted.Code:
		p.replica.Refused(p.proposal)
		m.proposals.refuse(p.replica, m.o.Clock.Now())
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.FencedLeaderEpoch.Code, kerr.InvalidUpdateVersion.Code,
		kerr.InvalidRequest.Code, kerr.NewLeaderElected.Code:
	default:
		return false
	}
	return true
}

// tell counts a change of an ISR and says why it came about.
func (m *Manager) tell(p proposed, row *kmsg.AlterPartitionResponseTopicPartition) {
	var why []string
	shrinks, expands := int64(0), int64(0)
	for _, c := range p.proposal.Changes {
		if c.Joins {
			expands = 1
			why = append(why, fmt.Sprintf("%d has caught up at %d", c.ID, c.LogEnd))
		} else if shrinks = 1; c.LogEnd < 0 {
			why = append(why, fmt.Sprintf("%d has not fetched from this leader, for %s", c.ID, c.Lacking.Round(time.Millisecond)))
		} else {
			why = append(why, fmt.Sprintf("%d stands at %d and has lacked records for %s", c.ID, c.LogEnd, c.Lacking.Round(time.Millisecond)))
		}
	}
	m.stats.Shrinks.Add(shrinks)
	m.stats.Expands.Add(expands)
	m.o.Logger.Info("ISR changed", "partition", p.replica.String(), "isr", row.ISR, "because", strings.Join(why, "; "), "log end", p.replica.Log().LogEnd())
}

func (m *Manager) alterRequest(list []proposed) *kmsg.AlterPartitionRequest {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version = req.MaxVersion()
	req.BrokerID, req.BrokerEpoch = m.o.NodeID, m.o.Epoch()
	var rows wire.ByTopic[kmsg.AlterPartitionRequestTopic]
	for _, p := range list {
		t := rows.Of(p.replica.TopicID(), kmsg.NewAlterPartitionRequestTopic)
		t.TopicID = p.replica.TopicID()
		rp := kmsg.NewAlterPartitionRequestTopicPartition()
		rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = p.replica.ID(), p.proposal.LeaderEpoch, p.proposal.PartitionEpoch
		for _, member := range p.proposal.ISR {
			e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			e.BrokerID, e.BrokerEpoch = member.ID, member.Epoch
			rp.NewEpochISR = append(rp.NewEpochISR, e)
		}
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = rows.Topics
	return req
}
