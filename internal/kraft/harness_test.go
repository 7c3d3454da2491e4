package kraft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"weir/internal/uuid"
)

// harness steps several cores in one goroutine over disks and a net that it
// plays itself.
type harness struct {
	now   int64
	t     Timeouts
	nodes map[int32]*node
	net   []packet
	cut   map[[2]int32]bool // from, to: nothing passes
	sets  []VoterSet        // voter sets named by control records
	rnd   *rand.Rand
	out   strings.Builder
	// hold keeps flushes back until the test asks for them.
	hold bool
	// slow flushes each node's log about every tenth millisecond instead of at once.
	slow bool

	// what independent checks remember
	leaders   map[int32]int32       // epoch → leader
	votes     map[[2]int32]int32    // epoch, voter → candidate
	committed map[int64]entryOnDisk // offset → record
}

type packet struct {
	from, to int32
	id       uint64 // of a request, or of the request answered
	req      RequestBody
	resp     ResponseBody
}

// entryOnDisk is one record: an epoch, and what it is.
type entryOnDisk struct {
	epoch int32
	kind  byte // 'd'ata, 'l'eader change, 'k'raft version, 'v'oters
	arg   byte
	id    int32
}

const entryBytes = 10

type node struct {
	id      int32
	self    Replica
	core    *Core // nil while down
	state   *QuorumState
	log     []entryOnDisk
	flushed int
	static  VoterSet
	boot    []Control // of 0-0.checkpoint
	pending map[uint64]packet
	ref     uint64
	snap    *Position
	quiet   Role
	full    bool // no room for a change of the voters
}

type dice struct{ r *rand.Rand }

func (d dice) IntN(n int) int { return d.r.IntN(n) }

func newHarness(seed uint64) *harness {
	return &harness{t: Timeouts{ElectionMs: 1000, FetchMs: 2000, RetryMs: 20, MaxWaitMs: 500, MaxFetch: 1 << 20, BackoffMaxMs: 1000},
		nodes: map[int32]*node{}, cut: map[[2]int32]bool{}, rnd: rand.New(rand.NewPCG(seed, 1)),
		leaders: map[int32]int32{}, votes: map[[2]int32]int32{}, committed: map[int64]entryOnDisk{}}
}

func (h *harness) printf(format string, a ...any) { fmt.Fprintf(&h.out, format+"\n", a...) }

func (h *harness) ids() []int32 { return slices.Sorted(maps.Keys(h.nodes)) }

func (h *harness) add(id int32, dir uuid.UUID, static VoterSet, boot []Control) {
	h.nodes[id] = &node{id: id, self: Replica{ID: id, Dir: dir}, static: static, boot: boot}
}

// start makes a core out of what the disk holds.
func (h *harness) start(id int32) {
	n := h.nodes[id]
	n.pending, n.flushed = map[uint64]packet{}, len(n.log)
	o := Outline{End: int64(len(n.log)), Flushed: int64(len(n.log)), Snapshot: n.snap}
	m := Members{Static: n.static, Log: slices.Clone(n.boot)}
	if n.snap != nil {
		o.Start = *n.snap
	}
	last := int32(-1)
	for i, e := range n.log {
		if int64(i) < o.Start.Offset {
			continue
		}
		if e.epoch != last {
			o.Epochs = append(o.Epochs, EpochStart{Epoch: e.epoch, Start: int64(i)})
			last = e.epoch
		}
		m.Log = append(m.Log, h.control(int64(i), e)...)
	}
	n.core = New(Options{Self: n.self, Timeouts: h.t, State: n.state, Log: o, Members: m, Rand: dice{h.rnd}, NowMs: h.now})
	n.quiet = 255
	h.step(n, Tick{})
}

func (h *harness) control(at int64, e entryOnDisk) []Control {
	switch e.kind {
	case 'k':
		v := int16(e.arg)
		return []Control{{Offset: at, Version: &v}}
	case 'v':
		return []Control{{Offset: at, Voters: &h.sets[e.arg]}}
	}
	return nil
}

