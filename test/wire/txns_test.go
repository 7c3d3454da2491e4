package wire

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/records"
)

func txnCases() []testCase {
	return []testCase{
		{name: "txn-init", run: txnInit},
		{name: "txn-add-partitions", run: txnAddPartitions},
		{name: "txn-end", run: txnEnd},
		{name: "txn-end-v2", run: txnEndV2},
		{name: "txn-produce-verified", run: txnProduceVerified},
		{name: "txn-offsets", run: txnOffsets},
		{name: "txn-describe-list", run: txnDescribeList},
		{name: "txn-markers", run: txnMarkers},
		{name: "txn-state-records", run: txnStateRecords},
		{name: "K21-last-stable-offset", run: lastStableOffset},
		{
			name: "K22-offsets-of-an-abort", run: offsetsOfAnAbort,
			differs: "aborted transactions are told up to the last stable offset, not only as far as the index says that the data may reach: consumers pass over those",
		},
		{name: "K23-timeouts-and-epochs", run: timeoutsAndEpochs},
		{name: "K24-unstable-offsets", run: unstableOffsets},
	}
}

// producerOf is a transactional producer's identity.
type producerOf struct {
	txn   string
	id    int64
	epoch int16
}

func initTxn(txn string, timeoutMs int32, id int64, epoch int16) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &txn, timeoutMs, id, epoch
	return req
}

// transactional is a producer whose transactional id no other case uses, once it
// has a coordinator.
func (s *session) transactional(suffix string) *producerOf {
	s.Helper()
	p := &producerOf{txn: s.topic(suffix)}
	s.eventually(p.txn+" has a coordinator", func() bool {
		return s.ask(findCoordinator(1, p.txn), 4).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode == 0
	})
	s.again(p)
	s.again(p) // there is an epoch before this one
	return p
}

// again begins anew with a transactional id.
func (s *session) again(p *producerOf) {
	s.Helper()
	s.eventually(p.txn+" has a producer id", func() bool {
		r := s.ask(initTxn(p.txn, 60_000, -1, -1), 4).(*kmsg.InitProducerIDResponse)
		p.id, p.epoch = r.ProducerID, r.ProducerEpoch
		return r.ErrorCode == 0
	})
}

// bumped is the same producer with another epoch.
func (p *producerOf) bumped(by int16) *producerOf { return &producerOf{p.txn, p.id, p.epoch + by} }

// batch is a batch of a transaction.
func (p *producerOf) batch(seq int32, recs ...rec) []byte {
	o := batch.NewOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = p.id, p.epoch, seq, true
	return batchOf(o, recs...)
}

func (p *producerOf) produce(parts ...part) *kmsg.ProduceRequest {
	req := produce(-1, parts...)
	req.TransactionID = &p.txn
	return req
}

// add names partitions as "topic", 0, 1, "topic", …
func (p *producerOf) add(parts ...any) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.txn, p.id, p.epoch
	one := kmsg.NewAddPartitionsToTxnRequestTransaction()
	one.TransactionalID, one.ProducerID, one.ProducerEpoch = p.txn, p.id, p.epoch
	for _, x := range parts {
		switch x := x.(type) {
		case string:
			t, u := kmsg.NewAddPartitionsToTxnRequestTopic(), kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			t.Topic, u.Topic = x, x
			req.Topics, one.Topics = append(req.Topics, t), append(one.Topics, u)
		case int:
			t, u := &req.Topics[len(req.Topics)-1], &one.Topics[len(one.Topics)-1]
			t.Partitions, u.Partitions = append(t.Partitions, int32(x)), append(u.Partitions, int32(x))
		}
	}
	req.Transactions = append(req.Transactions, one)
	return req
}

// verifyOnly asks instead of adding; v4 and up.
func verifyOnly(req *kmsg.AddPartitionsToTxnRequest) *kmsg.AddPartitionsToTxnRequest {
	for i := range req.Transactions {
		req.Transactions[i].VerifyOnly = true
	}
	return req
}

