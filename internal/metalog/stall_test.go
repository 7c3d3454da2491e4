package metalog

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"weir/internal/kraft"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
)

// Which write of a new leader finds the disk full.
var fullAt = map[string]errfs.Rule{
	"epoch and vote":      {Op: errfs.Write, Path: "quorum-state.tmp", Err: syscall.ENOSPC},
	"the epoch's records": {Op: errfs.Write, Path: "*.log", Err: syscall.ENOSPC},
}

// TestOneVoterWaitsForRoom: a quorum of one on a full disk leads when there is room.
func TestOneVoterWaitsForRoom(t *testing.T) {
	for what, rule := range fullAt {
		disk := errfs.Wrap(newDisk(t), rule)
		n := open(t, disk, nil)
		for range 5 {
			n.poll()
			n.clock.Advance(700 * time.Millisecond)
		}
		if n.Leader().ID != kraft.None || n.LogEnd() > 0 || slices.ContainsFunc(n.leaders, func(l kraft.LeaderAndEpoch) bool { return l.ID == 1 }) {
			t.Errorf("%s: leads without: %+v", what, n.leaders)
		}
		if _, ok := n.Quorum(); ok {
			t.Errorf("%s: describes its quorum", what)
		}
		if _, err := n.Append(n.Leader().Epoch, topics("early"), true); err == nil {
			t.Errorf("%s: appends", what)
		}
		answered := false
		n.Request(2, kraft.VoteRequest{Epoch: 9, Candidate: kraft.Replica{ID: 2}, Voter: kraft.Replica{ID: 1}}, func(b kraft.ResponseBody, _ []vfs.Region) { answered = b != nil })
		if answered {
			t.Errorf("%s: answers a vote", what)
		}
		disk.Set()
		n.clock.Advance(spaceInterval)
		n.poll()
		epoch := n.Leader().Epoch
		if n.Leader().ID != 1 {
			t.Fatalf("%s: does not lead with room: %+v", what, n.leaders)
		}
		n.append(epoch, "late")
		if n.poll(); !slices.Equal(n.names, []string{"late"}) {
			t.Errorf("%s: %v", what, n.names)
		}
	}
}

// TestQuorumGoesOnWithoutTheFullDisk: the one whose disk is full does not lead, the
// others do, and it follows when it has room.
func TestQuorumGoesOnWithoutTheFullDisk(t *testing.T) {
	for what, rule := range fullAt {
		q := newQuorum(t, 31)
		lead := q.leader()
		q.run(500)
		var full *member
		for id, m := range q.nodes { // of the two others the one that would be elected first
			if m != lead && (full == nil || id < full.o.Self.ID) {
				full = m
			}
		}
		q.crash(full.o.Self.ID)
		disk := errfs.Wrap(full.disk)
		q.startOn(full.o.Self.ID, disk)
		q.run(3000)
		disk.Set(rule)
		lead = q.leader()
		if lead == full {
			t.Fatal("pick another seed: it leads already")
		}
		lead.Resign(lead.Leader().Epoch)
		q.run(6000)
		next := q.leader()
		if next == full {
			t.Fatalf("%s: it leads on a full disk", what)
		}
		next.append(next.Leader().Epoch, "a", "b")
		q.run(1500)
		if !slices.Equal(next.names, []string{"a", "b"}) {
			t.Fatalf("%s: the others commit %v", what, next.names)
		}
		disk.Set()
		q.run(6000)
		if !slices.Equal(full.names, []string{"a", "b"}) {
			t.Errorf("%s: with room it has %v", what, full.names)
		}
	}
}

// TestLeaderHandsOnWithoutRoom: a leader whose disk becomes full lets another one lead.
func TestLeaderHandsOnWithoutRoom(t *testing.T) {
	q := newQuorum(t, 31)
	id := q.leader().o.Self.ID
	q.crash(id)
	disk := errfs.Wrap(q.nodes[id].disk)
	q.startOn(id, disk)
	q.run(3000)
	full, other := q.nodes[id], q.leader()
	third := 6 - id - other.o.Self.ID
	q.crash(third) // so that it is the only successor
	other.Resign(other.Leader().Epoch)
	q.run(6000)
	if q.leader() != full {
		t.Fatal("pick another seed: it does not lead again")
	}
	q.start(third)
	q.run(1500)
	disk.Set(fullAt["the epoch's records"])
	if _, err := full.Append(full.Leader().Epoch, topics("lost"), true); !noRoom(err) {
		t.Fatalf("append: %v", err)
	}
	q.run(6000)
	next := q.leader()
	if next == full {
		t.Fatal("it leads on a full disk")
	}
	next.append(next.Leader().Epoch, "a")
	disk.Set()
	q.run(6000)
	if !slices.Equal(full.names, []string{"a"}) {
		t.Errorf("with room it has %v", full.names)
	}
}

// TestNoRoomForAChangeOfVoters: it is refused, and the epoch goes on.
func TestNoRoomForAChangeOfVoters(t *testing.T) {
	disk := errfs.Wrap(newDisk(t))
	self := kraft.Voter{Replica: kraft.Replica{ID: 1, Dir: uuid.UUID{0: 7, 15: 1}}, MaxVersion: 1, Endpoints: []kraft.Endpoint{{Name: "C", Host: "h", Port: 1}}}
	set, err := kraft.NewVoterSet([]kraft.Voter{self})
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteVoters(disk, "meta", set, 0); err != nil {
		t.Fatal(err)
	}
	n := open(t, disk, func(o *Options) { o.Voters = nil })
	n.poll()
	change := func() kraft.Code {
		code := kraft.Code(-1)
		moved := self
		moved.Endpoints = []kraft.Endpoint{{Name: "C", Host: "h", Port: 2}}
		n.Request(1, kraft.UpdateVoterRequest{Epoch: n.Leader().Epoch, Voter: moved}, func(b kraft.ResponseBody, _ []vfs.Region) { code = b.(kraft.ChangeResponse).Code })
		n.poll()
		return code
	}
	end := n.LogEnd()
	disk.Set(fullAt["the epoch's records"])
	if code := change(); code != kraft.RequestTimedOut || n.LogEnd() != end || n.Leader().ID != 1 {
		t.Errorf("on a full disk: code %d, log end %d, was %d, leader %+v", code, n.LogEnd(), end, n.Leader())
	}
	disk.Set()
	if code := change(); code != kraft.OK || n.LogEnd() != end+1 {
		t.Errorf("with room: code %d, log end %d, was %d", code, n.LogEnd(), end)
	}
}