// step feeds one event and does what the Ready asks for.
func (h *harness) step(n *node, ev Event) {
	hw := n.core.HighWatermark()
	r := n.core.Step(h.now, ev)
	if s := r.QuorumState; s != nil {
		if n.state != nil && s.Epoch < n.state.Epoch {
			panic("epoch goes back")
		}
		stored := *s
		n.state = &stored
		h.checkVote(n.id, stored)
	}
	if role := n.core.Role(); role != n.quiet {
		n.quiet = role
		s := n.core.State()
		h.printf("%d: %s in epoch %d%s", n.id, role, s.Epoch, described(s))
		if role == Leader {
			h.checkLeader(n.id, s.Epoch)
		}
	}
	if r.Truncate >= 0 {
		h.printf("%d: truncates to %d", n.id, r.Truncate)
		n.log = n.log[:r.Truncate]
		n.flushed = min(n.flushed, len(n.log))
	}
	full := n.full && r.Control != nil && r.Control.Within
	if b := r.Control; b != nil && !full {
		h.writeControl(n, b)
	}
	for _, s := range r.Send {
		to := s.To
		if to == None {
			to = h.anybody(n.id)
		}
		h.net = append(h.net, packet{from: n.id, to: to, id: s.ID, req: s.Body})
	}
	for _, rep := range r.Reply {
		h.answer(n, rep)
	}
	h.checkCommitted(n, r.HighWatermark)
	if r.HighWatermark != hw {
		h.printf("%d: high watermark %d", n.id, r.HighWatermark)
	}
	if r.Append != nil {
		h.appendFetched(n, r.Append)
	}
	if r.Install != nil {
		h.install(n, *r.Install)
	}
	if full {
		h.step(n, Unwritten{})
	}
	if !h.hold && !h.slow && n.core.Log().Flushed < n.core.Log().End {
		h.flush(n)
	}
}

func described(s QuorumState) string {
	var b strings.Builder
	if s.Leader != None {
		fmt.Fprintf(&b, ", leader %d", s.Leader)
	}
	if s.Voted.ID != None {
		fmt.Fprintf(&b, ", voted for %d", s.Voted.ID)
	}
	return b.String()
}

func (h *harness) flush(n *node) {
	n.flushed = len(n.log)
	h.step(n, Flushed{Offset: int64(len(n.log))})
}

func (h *harness) writeControl(n *node, b *ControlBatch) {
	if b.Base != int64(len(n.log)) {
		panic(fmt.Sprintf("control batch at %d, log ends at %d", b.Base, len(n.log)))
	}
	if b.Within {
		h.printf("%d: writes %sKRaftVoters %s at %d", n.id, map[bool]string{true: "KRaftVersion and "}[b.Version != nil], b.Voters, b.Base)
	} else {
		h.printf("%d: writes LeaderChange at %d%s", n.id, b.Base, map[bool]string{true: " with KRaftVersion and KRaftVoters"}[b.Voters != nil])
		n.log = append(n.log, entryOnDisk{epoch: b.Epoch, kind: 'l'})
	}
	if b.Version != nil {
		n.log = append(n.log, entryOnDisk{epoch: b.Epoch, kind: 'k', arg: byte(*b.Version)})
	}
	if b.Voters != nil {
		h.sets = append(h.sets, *b.Voters)
		n.log = append(n.log, entryOnDisk{epoch: b.Epoch, kind: 'v', arg: byte(len(h.sets) - 1)})
	}
}

func (h *harness) anybody(not int32) int32 {
	ids := h.ids()
	ids = slices.DeleteFunc(ids, func(id int32) bool { return id == not })
	return ids[h.rnd.IntN(len(ids))]
}

func (h *harness) answer(n *node, rep Reply) {
	p, ok := n.pending[rep.Ref]
	if !ok {
		panic("answer to nothing")
	}
	delete(n.pending, rep.Ref)
	body := rep.Body
	if r, ok := body.(ChangeResponse); ok { // of a tool, which is no node
		h.printf("%d: answers code %d %s", n.id, r.Code, r.Text)
		return
	}
	if f, ok := body.(FetchResponse); ok && f.Read {
		f.Records = encode(n.log[f.Offset:])
		body = f
	}
	h.net = append(h.net, packet{from: n.id, to: p.from, id: p.id, resp: body})
}

func encode(es []entryOnDisk) []byte {
	var b []byte
	for _, e := range es {
		b = binary.BigEndian.AppendUint32(b, uint32(e.epoch))
		b = append(b, e.kind, e.arg)
		b = binary.BigEndian.AppendUint32(b, uint32(e.id))
	}
	return b
}

func (h *harness) appendFetched(n *node, raw []byte) {
	ev := Appended{Base: int64(len(n.log))}
	for len(raw) > 0 {
		e := entryOnDisk{epoch: int32(binary.BigEndian.Uint32(raw)), kind: raw[4], arg: raw[5], id: int32(binary.BigEndian.Uint32(raw[6:]))}
		raw = raw[entryBytes:]
		ev.Control = append(ev.Control, h.control(int64(len(n.log)), e)...)
		n.log = append(n.log, e)
		ev.Entries = append(ev.Entries, Entry{Next: int64(len(n.log)), Epoch: e.epoch})
	}
	h.step(n, ev)
}

// install takes the snapshot from whichever node has it.
func (h *harness) install(n *node, id Position) {
	for _, o := range h.nodes {
		if o.snap != nil && *o.snap == id {
			h.printf("%d: installs snapshot %s", n.id, id)
			n.log = slices.Clone(o.log[:id.Offset])
			n.flushed, n.snap = len(n.log), &id
			h.step(n, Snapshotted{ID: id, Start: &id})
			return
		}
	}
	h.step(n, Installing{Failed: true})
}

