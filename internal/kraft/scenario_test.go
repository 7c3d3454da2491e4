package kraft

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"weir/internal/uuid"
)

// TestScenarios runs testdata/*.txt. The commands:
//
//	cluster voters=(1,2,3) [observers=(4)] [seed=N] [bootstrap]   make nodes (kraft.version 1 with bootstrap) and start them
//	run ms=N [loss=PERCENT]          let time pass; a message takes 1 ms
//	settle                           deliver all messages, no time passes
//	tick ms=N                        only time passes, then each node ticks once
//	deliver [from=N] [to=N] [drop]   the messages between these nodes, once
//	messages                         list what is on the way
//	propose node=N [n=N]             records of the leader
//	hold on|off                      keep flushes back; flush node=N
//	crash node=N / restart node=N    power cut; start again
//	cut from=N to=N / heal           one direction
//	isolate node=N
//	refused node=N by=N              node N learns that by's process is gone
//	resign node=N
//	snapshot node=N at=N             a snapshot there; the log starts at it
//	full node=N on|off               its disk takes no change of the voters
//	wipe node=N                      an empty disk
//	request node=N … / status / log node=N
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var h *harness
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "cluster" {
				h = cluster(t, d)
			} else {
				command(t, h, d)
			}
			out := h.out.String()
			h.out.Reset()
			return out
		})
	})
}

func int32s(d *datadriven.TestData, key string) []int32 {
	var out []int32
	for _, a := range d.CmdArgs {
		if a.Key == key {
			for _, v := range a.Vals {
				n, err := strconv.Atoi(v)
				if err != nil {
					panic(err)
				}
				out = append(out, int32(n))
			}
		}
	}
	return out
}

func dirOf(id int32) uuid.UUID { return uuid.UUID{0: 0xd1, 15: byte(id)} }

func cluster(t *testing.T, d *datadriven.TestData) *harness {
	seed := 1
	d.MaybeScanArgs(t, "seed", &seed)
	h := newHarness(uint64(seed))
	bootstrap := d.HasArg("bootstrap")
	var voters []Voter
	for _, id := range int32s(d, "voters") {
		v := Voter{Replica: Replica{ID: id}}
		if bootstrap {
			v.Dir, v.MaxVersion = dirOf(id), 1
		}
		voters = append(voters, v)
	}
	set, err := NewVoterSet(voters)
	if err != nil {
		t.Fatal(err)
	}
	var static VoterSet
	var boot []Control
	if bootstrap {
		one := int16(1)
		boot = []Control{{Offset: -1, Version: &one}, {Offset: -1, Voters: &set}}
	} else {
		static = set
	}
	for _, id := range slices.Concat(int32s(d, "voters"), int32s(d, "observers")) {
		h.add(id, dirOf(id), static, boot)
	}
	for _, id := range h.ids() {
		h.start(id)
	}
	return h
}

func command(t *testing.T, h *harness, d *datadriven.TestData) {
	var n *node
	var id, from, to, ms, count, by, at, loss int
	if d.HasArg("node") {
		d.ScanArgs(t, "node", &id)
		n = h.nodes[int32(id)]
	}
	d.MaybeScanArgs(t, "from", &from)
	d.MaybeScanArgs(t, "to", &to)
	d.MaybeScanArgs(t, "ms", &ms)
	d.MaybeScanArgs(t, "by", &by)
	d.MaybeScanArgs(t, "at", &at)
	d.MaybeScanArgs(t, "loss", &loss)
	count = 1
	d.MaybeScanArgs(t, "n", &count)
	switch d.Cmd {
	case "run":
		h.run(int64(ms), float64(loss)/100)
	case "settle":
		h.settle()
	case "tick":
		h.now += int64(ms)
		for _, id := range h.ids() {
			if n := h.nodes[id]; n.core != nil {
				h.step(n, Tick{})
			}
		}
	case "deliver":
		batch := len(h.net)
		for i := 0; batch > 0; batch-- {
			if p := h.net[i]; (from == 0 || p.from == int32(from)) && (to == 0 || p.to == int32(to)) {
				h.deliver(i, d.HasArg("drop"))
			} else {
				i++
			}
		}
	case "messages":
		for _, p := range h.net {
			h.printf("%d→%d %s", p.from, p.to, shown(p))
		}
	case "propose":
		h.propose(n, count)
	case "hold":
		h.hold = d.HasArg("on")
	case "flush":
		h.flush(n)
	case "crash":
		h.crash(n.id)
	case "restart":
		h.start(n.id)
	case "full":
		n.full = d.HasArg("on")
	case "wipe":
		n.log, n.state, n.flushed, n.snap = nil, nil, 0, nil
	case "cut":
		h.cut[[2]int32{int32(from), int32(to)}] = true
	case "isolate":
		for _, o := range h.ids() {
			h.cut[[2]int32{n.id, o}], h.cut[[2]int32{o, n.id}] = true, true
		}
	case "heal":
		clear(h.cut)
	case "refused":
		h.step(n, Refused{ID: int32(by)})
	case "resign":
		h.step(n, Resign{})
	case "snapshot":
		id := Position{Offset: int64(at), Epoch: n.log[at-1].epoch}
		n.snap = &id
		h.step(n, Snapshotted{ID: id, Start: &id})
	case "request":
		h.ask(t, n, d)
	case "status":
		h.status()
	case "quorum":
		quorum(h, n)
	case "log":
		printLog(h, n)
	default:
		t.Fatalf("%s: unknown command", d.Cmd)
	}
}