func (p *producerOf) end(commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.txn, p.id, p.epoch, commit
	return req
}

func (p *producerOf) addOffsets(group string) *kmsg.AddOffsetsToTxnRequest {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.txn, p.id, p.epoch, group
	return req
}

func (p *producerOf) commitOffset(group, topic string, n int32, offset int64) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = p.txn, p.id, p.epoch, group, -1
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic = topic
	q := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	q.Partition, q.Offset, q.LeaderEpoch, q.Metadata = n, offset, -1, ptr("")
	t.Partitions = append(t.Partitions, q)
	req.Topics = append(req.Topics, t)
	return req
}

func describeTxns(ids ...string) *kmsg.DescribeTransactionsRequest {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	return req
}

// awaitTxn waits until a transactional id is in a state.
func (s *session) awaitTxn(p *producerOf, state string) {
	s.Helper()
	s.eventually(p.txn+" is "+state, func() bool {
		return s.ask(describeTxns(p.txn), 0).(*kmsg.DescribeTransactionsResponse).TransactionStates[0].State == state
	})
}

func readCommitted(parts ...part) *kmsg.FetchRequest {
	req := fetch(0, 1, parts...)
	req.IsolationLevel = 1
	return req
}

func listCommitted(topic string, n int32, ts int64) *kmsg.ListOffsetsRequest {
	req := listOffsets(topic, n, ts)
	req.IsolationLevel = 1
	return req
}

func txnInit(s *session) {
	p := s.transactional("a")
	s.note("first: epoch %d", p.epoch)
	for v := int16(0); v <= 5; v++ {
		s.do("a new producer", initTxn(p.txn, 60_000, -1, -1), v)
	}
	p.epoch += 6
	for v := int16(3); v <= 5; v++ {
		s.do("the same goes on", initTxn(p.txn, 60_000, p.id, p.epoch), v)
		s.do("a repeat", initTxn(p.txn, 60_000, p.id, p.epoch), v)
		s.do("one that is fenced", initTxn(p.txn, 60_000, p.id, p.epoch-1), v)
		s.do("another producer id", initTxn(p.txn, 60_000, p.id+100_000, p.epoch), v)
		p.epoch++
	}
	s.do("an id that nobody knows", initTxn(s.topic("b"), 60_000, 55, 7), 4)
	s.do("no timeout", initTxn(p.txn, 0, -1, -1), 4)
	s.do("a negative one", initTxn(p.txn, -1, -1, -1), 4)
	s.do("the longest", initTxn(p.txn, 900_000, -1, -1), 4)
	s.do("longer", initTxn(p.txn, 900_001, -1, -1), 4)
	s.do("empty id", initTxn("", 60_000, -1, -1), 4)
	s.do("id without epoch", initTxn(p.txn, 60_000, p.id, -1), 4)
}

