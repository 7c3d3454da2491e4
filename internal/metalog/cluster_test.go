package metalog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/clock"
	"weir/internal/kraft"
	"weir/internal/rng"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

// quorum is three nodes in one goroutine, on disks that can lose power.
type quorum struct {
	t     *testing.T
	clock *clock.Manual
	nodes map[int32]*member
	dice  *rng.Source
	queue []func()
	cut   map[int32]bool // isolated
}

type member struct {
	*testNode
	disk *memfs.FS
	down bool
}

// wire is one node's Transport.
type wire struct {
	q    *quorum
	self int32
}

func (w wire) Send(s kraft.Send) {
	to := s.To
	if to == kraft.None {
		to = int32(1 + w.q.dice.IntN(3))
	}
	w.q.queue = append(w.q.queue, func() { w.q.pass(w.self, to, s) })
}

func (q *quorum) pass(from, to int32, s kraft.Send) {
	back := func(body kraft.ResponseBody) {
		q.queue = append(q.queue, func() {
			if q.cut[from] || q.cut[to] {
				body = nil
			}
			if n := q.nodes[from]; !n.down {
				n.Response(kraft.Response{From: to, ID: s.ID, Body: body})
			}
		})
	}
	n := q.nodes[to]
	if from == to || n.down || q.cut[from] || q.cut[to] {
		back(nil)
		return
	}
	n.Request(from, s.Body, func(body kraft.ResponseBody, regions []vfs.Region) {
		if f, ok := body.(kraft.FetchResponse); ok {
			for _, r := range regions {
				raw, err := r.AppendTo(f.Records)
				if err != nil {
					q.t.Error(err)
				}
				f.Records = raw
				r.Release()
			}
			body = f
		}
		back(body)
	})
}

func newQuorum(t *testing.T, seed uint64) *quorum {
	q := &quorum{t: t, clock: clock.NewManual(time.UnixMilli(1_800_000_000_000)), nodes: map[int32]*member{}, dice: rng.New(seed), cut: map[int32]bool{}}
	for id := int32(1); id <= 3; id++ {
		q.nodes[id] = &member{disk: newDisk(t)}
		q.start(id)
	}
	return q
}

func (q *quorum) start(id int32) { q.startOn(id, q.nodes[id].disk) }

// startOn starts a node on its disk, which may be wrapped.
func (q *quorum) startOn(id int32, disk vfs.FS) {
	q.t.Helper()
	m := q.nodes[id]
	o := options(disk, q.clock)
	o.Self = kraft.Replica{ID: id, Dir: uuid.UUID{0: 9, 15: byte(id)}}
	o.Voters = []kraft.Voter{{Replica: kraft.Replica{ID: 1}}, {Replica: kraft.Replica{ID: 2}}, {Replica: kraft.Replica{ID: 3}}}
	o.Rand, o.Transport = q.dice.Split(), wire{q, id}
	o.Limits.SegmentBytes, o.Limits.RetentionBytes = 4096, 1
	o.Timeouts.MaxFetch = 700
	l, err := Open(o)
	if err != nil {
		q.t.Fatal(err)
	}
	m.testNode, m.down = &testNode{Log: l, listener: &listener{log: l}, t: q.t, clock: q.clock}, false
	l.Register(m.listener)
}

func (q *quorum) crash(id int32) {
	m := q.nodes[id]
	m.disk, m.down = m.disk.Crash(q.dice), true
}

// run lets time pass in steps of a millisecond.
func (q *quorum) run(ms int) {
	q.t.Helper()
	for range ms {
		calls := q.queue
		q.queue = nil
		for _, f := range calls {
			f()
		}
		for id := int32(1); id <= 3; id++ {
			if m := q.nodes[id]; !m.down {
				m.poll()
			}
		}
		q.clock.Advance(time.Millisecond)
	}
}

func (q *quorum) leader() *member {
	q.t.Helper()
	for range 20 {
		for _, id := range []int32{1, 2, 3} {
			m := q.nodes[id]
			if n := len(m.leaders); !m.down && !q.cut[id] && n > 0 && m.leaders[n-1].ID == id && m.Leader().ID == id {
				return m
			}
		}
		q.run(500)
	}
	q.t.Fatal("no leader")
	return nil
}

