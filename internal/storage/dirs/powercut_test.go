package dirs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/rng"
	"weir/internal/storage"
	"weir/internal/uuid"
	"weir/internal/vfs/errfs"
)

// known is what the test knows of one partition.
type known struct {
	values  []string
	durable int // how many of them a flush has confirmed
	deleted bool
}

// cutter runs random operations on a node and cuts its power in the middle of some of them.
type cutter struct {
	*node
	dice  *rng.Source
	parts map[checkpoint.TopicPartition]known
	next  int // number of the next record or partition
}

// TestPowerCut: whatever call of the file system the power fails at, the directories load again, what a flush has
// confirmed is there, nothing that was deleted comes back, and no log holds what was never appended.
func TestPowerCut(t *testing.T) {
	seeds := 40
	if s := os.Getenv("WEIR_SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := &cutter{newNode(t), rng.New(uint64(seed)), map[checkpoint.TopicPartition]known{}, 0}
			c.start()
			for range 60 {
				c.step()
			}
		})
	}
}

func (c *cutter) step() {
	before := maps.Clone(c.parts)
	if c.dice.IntN(4) > 0 {
		c.operate()
		return
	}
	cut := c.disk
	at := c.dice.IntN(12)
	c.fs.Set(errfs.Rule{Skip: at, Count: 1, Before: func() { cut = c.disk.Crash(c.dice) }})
	c.operate()
	c.fs.Set()
	if cut == c.disk { // the operation made fewer calls: the power fails after it
		cut, before = c.disk.Crash(c.dice), maps.Clone(c.parts)
	}
	if err := c.set.Crash(); err != nil {
		c.t.Fatal(err)
	}
	c.disk, c.fs = cut, errfs.Wrap(cut)
	c.start()
	c.check(before)
}

func (c *cutter) operate() {
	live := slices.SortedFunc(maps.Keys(c.parts), checkpoint.TopicPartition.Compare)
	live = slices.DeleteFunc(live, func(p checkpoint.TopicPartition) bool { return c.parts[p].deleted })
	kind := c.dice.IntN(9)
	if len(live) == 0 {
		kind = 0
	}
	switch kind {
	case 0:
		p := tp("t", int32(c.next))
		c.next++
		c.create(p, uuid.Zero)
		c.parts[p] = known{}
	case 1, 2, 3:
		p := live[c.dice.IntN(len(live))]
		l, _ := c.set.Log(p)
		k := c.parts[p]
		v := fmt.Sprint("value ", c.next)
		c.next++
		k.values = append(slices.Clone(k.values), v)
		c.append(l, v)
		c.parts[p] = k
	case 4, 5:
		p := live[c.dice.IntN(len(live))]
		l, _ := c.set.Log(p)
		k := c.parts[p]
		if err := l.Flush(-1); err != nil {
			c.t.Fatal(err)
		}
		k.durable = len(k.values)
		l.SetHighWatermark(int64(k.durable))
		c.parts[p] = k
	case 6:
		if err := errors.Join(c.set.WriteRecoveryPoints(), c.set.WriteLogStarts(), c.set.WriteHighWatermarks()); err != nil {
			c.t.Fatal(err)
		}
	case 7:
		p := live[c.dice.IntN(len(live))]
		if err := c.set.Delete(p, false); err != nil {
			c.t.Fatal(err)
		}
		c.parts[p] = known{deleted: true}
		c.clock.Advance(40 * time.Second)
		c.set.Tick(c.clock.Now())
	case 8:
		if err := c.set.Close(int64(c.next)); err != nil {
			c.t.Fatal(err)
		}
		for p, k := range c.parts {
			k.durable = len(k.values)
			c.parts[p] = k
		}
		c.start()
	}
}

// check compares what was loaded after a power cut with what was known when the cut operation began; c.parts is what
// was known when it had ended. Then the test knows what the logs hold.
func (c *cutter) check(before map[checkpoint.TopicPartition]known) {
	c.t.Helper()
	if f := c.set.Failures(); len(f) > 0 || len(c.set.Dirs()) != 2 {
		c.t.Fatalf("after a power cut: %+v, live %v", f, c.set.Dirs())
	}
	for p, after := range c.parts {
		l, _ := c.set.Log(p)
		was, existed := before[p]
		switch {
		case l == nil && existed && !was.deleted && was.durable > 0 && !after.deleted:
			c.t.Fatalf("%s is gone with %d durable records", p, was.durable)
		case l != nil && was.deleted:
			c.t.Fatalf("%s was deleted and is back", p)
		case l == nil:
			delete(c.parts, p)
			if existed && (was.deleted || after.deleted) {
				c.parts[p] = known{deleted: true}
			}
			continue
		}
		values := after.values
		if after.deleted { // the cut came before the deletion
			values = was.values
		}
		got := c.values(l)
		if len(got) < was.durable && !after.deleted || len(got) > len(values) || !slices.Equal(got, values[:len(got)]) {
			c.t.Fatalf("%s holds %q of %q, of which %d were durable", p, got, values, was.durable)
		}
		if hw := l.HighWatermark(); hw > int64(len(got)) {
			c.t.Fatalf("%s: high watermark %d above the end %d", p, hw, len(got))
		}
		c.parts[p] = known{values: got, durable: min(was.durable, len(got))}
	}
}

// values reads a log.
func (c *cutter) values(l *storage.Log) []string {
	c.t.Helper()
	r, err := l.Read(0, 1<<30, l.LogEnd(), true)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Release()
	var data []byte
	for _, g := range r.Regions {
		if data, err = g.AppendTo(data); err != nil {
			c.t.Fatal(err)
		}
	}
	var out []string
	for len(data) > 0 {
		b, rest, err := batch.Next(data)
		if err != nil {
			c.t.Fatal(err)
		}
		for rec, err := range b.Records(nil) {
			if err != nil {
				c.t.Fatal(err)
			}
			out = append(out, string(rec.Value))
		}
		data = rest
	}
	return out
}