func txnAddPartitions(s *session) {
	t := s.topic("t")
	s.create(t, 3)
	p := s.transactional("a")
	for v := int16(0); v <= 5; v++ {
		s.do("two partitions", p.add(t, 0, 1), v)
		s.do("an old epoch", p.bumped(-1).add(t, 0), v)
		s.do("a later epoch", p.bumped(1).add(t, 0), v)
		s.do("another producer id", (&producerOf{p.txn, p.id + 1000, p.epoch}).add(t, 0), v)
		s.do("an id that nobody knows", (&producerOf{"nobody", p.id, p.epoch}).add(t, 0), v)
		s.do("no such topic beside a good one", p.add(t, 0, "no-such-topic", 0), v)
		s.do("no such partition", p.add(t, 0, 9), v)
		s.do("empty id", (&producerOf{"", p.id, p.epoch}).add(t, 0), v)
	}
	for v := int16(4); v <= 5; v++ {
		s.do("verify", verifyOnly(p.add(t, 1, 2)), v)
		s.do("verify an old epoch", verifyOnly(p.bumped(-1).add(t, 1)), v)
		s.do("verify another id", verifyOnly((&producerOf{p.txn, p.id + 1000, p.epoch}).add(t, 1)), v)
		s.do("verify nobody", verifyOnly((&producerOf{"nobody", p.id, p.epoch}).add(t, 1)), v)
		s.do("verify an unknown topic", verifyOnly(p.add("no-such-topic", 1)), v)
	}
	s.do("no partitions", p.add(), 3)
	q := s.transactional("b")
	two := p.add(t, 0)
	two.Transactions = append(two.Transactions, q.add(t, 2).Transactions...)
	res := s.ask(two, 4).(*kmsg.AddPartitionsToTxnResponse)
	slices.SortFunc(res.Transactions, func(a, b kmsg.AddPartitionsToTxnResponseTransaction) int {
		return int(a.TransactionalID[len(a.TransactionalID)-1]) - int(b.TransactionalID[len(b.TransactionalID)-1])
	})
	s.show("two transactions", res)
	s.do("offsets", p.addOffsets(s.group("g")), 3)
	for v := int16(0); v <= 4; v++ {
		s.do("offsets of an old epoch", p.bumped(-1).addOffsets("g"), v)
		s.do("offsets of nobody", (&producerOf{"nobody", p.id, p.epoch}).addOffsets("g"), v)
		s.do("offsets of an empty id", (&producerOf{"", p.id, p.epoch}).addOffsets("g"), v)
	}
	s.do("all of it", describeTxns(p.txn), 0)
	s.ask(p.end(false), 3)
	s.ask(q.end(false), 3)
}

func txnEnd(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	p := s.transactional("a")
	for v := int16(0); v <= 4; v++ {
		s.again(p)
		s.do("nothing to commit", p.end(true), v)
		s.do("nothing to abort", p.end(false), v)
		s.ask(p.add(t, 0, 1), 3)
		s.do("an old epoch", p.bumped(-1).end(true), v)
		s.do("a later epoch", p.bumped(1).end(true), v)
		s.do("another producer id", (&producerOf{p.txn, p.id + 1000, p.epoch}).end(true), v)
		s.do("an id that nobody knows", (&producerOf{"nobody", p.id, p.epoch}).end(true), v)
		s.do("empty id", (&producerOf{"", p.id, p.epoch}).end(true), v)
		s.do("commit", p.end(true), v)
		s.awaitTxn(p, "CompleteCommit")
		s.do("commit again", p.end(true), v)
		s.do("abort what is committed", p.end(false), v)
		s.ask(p.add(t, 0), 3)
		s.do("abort", p.end(false), v)
		s.awaitTxn(p, "CompleteAbort")
		s.do("abort again", p.end(false), v)
		s.do("commit what is aborted", p.end(true), v)
	}
	s.note("log ends %d and %d", s.logEnd(t, 0), s.logEnd(t, 1))
	s.do("the markers", fetch(0, 1, part{topic: t, n: 1}), 12)
}