func TestQuorumReplicates(t *testing.T) {
	q := newQuorum(t, 5)
	lead := q.leader()
	var want []string
	add := func(n int) {
		for range n {
			want = append(want, fmt.Sprintf("topic-%03d", len(want)))
			lead.append(lead.Leader().Epoch, want[len(want)-1])
		}
	}
	add(30)
	q.run(1200)
	for id, m := range q.nodes {
		if !slices.Equal(m.names, want) {
			t.Fatalf("node %d has %d records, %d were appended", id, len(m.names), len(want))
		}
	}
	// The leader is cut off with records that nobody has; the others go on; it truncates and gets theirs.
	old := lead
	q.cut[old.o.Self.ID] = true
	for range 3 {
		old.append(old.Leader().Epoch, "lost")
	}
	q.run(4000)
	lead = q.leader()
	add(5)
	q.run(1200)
	clear(q.cut)
	q.run(3000)
	if !slices.Equal(old.names, want) || old.LogEnd() != lead.LogEnd() {
		t.Fatalf("%v", old.names)
	}
	// A follower that was away too long gets the snapshot.
	var away *member
	for id, m := range q.nodes {
		if m != lead {
			away = m
			q.crash(id)
			break
		}
	}
	add(40)
	q.run(1200)
	b := lead.batches[len(lead.batches)-1]
	if err := lead.WriteSnapshot(b.Last, b.Epoch, b.TimestampMs, slices.Values(topics(want...))); err != nil {
		t.Fatal(err)
	}
	add(3)
	q.run(1200)
	b = lead.batches[len(lead.batches)-1]
	if err := lead.WriteSnapshot(b.Last, b.Epoch, b.TimestampMs, slices.Values(topics(want...))); err != nil {
		t.Fatal(err)
	}
	lead.cleanAt = q.clock.Now() // retention now
	q.run(1)
	add(2)
	away.disk = newDisk(t) // and it lost its disk
	q.start(away.o.Self.ID)
	q.run(5000)
	if len(away.loaded) == 0 || !slices.Equal(away.names, want) {
		t.Fatalf("loaded %v, %d of %d records", away.loaded, len(away.names), len(want))
	}
	q.crash(away.o.Self.ID)
	q.start(away.o.Self.ID)
	q.run(5000)
	if !slices.Equal(away.names, want) {
		t.Fatalf("after a restart: %d of %d records", len(away.names), len(want))
	}
}

// TestQuorumPowerCuts: whatever crashes, what was told as committed stays.
func TestQuorumPowerCuts(t *testing.T) {
	q := newQuorum(t, 11)
	var told []string
	count := 0
	for round := range 12 {
		lead := q.leader()
		for range 5 {
			count++
			if lead.Leader().ID == lead.o.Self.ID {
				lead.append(lead.Leader().Epoch, fmt.Sprint("r", count))
			}
			q.run(q.dice.IntN(4))
		}
		for _, m := range q.nodes {
			if len(m.names) > len(told) {
				told = slices.Clone(m.names)
			}
		}
		if round%3 == 2 {
			for id := range q.nodes {
				q.crash(id)
			}
		} else {
			q.crash(int32(1 + q.dice.IntN(3)))
		}
		q.queue = nil
		for id, m := range q.nodes {
			if m.down {
				q.start(id)
			}
		}
		q.run(500)
	}
	q.leader()
	q.run(3000)
	for id, m := range q.nodes {
		if len(m.names) < len(told) || !slices.Equal(m.names[:len(told)], told) {
			t.Fatalf("node %d: %v, told before %v", id, m.names, told)
		}
	}
	t.Logf("%d appended, %d told as committed, epoch %d", count, len(told), q.leader().Leader().Epoch)
}

// TestFollowerFullDisk: a follower without room asks again until there is, and goes on.
func TestFollowerFullDisk(t *testing.T) {
	q := newQuorum(t, 23)
	lead := q.leader()
	q.run(500)
	var full *member
	for id, m := range q.nodes {
		if m != lead && (full == nil || id < full.o.Self.ID) {
			full = m
		}
	}
	full.disk.SetCapacity(1)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("topic-%03d", i))
		lead.append(lead.Leader().Epoch, want[i])
	}
	q.run(300)
	if len(full.names) == len(want) || lead.HighWatermark() != lead.LogEnd() {
		t.Fatalf("%d records on a full disk, high watermark %d of %d", len(full.names), lead.HighWatermark(), lead.LogEnd())
	}
	full.disk.SetCapacity(1 << 30)
	q.run(4000)
	if !slices.Equal(full.names, want) {
		t.Fatalf("%d of %d records", len(full.names), len(want))
	}
}
