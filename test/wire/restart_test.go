package wire

import (
	"fmt"
	"syscall"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// restartCases stop and start the node: they come last.
func restartCases() []testCase {
	return []testCase{{name: "K20-after-restart", run: afterRestart, slow: true}}
}

// restart stops the node in good order and starts it again.
func (s *session) restart() {
	s.Helper()
	s.c.Close()
	if err := s.node.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	if err := s.node.cmd.Wait(); err != nil {
		s.Logf("the stopped node says: %v", err) // Java's exit status of SIGTERM is 143
	}
	if err := s.node.log.Close(); err != nil {
		s.Fatal(err)
	}
	if err := s.node.run(s.node.cmd.Args[0], s.node.cmd.Args[1:]...); err != nil {
		s.Fatal(err)
	}
	s.c = s.dial()
}

// afterRestart: leader epochs have moved, sessions are gone, data and producers
// are as before.
func afterRestart(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	p := s.producerID()
	recent := func(key string) rec { return rec{ts: s.since.UnixMilli(), key: []byte(key)} } // a start forgets producers of long ago
	s.ask(produce(-1, part{topic: t, records: sequenced(p, 0, 0, recent("a"), recent("b"))}), 9)
	sid := s.openSession("a session", 13, part{topic: t, id: id})
	s.restart()
	s.eventually("the topic leads", func() bool { return s.leads(t, 1) })
	s.do("the session is gone", inSession(fetch(0, 1), sid, 1), 13)
	s.do("a duplicate from before", produce(-1, part{topic: t, records: sequenced(p, 0, 0, recent("a"), recent("b"))}), 9)
	s.do("the next batch", produce(-1, part{topic: t, records: sequenced(p, 0, 2, recent("c"))}), 9)
	now := s.ask(metadata(t), 9).(*kmsg.MetadataResponse).Topics[0].Partitions[0].LeaderEpoch
	s.note("the leader epoch has risen: %t", now > 0)
	ask := func(current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = t
		q := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		q.CurrentLeaderEpoch, q.LeaderEpoch = current, epoch
		rt.Partitions = append(rt.Partitions, q)
		req.Topics = append(req.Topics, rt)
		return req
	}
	for v := int16(2); v <= 4; v++ {
		s.do("the epoch of before ends where the next begins", ask(-1, 0), v)
		s.do("an epoch between or the present one", ask(-1, now), v)
		s.do("a stale current epoch", ask(0, 0), v)
		s.do("a future one", ask(now+1, 0), v)
	}
	stale := part{topic: t, id: id, epoch: now - 1}
	for _, v := range []int16{9, 12, 15, 16, 18} {
		s.do("fetch with a stale epoch", fetch(500, 1, stale), v)
	}
	s.do("the reader's log ends where ours does", fetch(0, 1, part{topic: t, id: id, offset: 2, epoch: now, last: ptr[int32](0)}), 12)
	s.do("the reader has records of an epoch that is none", fetch(0, 1, part{topic: t, id: id, offset: 3, epoch: now, last: ptr[int32](0)}), 12)
	s.do("and of one that is still to come", fetch(0, 1, part{topic: t, id: id, offset: 3, epoch: now, last: ptr(now + 1)}), 12)
	for _, ts := range []int64{-1, -2, -3, 500} {
		s.do(fmt.Sprintf("offset for %d", ts), listOffsets(t, 0, ts), 7)
	}
	stalest := listOffsets(t, 0, -1)
	stalest.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
	s.do("offset with a stale epoch", stalest, 7)
	s.note("another producer id than before: %t", s.producerID() != p)
}