func txnEndV2(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	p := s.transactional("a")
	s.do("nothing to commit", p.end(true), 5)
	s.do("an old epoch", p.bumped(-1).end(false), 5)
	s.do("a later epoch", p.bumped(1).end(false), 5)
	s.do("an abort of nothing", p.end(false), 5)
	s.awaitTxn(p, "CompleteAbort")
	s.do("the same again", p.end(false), 5)
	s.do("a commit in its place", p.end(true), 5)
	p.epoch++
	for _, commit := range []bool{true, false} {
		s.ask(p.add(t, 0), 5)
		s.do(fmt.Sprintf("end, commit %t", commit), p.end(commit), 5)
		s.awaitTxn(p, map[bool]string{true: "CompleteCommit", false: "CompleteAbort"}[commit])
		s.do("the same again", p.end(commit), 5)
		s.do("the opposite in its place", p.end(!commit), 5)
		s.do("a commit of nothing", p.bumped(1).end(true), 5)
		s.do("one before", p.bumped(-1).end(commit), 5)
		p.epoch++
	}
	s.do("another producer id", (&producerOf{p.txn, p.id + 1000, p.epoch}).end(true), 5)
	s.do("an id that nobody knows", (&producerOf{"nobody", p.id, p.epoch}).end(true), 5)
	s.do("empty id", (&producerOf{"", p.id, p.epoch}).end(true), 5)
	// Fenced by another producer in the middle of a transaction.
	s.ask(p.add(t, 0), 5)
	s.do("another one begins", initTxn(p.txn, 60_000, -1, -1), 5)
	s.awaitTxn(p, "CompleteAbort")
	s.do("the fenced one adds", p.add(t, 0), 3)
	s.do("the fenced one ends", p.end(true), 5)
	s.do("another one begins", initTxn(p.txn, 60_000, -1, -1), 5)
	s.do("the markers", fetch(0, 1, part{topic: t}), 12)
}

// txnProduceVerified: what is not part of the transaction is not appended (KIP-890).
func txnProduceVerified(s *session) {
	t := s.topic("t")
	id := s.create(t, 4)
	p := s.transactional("a")
	for v := int16(3); v <= 11; v++ {
		s.do("not in the transaction", p.produce(part{topic: t, records: p.batch(0, kv("a", "1"))}), v)
	}
	s.ask(p.add(t, 1), 3)
	s.do("one is, one is not", p.produce(part{topic: t, records: p.batch(0, kv("a", "1"))}, part{topic: t, n: 1, records: p.batch(0, kv("a", "1"))}), 9)
	s.do("it goes on", p.produce(part{topic: t, n: 1, records: p.batch(1, kv("a", "2"))}), 9)
	s.do("an old epoch", p.produce(part{topic: t, n: 1, records: p.bumped(-1).batch(0, kv("a", "2"))}), 9)
	s.do("a later epoch", p.produce(part{topic: t, n: 1, records: p.bumped(1).batch(0, kv("a", "2"))}), 9)
	s.do("without a transactional id", produce(-1, part{topic: t, n: 1, records: p.batch(2, kv("a", "3"))}), 9)
	plainOfIt := p.produce(part{topic: t, n: 1, records: sequenced(p.id, p.epoch, 2, kv("a", "3"))})
	s.do("outside of the transaction", plainOfIt, 9)
	s.do("an id that nobody knows", (&producerOf{"nobody", p.id, p.epoch}).produce(part{topic: t, n: 2, records: p.batch(0, kv("a", "1"))}), 11)
	s.do("another producer id", p.produce(part{topic: t, n: 2, records: (&producerOf{p.txn, p.id + 1000, 0}).batch(0, kv("a", "1"))}), 11)
	s.do("a plain batch with a transactional id", p.produce(part{topic: t, n: 3, records: plain(kv("a", "1"))}), 11)
	s.do("v12 adds it", p.produce(part{topic: t, n: 2, records: p.batch(0, kv("b", "1"))}), 12)
	s.do("v13 too", p.produce(part{topic: t, id: id, records: p.batch(0, kv("b", "1"))}), 13)
	s.do("not from the first sequence", p.produce(part{topic: t, n: 3, records: p.batch(5, kv("b", "1"))}), 12)
	s.do("an old epoch", p.bumped(-1).produce(part{topic: t, n: 3, records: p.bumped(-1).batch(0, kv("a", "2"))}), 12)
	s.do("a later epoch", p.bumped(1).produce(part{topic: t, n: 3, records: p.bumped(1).batch(0, kv("a", "2"))}), 12)
	s.do("all of it", describeTxns(p.txn), 0)
	s.do("end", p.end(true), 5)
	s.awaitTxn(p, "CompleteCommit")
	s.do("after the end, with its epoch", p.produce(part{topic: t, n: 2, records: p.batch(1, kv("b", "2"))}), 12)
	p.epoch++
	s.do("the next transaction", p.produce(part{topic: t, n: 2, records: p.batch(0, kv("b", "2"))}), 12)
	s.ask(p.end(false), 5)
	s.awaitTxn(p, "CompleteAbort")
	s.do("what is there", fetch(0, 1, part{topic: t, n: 1}, part{topic: t, n: 2}), 12)
}

