package interop

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// dirtyTopic is a compacted topic of one partition, filled by the dice of its seed, and what a table built from it holds.
type dirtyTopic struct {
	*compaction
	name   string
	seed   uint64
	dice   *rand.Rand
	keys   int
	latest map[string]latest // by key
	filled int               // how many times
}

// latest is the last committed value of a key; "" is a tombstone. Of transactions that overlap the offset decides.
type latest struct {
	value  string
	offset int64
}

// makeTopics creates topics of so many seeds: with and without time for tombstones, with timestamps of both types, and some
// that become compacted only after records without keys.
func (c *compaction) makeTopics(n int) {
	c.Helper()
	for seed := range uint64(n) {
		d := &dirtyTopic{
			compaction: c, name: fmt.Sprintf("compacted-%d", seed), seed: seed, dice: rand.New(rand.NewPCG(seed, 7)), latest: map[string]latest{},
		}
		d.keys = []int{40, 12, 120}[seed%3]
		configs := map[string]string{
			"cleanup.policy": "compact", "segment.ms": "30000", "message.timestamp.after.max.ms": "9000000000",
			"delete.retention.ms": []string{"600000", "0"}[seed%2],
		}
		if d.appendTime() {
			configs["message.timestamp.type"], configs["segment.ms"] = "LogAppendTime", "1" // nearly every batch has a segment of its own
		}
		if d.unkeyed() {
			configs["cleanup.policy"] = "delete"
		}
		c.ensure(d.name, 1, configs)
		if d.unkeyed() {
			d.putUnkeyed()
		}
		c.topics = append(c.topics, d)
	}
}

func (d *dirtyTopic) appendTime() bool { return d.seed%5 == 3 }

func (d *dirtyTopic) unkeyed() bool { return d.seed%4 == 1 }

// putUnkeyed writes records without keys before the topic becomes a compacted one.
func (d *dirtyTopic) putUnkeyed() {
	d.Helper()
	client := d.client()
	defer client.Close()
	for i := range 3 {
		r := d.record("", fmt.Sprintf("no key %d", i))
		r.Key = nil
		s := d.some(2, "between records without keys")
		d.put(client, true, []*kgo.Record{s[0], r, s[1]})
	}
	compact := "compact"
	res, err := d.admin().AlterTopicConfigs(d.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &compact}}, d.name)
	d.must(err, "alter topic configs")
	d.must(res[0].Err, "alter topic configs")
}

func (d *dirtyTopic) record(key, value string) *kgo.Record {
	d.clock = d.clock.Add(time.Millisecond)
	r := &kgo.Record{Topic: d.name, Key: []byte(key), Timestamp: d.clock, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(key)}}}
	if value != "" {
		r.Value = []byte(value)
	}
	return r
}

// some are records of a few keys, a tenth of them tombstones.
func (d *dirtyTopic) some(n int, tag string) []*kgo.Record {
	var out []*kgo.Record
	for i := range n {
		value := fmt.Sprintf("%s %d", tag, i)
		if d.dice.IntN(10) == 0 {
			value = ""
		}
		out = append(out, d.record(fmt.Sprintf("key %d", d.dice.IntN(d.keys)), value))
	}
	return out
}

func (d *dirtyTopic) put(client *kgo.Client, commit bool, records []*kgo.Record) {
	d.Helper()
	for _, r := range client.ProduceSync(d.Context(), records...) {
		d.must(r.Err, "produce")
	}
	if commit {
		d.note(records)
	}
}

func (d *dirtyTopic) note(records []*kgo.Record) {
	for _, r := range records {
		if had, ok := d.latest[string(r.Key)]; r.Key != nil && (!ok || r.Offset > had.offset) {
			d.latest[string(r.Key)] = latest{string(r.Value), r.Offset}
		}
	}
}

// fill writes segments of all kinds of batches. Transactions only where they are served.
func (c *compaction) fill(transactions bool) {
	c.Helper()
	for _, d := range c.topics {
		d.fill(transactions)
	}
}

func (d *dirtyTopic) fill(transactions bool) {
	d.Helper()
	d.filled++
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	plain := d.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer plain.Close()
	for round := range 4 {
		opts := []kgo.Opt{kgo.ProducerBatchCompression(codecs[(round+int(d.seed)+d.filled)%len(codecs)])}
		if d.dice.IntN(3) == 0 {
			opts = append(opts, kgo.DisableIdempotentWrite())
		}
		client := d.client(opts...)
		for i := range 1 + d.dice.IntN(6) {
			d.put(client, true, d.some(1+d.dice.IntN(8), fmt.Sprintf("fill %d round %d batch %d", d.filled, round, i)))
		}
		client.Close()
		if transactions {
			d.transactions(round)
		}
		if d.dice.IntN(4) > 0 { // else the next round goes on in the same segment
			d.roll(plain)
		}
	}
	d.roll(plain)
}

// roll makes the next record begin a segment.
func (d *dirtyTopic) roll(client *kgo.Client) {
	d.Helper()
	d.clock = d.clock.Add(time.Minute)
	d.put(client, true, []*kgo.Record{d.record("rolls", strconv.FormatInt(d.clock.UnixMilli(), 10))})
}

// transactions writes transactions of two producers that overlap, some of them aborted, some over the border of segments.
func (d *dirtyTopic) transactions(round int) {
	d.Helper()
	var clients [2]*kgo.Client
	for i := range clients {
		clients[i] = d.client(kgo.TransactionalID(fmt.Sprintf("tx %d %d", d.seed, (round+i)%3)), kgo.ProducerBatchCompression(kgo.NoCompression()))
		defer clients[i].Close()
	}
	for i := range 1 + d.dice.IntN(2) {
		var open [2][]*kgo.Record
		begun := 1 + d.dice.IntN(2)
		for who, client := range clients[:begun] {
			d.must(client.BeginTransaction(), "begin")
			open[who] = d.inTransaction(client, fmt.Sprintf("transaction %d of %d, fill %d round %d", i, who, d.filled, round))
		}
		if d.dice.IntN(4) == 0 {
			plain := d.client()
			d.roll(plain)
			plain.Close()
		}
		if d.dice.IntN(2) == 0 {
			open[0] = append(open[0], d.inTransaction(clients[0], fmt.Sprintf("more of transaction %d, fill %d round %d", i, d.filled, round))...)
		}
		for _, who := range d.dice.Perm(begun) {
			commit := d.dice.IntN(2) == 0
			d.must(clients[who].EndTransaction(d.Context(), kgo.TransactionEndTry(commit)), "end")
			if commit {
				d.note(open[who])
			}
		}
	}
}

func (d *dirtyTopic) inTransaction(client *kgo.Client, tag string) []*kgo.Record {
	d.Helper()
	records := d.some(1+d.dice.IntN(4), tag)
	d.put(client, false, records)
	return records
}
