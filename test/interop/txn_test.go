package interop

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"weir/internal/batch"
	"weir/test/interop/normal"
	"weir/test/testnode"
)

// TestTransactionTools is TestTools for transactions, which three more commands open and end:
//
//	begin ID topic=T        a producer with a transactional id opens a transaction with one record in partition 0
//	end ID commit|abort
//	hang T                  a transaction that no coordinator knows of, in partition 0
func TestTransactionTools(t *testing.T) {
	for _, system := range systems() {
		t.Run(string(system), func(t *testing.T) {
			testnode.Oracle(t)
			n := testnode.New(t, testnode.Options{System: system})
			n.Start(t)
			s, ps := &stage{nodes: []*testnode.Node{n}, in: members{}, names: normal.Names{}}, producers{}
			s.name("", n)
			datadriven.RunTest(t, "testdata/tools-txn", func(t *testing.T, d *datadriven.TestData) string {
				switch d.Cmd {
				case "begin":
					ps.begin(t, n, d)
				case "end":
					ps.end(t, d)
				case "hang":
					hang(t, n, d)
				default:
					return s.run(t, d)
				}
				return ""
			})
		})
	}
}

// producers are those with a transaction that scenarios leave open while tools run.
type producers map[string]*kgo.Client

// begin opens a transaction with one record in partition 0.
func (ps producers) begin(t *testing.T, n *testnode.Node, d *datadriven.TestData) {
	t.Helper()
	id := d.CmdArgs[0].Key
	var topic string
	d.ScanArgs(t, "topic", &topic)
	c := ps[id]
	if c == nil {
		c = n.Client(t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(time.Minute))
		ps[id] = c
	}
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("of " + id)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// end commits or aborts it.
func (ps producers) end(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	how := kgo.TryAbort
	if d.HasArg("commit") {
		how = kgo.TryCommit
	}
	if err := ps[d.CmdArgs[0].Key].EndTransaction(t.Context(), how); err != nil {
		t.Fatal(err)
	}
}

// hang leaves a transaction in a partition that no coordinator knows of, as brokers did before KIP-890. The node must not
// verify transactions.
func hang(t *testing.T, n *testnode.Node, d *datadriven.TestData) {
	t.Helper()
	topic := d.CmdArgs[0].Key
	o := batch.NewOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = 77_000, 3, 0, true
	b := batch.NewBuilder(o)
	b.Append(time.Now().Add(-time.Hour).UnixMilli(), nil, []byte("hangs"), nil)
	req := kmsg.NewPtrProduceRequest()
	id := "nobody"
	req.TransactionID, req.Acks, req.TimeoutMillis = &id, -1, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = b.Build()
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	c := n.Client(t, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxVersions(kversion.V3_8_0()))
	ctx, cancel := context.WithTimeout(t.Context(), testnode.Patience)
	defer cancel()
	testnode.Until(t, testnode.Patience, "hang", func() error {
		res, err := c.Broker(int(n.ID)).Request(ctx, req)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(res.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
	})
}