func txnOffsets(s *session) {
	t, g := s.topic("t"), s.group("g")
	s.create(t, 2)
	p := s.transactional("a")
	for v := int16(0); v <= 4; v++ {
		s.do("not in the transaction", p.commitOffset(g, t, 0, 7), v)
	}
	s.ask(p.addOffsets(g), 3)
	for v := int16(0); v <= 5; v++ {
		s.do("commit", p.commitOffset(g, t, 0, 10+int64(v)), v)
		s.do("an unknown topic and partition", func() *kmsg.TxnOffsetCommitRequest {
			req := p.commitOffset(g, "no-such-topic", 0, 1)
			more := p.commitOffset(g, t, 9, 1)
			req.Topics = append(req.Topics, more.Topics...)
			return req
		}(), v)
		s.do("an old epoch", p.bumped(-1).commitOffset(g, t, 0, 10), v)
	}
	long := p.commitOffset(g, t, 1, 1)
	long.Topics[0].Partitions[0].Metadata = ptr(string(make([]byte, 5000)))
	s.do("metadata that is too large", long, 3)
	of := p.commitOffset(g, t, 0, 1)
	of.Generation, of.MemberID = 3, "nobody"
	s.do("of a member that is none", of, 3)
	s.do("no group", p.commitOffset("", t, 0, 1), 3)
	none := p.commitOffset(s.topic("other"), t, 0, 1)
	none.Generation, none.MemberID = 1, "m"
	s.do("of a generation of no group", none, 5)
	s.do("the group", offsetsOf(g, spot{topic: t}), 7)
	s.do("end", p.end(true), 3)
	s.awaitTxn(p, "CompleteCommit")
	s.do("the group", offsetsOf(g, spot{topic: t}), 7)
	s.do("v5 adds it", p.commitOffset(g, t, 1, 77), 5)
	s.do("the transaction", describeTxns(p.txn), 0)
	s.do("abort", p.end(false), 5)
	s.awaitTxn(p, "CompleteAbort")
	s.do("the group", offsetsOf(g, spot{topic: t}, spot{topic: t, n: 1}), 7)
}

func listTxns(states []string, ids []int64, longer int64, pattern *string) *kmsg.ListTransactionsRequest {
	req := kmsg.NewPtrListTransactionsRequest()
	req.StateFilters, req.ProducerIDFilters, req.DurationFilterMillis, req.TransactionalIDPattern = states, ids, longer, pattern
	return req
}

// listed shows those of a list that belong to this case.
func (s *session) listed(what string, req *kmsg.ListTransactionsRequest, v int16) {
	s.Helper()
	res := s.ask(req, v).(*kmsg.ListTransactionsResponse)
	res.TransactionStates = slices.DeleteFunc(res.TransactionStates, func(t kmsg.ListTransactionsResponseTransactionState) bool {
		return len(t.TransactionalID) < len(s.name) || t.TransactionalID[:len(s.name)] != s.topic("")[:len(s.name)]
	})
	slices.SortFunc(res.TransactionStates, func(a, b kmsg.ListTransactionsResponseTransactionState) int {
		return int(a.TransactionalID[len(a.TransactionalID)-1]) - int(b.TransactionalID[len(b.TransactionalID)-1])
	})
	s.show(what, res)
}