// ask hands one request to a node and prints the answer at once.
func (h *harness) ask(t *testing.T, n *node, d *datadriven.TestData) {
	num := func(key string, def int) int32 {
		d.MaybeScanArgs(t, key, &def)
		return int32(def)
	}
	from := num("from", 9)
	epoch := num("epoch", int(n.core.State().Epoch))
	last := Position{Offset: int64(num("offset", 0)), Epoch: num("last", 0)}
	var body RequestBody
	switch d.CmdArgs[0].Key {
	case "vote", "prevote":
		voter := Replica{ID: num("voter", int(n.id))}
		if d.HasArg("dir") {
			voter.Dir = dirOf(num("dir", 0))
		}
		body = VoteRequest{Epoch: epoch, Candidate: Replica{ID: from}, Voter: voter, Last: last, PreVote: d.CmdArgs[0].Key == "prevote"}
	case "begin":
		body = BeginRequest{Leader: LeaderAndEpoch{ID: from, Epoch: epoch}, Voter: Replica{ID: num("voter", int(n.id))}}
	case "end":
		body = EndRequest{Leader: LeaderAndEpoch{ID: from, Epoch: epoch}, Successors: []Replica{{ID: num("first", 0)}, {ID: num("second", 0)}}}
	case "fetch":
		body = FetchRequest{Replica: Replica{ID: from}, Epoch: epoch, Offset: last.Offset, LastEpoch: last.Epoch, HighWatermark: -1, MaxBytes: 1}
	case "snapshot":
		body = SnapshotRequest{Replica: Replica{ID: from}, Epoch: epoch}
	case "addvoter":
		v := num("voter", 0)
		body = AddVoterRequest{Voter: Voter{Replica: Replica{ID: v, Dir: dirOf(v)}, MaxVersion: int16(num("max", 1))}, AckEarly: d.HasArg("early")}
	case "removevoter":
		v := num("voter", 0)
		body = RemoveVoterRequest{Voter: Replica{ID: v, Dir: dirOf(num("dir", int(v)))}}
	case "updatevoter":
		v := num("voter", 0)
		body = UpdateVoterRequest{Epoch: epoch, Voter: Voter{Replica: Replica{ID: v, Dir: dirOf(v)}, MaxVersion: 1,
			Endpoints: []Endpoint{{Name: "C", Host: "h", Port: uint16(num("port", 1))}}}}
	case "upgrade":
		body = UpgradeRequest{Version: int16(num("version", 1)), ValidateOnly: d.HasArg("validate")}
	default:
		t.Fatalf("request %s", d.CmdArgs[0].Key)
	}
	n.ref++
	n.pending[n.ref] = packet{from: from}
	h.step(n, Request{From: from, Ref: n.ref, Body: body})
	h.net = slices.DeleteFunc(h.net, func(p packet) bool {
		if p.from != n.id || p.to != from || p.resp == nil || p.id != 0 {
			return false
		}
		h.printf("→ %s", shown(p))
		return true
	})
}

func printLog(h *harness, n *node) {
	start := 0
	for i, e := range n.log {
		if i+1 == len(n.log) || n.log[i+1].epoch != e.epoch {
			kinds := ""
			for _, e := range n.log[start : i+1] {
				kinds += string(e.kind)
			}
			h.printf("%d-%d epoch %d %s", start, i, e.epoch, kinds)
			start = i + 1
		}
	}
}

func quorum(h *harness, n *node) {
	q, ok := n.core.Quorum()
	if !ok {
		h.printf("does not lead")
		return
	}
	h.printf("leader %d epoch %d high watermark %d", q.Leader.ID, q.Leader.Epoch, q.HighWatermark)
	for _, v := range q.Voters {
		h.printf("voter %s end %d fetch %s caught up %s", v.Replica, v.LogEnd, ago(h.now, v.LastFetch), ago(h.now, v.LastCaughtUp))
	}
	for _, v := range q.Observers {
		h.printf("observer %s end %d", v.Replica, v.LogEnd)
	}
}

func ago(now, at int64) string {
	if at < 0 {
		return "never"
	}
	return fmt.Sprintf("%d ms ago", now-at)
}

func shown(p packet) string {
	s := fmt.Sprintf("%T%+v", p.req, p.req)
	switch {
	case p.req == nil && p.resp == nil:
		return "(no answer)"
	case p.resp != nil:
		s = fmt.Sprintf("%T%+v", p.resp, p.resp)
		if f, ok := p.resp.(FetchResponse); ok {
			s = fmt.Sprintf("FetchResponse code %d leader %d epoch %d hw %d records %d", f.Code, f.Leader.ID, f.Leader.Epoch, f.HighWatermark, len(f.Records)/entryBytes)
			if f.Diverging != nil {
				s += fmt.Sprintf(" diverging %s", f.Diverging)
			}
			if f.Snapshot != nil {
				s += fmt.Sprintf(" snapshot %s", f.Snapshot)
			}
		}
	}
	return strings.ReplaceAll(s, "kraft.", "")
}