func (h *harness) propose(n *node, count int) {
	if n.core == nil || n.core.Role() != Leader {
		h.printf("%d: does not lead", n.id)
		return
	}
	ev := Appended{Base: int64(len(n.log))}
	for range count {
		n.log = append(n.log, entryOnDisk{epoch: n.core.State().Epoch, kind: 'd', id: int32(h.rnd.Uint32())})
		ev.Entries = append(ev.Entries, Entry{Next: int64(len(n.log)), Epoch: n.core.State().Epoch})
	}
	h.step(n, ev)
}

// crash cuts the power: what is not flushed is gone, and so is all on the way.
func (h *harness) crash(id int32) {
	n := h.nodes[id]
	n.core = nil
	n.log = n.log[:n.flushed]
	var rest []packet
	for _, p := range h.net {
		switch {
		case p.from == id && p.resp != nil: // the asker sees the connection close
			rest = append(rest, packet{from: id, to: p.to, id: p.id})
		case p.from != id:
			rest = append(rest, p)
		}
	}
	for _, p := range n.pending {
		rest = append(rest, packet{from: id, to: p.from, id: p.id})
	}
	h.net = rest
}

// deliver hands over the packet at index i; lost ones come back as no answer.
func (h *harness) deliver(i int, drop bool) {
	p := h.net[i]
	h.net = slices.Delete(h.net, i, i+1)
	to := h.nodes[p.to]
	gone := drop || h.cut[[2]int32{p.from, p.to}] || to == nil || to.core == nil
	if p.req == nil {
		if to == nil || to.core == nil {
			return
		}
		if gone {
			p.resp = nil
		}
		h.step(to, Response{From: p.from, ID: p.id, Body: p.resp})
		return
	}
	if gone {
		h.net = append(h.net, packet{from: p.to, to: p.from, id: p.id})
		return
	}
	to.ref++
	to.pending[to.ref] = p
	h.step(to, Request{From: p.from, Ref: to.ref, Body: p.req})
}

// settle delivers everything until the net is empty.
func (h *harness) settle() {
	for n := 0; len(h.net) > 0 && n < 10_000; n++ {
		h.deliver(0, false)
	}
}

// run lets ms pass, each node ticking when it asked for it.
func (h *harness) run(ms int64, loss float64) {
	end := h.now + ms
	for h.now < end {
		for n := len(h.net); n > 0 && len(h.net) > 0; n-- { // one hop takes a millisecond
			i := 0
			if loss > 0 {
				i = h.rnd.IntN(len(h.net))
			}
			h.deliver(i, h.rnd.Float64() < loss)
		}
		h.now++
		for _, id := range h.ids() {
			n := h.nodes[id]
			if n.core != nil && n.core.Deadline() <= h.now {
				h.step(n, Tick{})
			}
			if n.core != nil && h.slow && !h.hold && n.core.Log().Flushed < n.core.Log().End && h.rnd.IntN(10) == 0 {
				h.flush(n)
			}
		}
	}
}

func (h *harness) checkVote(id int32, s QuorumState) {
	if s.Voted.ID == None {
		return
	}
	key := [2]int32{s.Epoch, id}
	if old, ok := h.votes[key]; ok && old != s.Voted.ID {
		panic(fmt.Sprintf("%d votes for %d and %d in epoch %d", id, old, s.Voted.ID, s.Epoch))
	}
	h.votes[key] = s.Voted.ID
}

func (h *harness) checkLeader(id, epoch int32) {
	if old, ok := h.leaders[epoch]; ok && old != id {
		panic(fmt.Sprintf("epoch %d is led by %d and %d", epoch, old, id))
	}
	h.leaders[epoch] = id
}

// checkCommitted: what one node holds committed, all hold the same.
func (h *harness) checkCommitted(n *node, hw int64) {
	for o := int64(len(h.committed)); o < hw; o++ {
		h.committed[o] = n.log[o]
	}
	for o := max(0, hw-30); o < hw; o++ {
		if h.committed[o] != n.log[o] {
			panic(fmt.Sprintf("node %d has committed %v at %d, elsewhere it is %v", n.id, n.log[o], o, h.committed[o]))
		}
	}
}

func (h *harness) status() {
	for _, id := range h.ids() {
		n := h.nodes[id]
		if n.core == nil {
			h.printf("%d: down, log end %d", id, len(n.log))
			continue
		}
		s := n.core.State()
		h.printf("%d: %s in epoch %d%s, log end %d, high watermark %d", id, n.core.Role(), s.Epoch, described(s), len(n.log), n.core.HighWatermark())
	}
}

func (h *harness) sameLogs() bool {
	var want []byte
	for i, id := range h.ids() {
		got := encode(h.nodes[id].log)
		if i == 0 {
			want = got
		} else if !bytes.Equal(want, got) {
			return false
		}
	}
	return true
}