func txnDescribeList(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	a, b, c := s.transactional("a"), s.transactional("b"), s.transactional("c")
	s.ask(a.add(t, 0, 1), 3)
	s.ask(b.add(t, 0), 3)
	s.ask(b.end(true), 3)
	s.awaitTxn(b, "CompleteCommit")
	s.do("three and an unknown one", describeTxns(a.txn, b.txn, c.txn, "nobody", ""), 0)
	for v := int16(0); v <= 2; v++ {
		s.listed("all", listTxns(nil, nil, -1, nil), v)
		s.listed("some states, one of them unknown", listTxns([]string{"Ongoing", "Empty", "Lost"}, nil, -1, nil), v)
		s.listed("a producer id", listTxns(nil, []int64{b.id, 1 << 40}, -1, nil), v)
	}
	s.listed("open for an hour", listTxns([]string{"Ongoing"}, nil, 3_600_000, nil), 1)
	s.listed("a pattern", listTxns(nil, nil, -1, ptr(s.topic("[ab]"))), 2)
	s.listed("a pattern of a part", listTxns(nil, nil, -1, ptr("list")), 2)
	s.listed("an empty pattern", listTxns(nil, nil, -1, ptr("")), 2)
	s.listed("a pattern that is none", listTxns(nil, nil, -1, ptr("(")), 2)
	s.ask(a.end(false), 3)
}

// txnMarkers: markers as a coordinator, or kafka-transactions abort, sends them.
func txnMarkers(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	p := s.transactional("a")
	marker := func(epoch int16, coordinator int32, commit bool, topic string, ps ...int32) *kmsg.WriteTxnMarkersRequest {
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.Committed = p.id, epoch, coordinator, commit
		mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		mt.Topic, mt.Partitions = topic, ps
		m.Topics = append(m.Topics, mt)
		req.Markers = append(req.Markers, m)
		return req
	}
	s.ask(p.add(t, 0, 1), 3)
	s.do("a batch", p.produce(part{topic: t, records: p.batch(0, kv("a", "1"))}), 9)
	s.do("producers", producersOf(t, 0), 0)
	s.do("an old epoch", marker(p.epoch-1, 0, false, t, 0), 1)
	s.do("abort", marker(p.epoch, 3, false, t, 0), 1)
	s.do("an older coordinator", marker(p.epoch, 2, false, t, 0), 1)
	s.do("the same again", marker(p.epoch, 3, false, t, 0), 1)
	s.do("no such partition", marker(p.epoch, 3, false, t, 9), 1)
	s.do("no such topic", marker(p.epoch, 3, false, "no-such-topic", 0), 1)
	s.do("two partitions", marker(p.epoch, 3, true, t, 1), 2)
	s.do("no markers", kmsg.NewPtrWriteTxnMarkersRequest(), 1)
	v2 := marker(p.epoch, 4, false, t, 0)
	v2.Markers[0].TransactionVersion = 2
	s.do("version 2, nothing open, the same epoch", v2, 2)
	s.do("another batch", p.produce(part{topic: t, records: p.batch(0, kv("a", "1"))}), 9)
	s.do("producers", producersOf(t, 0, 1), 0)
	s.do("what is there", fetch(0, 1, part{topic: t}), 12)
	s.ask(p.end(false), 3)
}

func producersOf(topic string, ps ...int32) *kmsg.DescribeProducersRequest {
	req := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = topic, ps
	req.Topics = append(req.Topics, t)
	return req
}

// lastStableOffset is case K21.
func lastStableOffset(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "0"), kv("a", "1"), kv("a", "2"), kv("a", "3"), kv("a", "4"))}), 9)
	p := s.transactional("a")
	s.ask(p.add(t, 0), 3)
	s.do("open at 5", p.produce(part{topic: t, records: p.batch(0, kv("b", "5"), kv("b", "6"))}), 9)
	s.ask(produce(-1, part{topic: t, records: plain(kv("a", "7"))}), 9)
	look := func() {
		s.do("committed from 0", readCommitted(part{topic: t}), 12)
		s.do("committed from 5", readCommitted(part{topic: t, offset: 5}), 12)
		s.do("committed from 7", readCommitted(part{topic: t, offset: 7}), 12)
		s.do("all from 5", fetch(0, 1, part{topic: t, offset: 5}), 12)
		for _, ts := range []int64{-1, -2, -3, 1000} {
			s.do(fmt.Sprintf("committed offset of %d", ts), listCommitted(t, 0, ts), 7)
		}
		s.do("the end of all", listOffsets(t, 0, -1), 7)
	}
	look()
	s.ask(p.end(false), 3)
	s.awaitTxn(p, "CompleteAbort")
	look()
	for v := int16(4); v <= 13; v += 3 {
		if v < 13 {
			s.do("aborted", readCommitted(part{topic: t}), v)
		}
	}
}

