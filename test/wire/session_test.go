package wire

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func sessionCases() []testCase {
	return []testCase{
		{name: "K14-nothing-new", run: nothingNew},
		{name: "K15-forgotten", run: forgotten},
		{name: "K15-bad-epochs", run: badSessionEpochs},
		{name: "session-errors-inside", run: sessionErrorsInside},
		{name: "session-full-over", run: sessionFullOver},
	}
}

// open starts a session and returns its id.
func (s *session) openSession(what string, v int16, parts ...part) int32 {
	s.Helper()
	return s.do(what, inSession(fetch(0, 1, parts...), 0, 0), v).(*kmsg.FetchResponse).SessionID
}

func nothingNew(s *session) {
	for _, v := range []int16{7, 11, 12, 13, 18} {
		t := s.topic("t" + string(rune('a'+v)))
		id := s.create(t, 3)
		a, b := part{topic: t, id: id, n: 0}, part{topic: t, id: id, n: 1}
		sid := s.openSession("a session of two partitions", v, a, b)
		s.do("an empty fetch", inSession(fetch(0, 1), sid, 1), v)
		c := s.dial()
		req := inSession(fetch(10_000, 1), sid, 2)
		req.SetVersion(v)
		n, err := c.send(req)
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // the request must have begun to wait, which nothing tells
		start := time.Now()
		s.ask(produce(1, part{topic: t, n: 1, records: plain(kv("a", "1"))}), 9)
		res, err := c.receive(req, n)
		if err != nil {
			s.Fatal(err)
		}
		s.show("it waits for a record", res)
		s.note("  at once: %t", time.Since(start) < 2*time.Second)
		s.do("not moved on: the record again", inSession(fetch(0, 1), sid, 3), v)
		b.offset = 1
		s.do("moved on", inSession(fetch(0, 1, b), sid, 4), v)
		s.do("a third partition", inSession(fetch(0, 1, part{topic: t, id: id, n: 2}), sid, 5), v)
		s.do("nothing again", inSession(fetch(0, 1), sid, 6), v)
		s.do("the end of the session", inSession(fetch(0, 1), sid, -1), v)
		s.do("it is gone", inSession(fetch(0, 1), sid, 7), v)
	}
}

func forgotten(s *session) {
	for _, v := range []int16{7, 12, 13} {
		t := s.topic("t" + string(rune('a'+v)))
		id := s.create(t, 2)
		a, b := part{topic: t, id: id, n: 0}, part{topic: t, id: id, n: 1}
		sid := s.openSession("two partitions", v, a, b)
		s.do("one is forgotten", forget(inSession(fetch(0, 1), sid, 1), a), v)
		s.ask(produce(1, part{topic: t, n: 0, records: plain(kv("a", "1"))}, part{topic: t, n: 1, records: plain(kv("b", "2"))}), 9)
		s.do("news of both, told of one", inSession(fetch(0, 1), sid, 2), v)
		s.do("forgotten and named in one request", forget(inSession(fetch(0, 1, a), sid, 3), a), v)
		s.do("after it", inSession(fetch(0, 1), sid, 4), v)
		s.do("one that is not there is forgotten", forget(inSession(fetch(0, 1), sid, 5), part{topic: t, id: id, n: 9}), v)
		s.do("the last one is forgotten", forget(forget(inSession(fetch(0, 1), sid, 6), b), a), v)
		s.do("is the session still there", inSession(fetch(0, 1), sid, 7), v)
	}
}

func badSessionEpochs(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	p := part{topic: t, id: id}
	for _, v := range []int16{7, 12, 13} {
		s.do("an unknown session", inSession(fetch(0, 1, p), 123456, 1), v)
		sid := s.openSession("a session", v, p)
		s.do("an epoch too far", inSession(fetch(0, 1), sid, 2), v)
		s.do("the right one", inSession(fetch(0, 1), sid, 1), v)
		s.do("repeated", inSession(fetch(0, 1), sid, 1), v)
		s.do("epoch -2", inSession(fetch(0, 1), sid, -2), v)
		s.do("a new session ends it", inSession(fetch(0, 1, p), sid, 0), v)
		s.do("it is gone", inSession(fetch(0, 1), sid, 2), v)
		s.do("no session is wanted", inSession(fetch(0, 1, p), 0, -1), v)
		s.do("no session is wanted, of an unknown one", inSession(fetch(0, 1, p), 4321, -1), v)
		s.do("id 0, epoch 1", inSession(fetch(0, 1, p), 0, 1), v)
		s.do("a session of nothing", inSession(fetch(0, 1), 0, 0), v)
	}
	sid := s.openSession("begun with names", 12, p)
	s.do("continued with ids", inSession(fetch(0, 1, p), sid, 1), 13)
	s.do("then with names again", inSession(fetch(0, 1), sid, 1), 12)
	s.do("or the next epoch", inSession(fetch(0, 1), sid, 2), 12)
	sid = s.openSession("begun with ids", 13, p)
	s.do("continued with names", inSession(fetch(0, 1, p), sid, 1), 12)
}

// sessionErrorsInside: partitions with errors in a session.
func sessionErrorsInside(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	for _, v := range []int16{11, 13} {
		sid := s.openSession("an unknown partition and an unknown topic", v, part{topic: t, id: id, n: 5}, part{topic: "later-" + t, id: [16]byte{5}}, part{topic: t, id: id})
		s.do("errors are told again", inSession(fetch(500, 1), sid, 1), v)
		s.do("an offset out of range", inSession(fetch(500, 1, part{topic: t, id: id, offset: 99}), sid, 2), v)
		s.do("and again", inSession(fetch(500, 1), sid, 3), v)
		s.do("back in range", inSession(fetch(0, 1, part{topic: t, id: id, offset: 0}), sid, 4), v)
	}
	// A topic that comes to be while a session names it.
	u := s.topic("later")
	sid := s.openSession("a topic that is not there yet", 11, part{topic: u})
	s.create(u, 1)
	s.do("now it is", inSession(fetch(0, 1), sid, 1), 11)
}

// sessionFullOver: a session whose answer is full goes on with what did not fit.
func sessionFullOver(s *session) {
	t := s.topic("t")
	id := s.create(t, 3)
	var parts []part
	for p := range int32(3) {
		s.ask(produce(1, part{topic: t, n: p, records: plain(rec{ts: 1000, value: make([]byte, 3000)})}), 9)
		parts = append(parts, part{topic: t, id: id, n: p})
	}
	req := inSession(fetch(0, 1, parts...), 0, 0)
	req.MaxBytes = 4000
	first := s.ask(req, 13).(*kmsg.FetchResponse)
	got := map[int32]bool{}
	take := func(res *kmsg.FetchResponse) {
		for _, t := range res.Topics {
			for _, p := range t.Partitions {
				if len(p.RecordBatches) >= 3000 {
					got[p.Partition] = true
				}
			}
		}
	}
	take(first)
	for e := int32(1); e < 6; e++ {
		var move []part
		for p := range got {
			move = append(move, part{topic: t, id: id, n: p, offset: 1})
		}
		req := inSession(fetch(0, 1, move...), first.SessionID, e)
		req.MaxBytes = 4000
		take(s.ask(req, 13).(*kmsg.FetchResponse))
	}
	s.note("every partition had its turn: %d", len(got))
}
