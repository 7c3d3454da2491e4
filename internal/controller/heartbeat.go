package controller

import (
	"fmt"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// session is what the active controller knows of a broker beyond its registration.
type session struct {
	epoch          int64
	contactMs      int64 // last heartbeat in this epoch; noContact: none, the session is not valid
	metadataOffset int64 // highest metadata offset that the broker says it has applied; -1 unknown
	shutdownOffset int64 // offset of the records that moved its leaders away; -1: it is not shutting down
	fenced         bool
	unfencedMs     int64 // when it was last unfenced by this controller
	returnDueMs    int64 // when it gets its preferred leaderships back; 0: not waiting
	returnWaitMs   int64 // the wait, doubled while the broker keeps dying
	diedMs         int64 // when its session last ended without its consent, in this epoch or an earlier one; 0: never
}

const noContact = math.MinInt64

func (c *Core) register(id int32, epoch int64, fenced bool, nowMs int64) {
	old := c.soft.brokers[id]
	if old != nil && old.epoch == epoch {
		old.fenced = fenced
		return
	}
	n := &session{epoch: epoch, contactMs: noContact, metadataOffset: -1, shutdownOffset: -1, fenced: fenced}
	if !fenced {
		n.contactMs = nowMs
	}
	c.soft.brokers[id] = n
}

// renew begins the session of a new incarnation. How often the earlier ones died is remembered.
func (c *Core) renew(id int32, epoch, nowMs int64) {
	old := c.soft.brokers[id]
	delete(c.soft.brokers, id)
	c.register(id, epoch, true, nowMs)
	if old != nil {
		c.soft.brokers[id].diedMs, c.soft.brokers[id].returnWaitMs = old.diedMs, old.returnWaitMs
	}
}

func (c *Core) validSession(id int32, epoch, nowMs int64) bool {
	b := c.soft.brokers[id]
	return b != nil && b.epoch == epoch && b.contactMs != noContact && nowMs-b.contactMs < c.o.SessionTimeoutMs
}

// lowestActiveOffset is the lowest metadata offset of brokers that are neither fenced nor shutting down.
func (c *Core) lowestActiveOffset() int64 {
	low := int64(math.MaxInt64)
	for _, b := range c.soft.brokers {
		if !b.fenced && b.shutdownOffset < 0 {
			low = min(low, b.metadataOffset)
		}
	}
	return low
}

// brokerState is where a broker stands between heartbeats (Kafka's BrokerControlState).
type brokerState int8

const (
	stateFenced brokerState = iota
	stateUnfenced
	stateShuttingDown
	stateShutdownNow
)

func (s brokerState) fenced() bool { return s == stateFenced || s == stateShutdownNow }

// Heartbeat handles BrokerHeartbeat (KIP-631): it keeps the session alive and moves the broker between fenced, unfenced, in
// controlled shutdown, and allowed to go. A broker is unfenced once it has applied its own registration; it may go once
// every other active broker has applied the records that took its leaderships away. One that wants to be fenced and to shut
// down is gone already: its successor says so, which holds the lock of its directory (package lifecycle).
func (c *Core) Heartbeat(s Step, req *kmsg.BrokerHeartbeatRequest) Result {
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	resp.Version = req.Version
	if err := checkEpoch(s.Image, req.BrokerID, req.BrokerEpoch); err != nil {
		resp.ErrorCode = err.Code
		return Result{Response: resp, Err: err}
	}
	b, _ := s.Image.Broker(req.BrokerID)
	c.register(b.ID, b.Epoch, b.Fenced, s.NowMs)
	ses := c.soft.brokers[b.ID]
	ses.contactMs = s.NowMs
	current := ses.state()
	next := c.nextState(s.Image, b, ses, req)
	recs := c.enter(s.Image, b, current, next)
	var notes []string
	ses.fenced, ses.metadataOffset = next.fenced(), req.CurrentMetadataOffset
	if next.fenced() {
		ses.shutdownOffset = -1
	}
	if next == stateShutdownNow { // it leaves: its next incarnation need not wait for the end of the session
		ses.contactMs = noContact
		if gone(req) && current != stateFenced {
			notes = append(notes, fmt.Sprintf("fencing broker %d at epoch %d because its successor says that its process has ended", b.ID, b.Epoch))
			c.died(ses, s.NowMs)
		}
	}
	if s.Image.Features().Directories() {
		recs = append(recs, c.offlineDirs(s.Image, b, req.OfflineLogDirs)...)
	}
	if s.Image.Features().CordonedDirs() {
		recs = append(recs, cordonedDirs(b, req)...)
	}
	if next == stateShuttingDown && ses.shutdownOffset < 0 {
		ses.shutdownOffset = s.NextOffset + int64(len(recs)) - 1
	}
	if current == stateFenced && next == stateUnfenced {
		c.returned(ses, s.NowMs)
	}
	resp.IsCaughtUp = req.CurrentMetadataOffset >= b.Epoch
	resp.IsFenced, resp.ShouldShutdown = next.fenced(), next == stateShutdownNow
	return Result{Records: recs, Response: resp, Notes: notes}
}

func (s *session) state() brokerState {
	switch {
	case s.shutdownOffset >= 0:
		return stateShuttingDown
	case s.fenced:
		return stateFenced
	}
	return stateUnfenced
}

func (c *Core) nextState(img *image.Image, b *image.Broker, ses *session, req *kmsg.BrokerHeartbeatRequest) brokerState {
	switch current := ses.state(); current {
	case stateFenced:
		switch {
		case req.WantShutdown:
			return stateShutdownNow
		case req.WantFence || req.CurrentMetadataOffset < b.Epoch:
			return stateFenced
		}
		return stateUnfenced
	case stateUnfenced:
		switch {
		case gone(req):
			return stateShutdownNow
		case req.WantFence:
			return stateFenced
		case !req.WantShutdown:
			return stateUnfenced
		case leadsAny(img, b.ID):
			return stateShuttingDown
		}
		return stateShutdownNow
	default: // stateShuttingDown
		if !gone(req) && (leadsAny(img, b.ID) || ses.shutdownOffset > c.lowestActiveOffset()) {
			return stateShuttingDown
		}
		return stateShutdownNow
	}
}

// gone tells whether a heartbeat says that its broker's process has ended. No broker that runs asks for both: who asks to be
// fenced has not been unfenced yet.
func gone(req *kmsg.BrokerHeartbeatRequest) bool { return req.WantFence && req.WantShutdown }

func leadsAny(img *image.Image, broker int32) bool {
	for _, p := range img.PartitionsOn(broker) {
		if p.Leader == broker {
			return true
		}
	}
	return false
}

// enter returns the records of a change of state; a broker still shutting down is asked again for what it leads.
func (c *Core) enter(img *image.Image, b *image.Broker, current, next brokerState) []records.Versioned {
	if current == next {
		return nil
	}
	switch next {
	case stateFenced, stateShutdownNow:
		return c.fence(img, b)
	case stateUnfenced:
		return c.unfence(img, b)
	default:
		return c.startShutdown(img, b)
	}
}

// fence takes the broker out of each ISR and then marks it.
func (c *Core) fence(img *image.Image, b *image.Broker) []records.Versioned {
	recs := c.leaderUpdates(img, brokerChange{remove: b.ID, add: nobody, unclean: nobody}, inISR(img, b.ID))
	r := newBrokerChange(b)
	r.Fenced = 1
	return append(recs, records.Versioned{Record: r})
}

// unfence marks the broker and then lets it lead what nobody leads.
func (c *Core) unfence(img *image.Image, b *image.Broker) []records.Versioned {
	r := newBrokerChange(b)
	r.Fenced = -1
	recs := []records.Versioned{{Record: r}}
	return append(recs, c.leaderUpdates(img, brokerChange{remove: nobody, add: b.ID, unclean: nobody}, ids(img.Leaderless()))...)
}

func (c *Core) startShutdown(img *image.Image, b *image.Broker) []records.Versioned {
	var recs []records.Versioned
	if !b.InControlledShutdown {
		r := newBrokerChange(b)
		r.InControlledShutdown = 1
		recs = append(recs, records.Versioned{Record: r, Version: 1})
	}
	return append(recs, c.leaderUpdates(img, brokerChange{remove: b.ID, add: nobody, unclean: nobody}, inISR(img, b.ID))...)
}

func newBrokerChange(b *image.Broker) *records.BrokerRegistrationChangeRecord {
	r := records.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch = b.ID, b.Epoch
	return &r
}

// offlineDirs moves leaderships off directories that the broker lost, then takes them from its registration (KIP-858).
func (c *Core) offlineDirs(img *image.Image, b *image.Broker, lost [][16]byte) []records.Versioned {
	var gone []uuid.UUID
	for _, d := range lost {
		if slices.Contains(b.Dirs, uuid.UUID(d)) {
			gone = append(gone, d)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	var affected []image.PartitionID
	for id, p := range img.PartitionsOn(b.ID) {
		if slices.Contains(gone, p.Directory(b.ID)) {
			affected = append(affected, id)
		}
	}
	recs := c.leaderUpdates(img, brokerChange{remove: b.ID, add: nobody, unclean: nobody}, affected)
	r := newBrokerChange(b)
	r.LogDirs = directoriesMinus(b.Dirs, gone)
	return append(recs, records.Versioned{Record: r, Version: 2})
}

// cordonedDirs notes which directories take no new replicas, when that changed (KIP-1066). Below v2 the request cannot say.
func cordonedDirs(b *image.Broker, req *kmsg.BrokerHeartbeatRequest) []records.Versioned {
	if req.Version < 2 {
		return nil
	}
	dirs := []uuid.UUID{}
	for _, d := range req.CordonedLogDirs {
		dirs = append(dirs, d)
	}
	slices.SortFunc(dirs, uuid.UUID.Compare)
	if b.CordonedDirs != nil && slices.Equal(dirs, b.CordonedDirs) {
		return nil
	}
	r := newBrokerChange(b)
	r.CordonedLogDirs = dirs
	return []records.Versioned{{Record: r, Version: 3}}
}

// BrokerRef names one registration of a broker.
type BrokerRef struct {
	ID    int32
	Epoch int64
}

// FenceDead fences brokers that are known to be dead (their process is gone: availability promise C3) in one batch, and lets new
// incarnations of them register at once. Refs that are not the registered epoch, or fenced already, are passed over.
func (c *Core) FenceDead(s Step, dead []BrokerRef) Result {
	d := image.NewDelta(s.Image)
	var res Result
	for _, ref := range dead {
		img := d.Image()
		b, ok := img.Broker(ref.ID)
		if !ok || b.Epoch != ref.Epoch {
			continue
		}
		if ses := c.soft.brokers[ref.ID]; ses != nil && ses.epoch == ref.Epoch {
			c.died(ses, s.NowMs)
		}
		if b.Fenced {
			continue
		}
		res.Notes = append(res.Notes, fmt.Sprintf("fencing broker %d at epoch %d because its process has ended", b.ID, b.Epoch))
		res.Records = replay(d, res.Records, c.fence(img, b))
	}
	return res
}

// died notes that a session has ended.
func (c *Core) died(ses *session, nowMs int64) {
	ses.contactMs, ses.fenced, ses.shutdownOffset, ses.returnDueMs = noContact, true, -1, 0
	const soon = 10 * 60 * 1000
	if ses.diedMs != 0 && nowMs-ses.diedMs < soon {
		ses.returnWaitMs *= 2
	} else {
		ses.returnWaitMs = 0
	}
	ses.diedMs = nowMs
}