// offsetsOfAnAbort is case K22.
func offsetsOfAnAbort(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	p := s.transactional("a")
	for i := range 3 {
		s.ask(p.add(t, 0), 3)
		s.do("records", p.produce(part{topic: t, records: p.batch(int32(2*i), kv("b", "5"), kv("b", "6"))}), 9)
		s.ask(p.end(i == 1), 3)
		s.awaitTxn(p, map[bool]string{true: "CompleteCommit", false: "CompleteAbort"}[i == 1])
		s.note("log end %d", s.logEnd(t, 0))
	}
	s.do("committed", readCommitted(part{topic: t}), 12)
	s.do("committed from 4", readCommitted(part{topic: t, offset: 4}), 12)
	s.do("producers", producersOf(t, 0), 0)
}

// timeoutsAndEpochs is case K23.
func timeoutsAndEpochs(s *session) {
	t := s.topic("t")
	s.create(t, 1)
	old := s.transactional("a")
	s.do("a timeout above the most", initTxn(old.txn, 1<<30, -1, -1), 5)
	s.ask(old.add(t, 0), 3)
	s.ask(old.produce(part{topic: t, records: old.batch(0, kv("a", "1"))}), 9)
	p := &producerOf{txn: old.txn}
	s.again(p) // aborts what is open
	s.do("the fenced one produces", old.produce(part{topic: t, records: old.batch(1, kv("a", "2"))}), 9)
	for _, v := range []int16{1, 2, 4, 5} {
		s.do("the fenced one commits", old.end(true), v)
	}
	s.ask(p.add(t, 0), 3)
	s.do("the new one produces", p.produce(part{topic: t, records: p.batch(0, kv("a", "3"))}), 9)
	s.do("commit", p.end(true), 3)
	s.awaitTxn(p, "CompleteCommit")
	s.do("commit again", p.end(true), 3)
	s.do("abort", p.end(false), 3)
	s.do("what counts", readCommitted(part{topic: t}), 12)
}

// unstableOffsets is case K24.
func unstableOffsets(s *session) {
	t, g := s.topic("t"), s.group("g")
	s.create(t, 1)
	s.ask(commitSpots(g, spot{topic: t, offset: 3, metadata: ptr("")}), 7)
	p := s.transactional("a")
	stable := func() *kmsg.OffsetFetchRequest {
		req := offsetsOf(g, spot{topic: t})
		req.RequireStable = true
		return req
	}
	for _, commit := range []bool{false, true} {
		s.ask(p.addOffsets(g), 3)
		s.do("pending", p.commitOffset(g, t, 0, 9), 3)
		for _, v := range []int16{7, 8} {
			s.do("stable", stable(), v)
			s.do("not stable", offsetsOf(g, spot{topic: t}), v)
		}
		s.ask(p.end(commit), 3)
		s.eventually("the offset is stable", func() bool {
			return s.ask(stable(), 7).(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0].ErrorCode == 0
		})
		s.awaitTxn(p, map[bool]string{true: "CompleteCommit", false: "CompleteAbort"}[commit])
		s.do(fmt.Sprintf("after commit=%t", commit), stable(), 7)
	}
}

// txnStateRecords reads __transaction_state, record by record.
func txnStateRecords(s *session) {
	t := s.topic("t")
	s.create(t, 2)
	p := s.transactional("a")
	s.again(p)
	s.ask(p.add(t, 1), 3)
	s.ask(p.add(t, 0), 3)
	s.ask(p.end(true), 3)
	s.awaitTxn(p, "CompleteCommit")
	s.ask(p.add(t, 0), 5)
	s.ask(p.end(false), 5)
	s.awaitTxn(p, "CompleteAbort")
	p.epoch++
	s.ask(p.add(t, 0), 5)
	s.ask(initTxn(p.txn, 30_000, -1, -1), 4)
	s.awaitTxn(p, "CompleteAbort")
	s.again(p)
	for n := range int32(50) {
		s.txnRecords(n, p.txn)
	}
}

// txnRecords shows the records of a transactional id in one partition of
// __transaction_state.
func (s *session) txnRecords(n int32, id string) {
	s.Helper()
	const topic = "__transaction_state"
	end := s.logEnd(topic, n)
	buf := new(batch.Buffers)
	for at := int64(0); at < end; {
		r := s.ask(fetch(0, 1, part{topic: topic, n: n, offset: at}), 12).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if r.ErrorCode != 0 || len(r.RecordBatches) == 0 {
			s.Fatalf("cannot read %s-%d at %d: %d", topic, n, at, r.ErrorCode)
		}
		for rest := r.RecordBatches; len(rest) > 0; {
			e, after, err := batch.NextEntry(rest)
			if err != nil {
				break // cut
			}
			rest, at = after, e.LastOffset()+1
			for r, err := range e.Records(buf) {
				if err != nil {
					s.Fatal(err)
				}
				if text := s.txnRecord(&r, id); text != "" {
					b, _ := e.Batch()
					s.note("partition %d: %s producer=%d/%d/%d txn=%t %s headers=%d\n  %s", n, b.Codec(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.IsTransactional(), b.TimestampType(), len(r.Headers), text)
				}
			}
		}
	}
}

func (s *session) txnRecord(r *batch.Record, id string) string {
	s.Helper()
	k, v := records.NewTransactionLogKey(), records.NewTransactionLogValue()
	if err := k.ReadFrom(r.Key[2:], 0); err != nil {
		s.Fatal(err)
	}
	if k.TransactionalID != id {
		return ""
	}
	version := int16(r.Value[0])<<8 | int16(r.Value[1])
	if err := v.ReadFrom(r.Value[2:], version); err != nil {
		s.Fatal(err)
	}
	var parts []string
	for _, t := range v.TransactionPartitions {
		slices.Sort(t.PartitionIDs)
		parts = append(parts, fmt.Sprintf("%s%v", t.Topic, t.PartitionIDs))
	}
	name := func(id int64) string {
		if id < 0 {
			return fmt.Sprint(id)
		}
		return s.names.of("producer", id)
	}
	return fmt.Sprintf("v%d status=%d producer=%s/%d previous=%s next=%s/%d timeout=%d client=%d partitions=%v null=%t began=%t", version, v.TransactionStatus, name(v.ProducerID), v.ProducerEpoch,
		name(v.PreviousProducerID), name(v.NextProducerID), v.NextProducerEpoch, v.TransactionTimeoutMs, v.ClientTransactionVersion, parts, v.TransactionPartitions == nil, v.TransactionStartTimestampMs > 0)
}

// orderAdded is order of AddPartitionsToTxn.
func orderAdded(r *kmsg.AddPartitionsToTxnResponse) {
	for _, t := range r.Topics {
		slices.SortFunc(t.Partitions, func(a, b kmsg.AddPartitionsToTxnResponseTopicPartition) int {
			return cmp.Compare(a.Partition, b.Partition)
		})
	}
	for _, x := range r.Transactions {
		for _, t := range x.Topics {
			slices.SortFunc(t.Partitions, func(a, b kmsg.AddPartitionsToTxnResponseTransactionTopicPartition) int {
				return cmp.Compare(a.Partition, b.Partition)
			})
		}
	}
}
