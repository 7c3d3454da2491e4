package cleaner

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/checkpoint"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/storage"
	"weir/internal/storage/producer"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

const testDir = "/data/t-0"

var (
	start = time.UnixMilli(1_700_000_000_000)
	part  = checkpoint.TopicPartition{Topic: "t"}
)

func topicConfig() *config.Topic {
	return &config.Topic{
		SegmentBytes: 1 << 20, SegmentMs: 7 * 24 * 3600_000, RetentionMs: -1, RetentionBytes: -1,
		IndexIntervalBytes: 256, SegmentIndexBytes: 1 << 20, FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64,
		CleanupCompact: true, MaxMessageBytes: 1 << 20, FileDeleteDelayMs: 60_000,
		DeleteRetentionMs: 10_000, MaxCompactionLagMs: math.MaxInt64, MinCleanableDirtyRatio: 0,
	}
}

// env is one compacted log, its checkpoints, and a cleaner.
type env struct {
	t       testing.TB
	disk    *memfs.FS
	fs      vfs.FS
	clock   *clock.Manual
	cfg     *config.Topic
	log     *storage.Log
	cleaner *Cleaner
	conf    Config
	lines   strings.Builder // what the cleaner logged

	cleaned int64
	known   bool
	point   int64 // recovery point on disk
	failed  error
}

func newEnv(t testing.TB, change func(*config.Topic)) *env {
	e := &env{t: t, disk: memfs.New(), clock: clock.NewManual(start), cfg: topicConfig()}
	e.fs = e.disk
	e.disk.SetNow(e.clock.Now)
	if err := e.disk.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := e.disk.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(e.cfg)
	}
	e.conf = Config{Threads: 1, DedupeBytes: 1 << 20, LoadFactor: 0.9, IOBufferBytes: 4096, Backoff: time.Second}
	e.open(false)
	return e
}

func (e *env) open(clean bool) {
	e.t.Helper()
	if err := e.tryOpen(clean); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) tryOpen(clean bool) error {
	l, err := storage.Open(storage.Options{
		FS: e.fs, Dir: testDir, Topic: "t", Config: e.cfg, RecoveryPoint: e.point, HadCleanShutdown: clean, Clock: e.clock, Cleaned: e.cleaned,
		Lowered: func(p int64) error {
			e.point = min(e.point, p)
			if e.known {
				e.cleaned = min(e.cleaned, p)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	e.log = l
	e.cleaner = New(Options{
		Clock: e.clock, Logger: slog.New(slog.NewTextHandler(&e.lines, nil)), Config: func() Config { return e.conf }, Checkpoints: e,
		Each:   func(visit func(checkpoint.TopicPartition, *storage.Log)) { visit(part, e.log) },
		Failed: func(_ checkpoint.TopicPartition, _ *storage.Log, err error) { e.failed = err },
	})
	return nil
}

func (e *env) Cleaned(checkpoint.TopicPartition) (int64, bool) { return e.cleaned, e.known }

func (e *env) SetCleaned(_ checkpoint.TopicPartition, _ *storage.Log, offset int64) error {
	e.cleaned, e.known = offset, true
	return nil
}

func (e *env) SaveRecoveryPoint(_ checkpoint.TopicPartition, offset int64) error {
	if e.log.RecoveryPoint() < offset {
		return fmt.Errorf("the recovery point %d is below %d", e.log.RecoveryPoint(), offset)
	}
	e.point = max(e.point, e.log.RecoveryPoint())
	return nil
}

// kv is a record; value "" is a tombstone, "empty" an empty value, key "" no key.
type kv struct{ key, value string }

// spec is a batch.
type spec struct {
	recs   []kv
	codec  batch.Codec
	id     int64 // producer id + 1, 0 is none
	epoch  int16
	seq    int32
	txn    bool
	append bool // LogAppendTime
}

func build(s spec, ts int64) []byte {
	o := batch.NewOptions()
	o.Codec, o.Transactional = s.codec, s.txn
	if s.id > 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = s.id-1, s.epoch, s.seq
	}
	b := batch.NewBuilder(o)
	for _, r := range s.recs {
		var k, v []byte
		if r.key != "" {
			k = []byte(r.key)
		}
		if r.value == "empty" {
			v = []byte{}
		} else if r.value != "" {
			v = []byte(r.value)
		}
		b.Append(ts, k, v, []batch.Header{{Key: []byte("h"), Value: nil}})
	}
	out := b.Build()
	if s.append {
		out.SetMaxTimestamp(batch.LogAppendTime, ts)
	}
	return out
}

func (e *env) produce(s spec) storage.Appended {
	e.t.Helper()
	a, err := e.log.Append(build(s, e.clock.Now().UnixMilli()), storage.Append{Assign: true, LeaderEpoch: 3, Origin: producer.OriginReplication, TxnVersion: -1})
	if err != nil {
		e.t.Fatal(err)
	}
	return a
}

func (e *env) puts(kvs ...string) {
	e.t.Helper()
	for _, x := range kvs {
		k, v, _ := strings.Cut(x, "=")
		e.produce(spec{recs: []kv{{k, v}}})
	}
}

func (e *env) marker(id int64, epoch int16, abort bool) storage.Appended {
	e.t.Helper()
	b := batch.NewBuilder(batch.Options{ProducerID: id - 1, ProducerEpoch: epoch, BaseSequence: batch.NoSequence, Transactional: true, Control: true, Level: batch.LevelDefault})
	kind := byte(markerCommit)
	if abort {
		kind = markerAbort
	}
	b.Append(e.clock.Now().UnixMilli(), []byte{0, 0, 0, kind}, []byte{0, 0, 0, 0, 0, 1}, nil)
	a, err := e.log.Append(b.Build(), storage.Append{Assign: true, LeaderEpoch: 3, Origin: producer.OriginReplication, TxnVersion: -1})
	if err != nil {
		e.t.Fatal(err)
	}
	return a
}

// roll ends the active segment and makes everything clean-able.
func (e *env) roll() {
	e.t.Helper()
	e.log.SetHighWatermark(e.log.LogEnd())
	if err := e.log.Roll(); err != nil {
		e.t.Fatal(err)
	}
	if err := e.log.Tick(e.clock.Now()); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) clean() {
	e.t.Helper()
	if !e.cleaner.Step(context.Background()) {
		e.t.Fatalf("nothing was cleaned: %v %v\n%s", e.failed, e.cleaner.Uncleanable(), e.lines.String())
	}
}

// dump is the log as text: offset:key=value in [] of a batch, with flags.
func (e *env) dump() string {
	e.t.Helper()
	s, err := dump(e.log)
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

func entries(l *storage.Log, visit func(batch.Entry) error) error {
	for _, s := range l.Segments() {
		for b, err := range s.Batches(0, s.Size()) {
			if err != nil {
				return err
			}
			if !b.CheckCRC() {
				return fmt.Errorf("CRC of the batch up to %d is wrong", b.LastOffset())
			}
			if err := visit(b.Entry); err != nil {
				return err
			}
		}
	}
	return nil
}

func dump(l *storage.Log) (string, error) {
	var out strings.Builder
	err := entries(l, func(e batch.Entry) error {
		var flags []string
		if b, ok := e.Batch(); ok {
			if b.IsControl() {
				flags = append(flags, "control")
			}
			if b.HasDeleteHorizon() {
				flags = append(flags, fmt.Sprintf("horizon+%d", b.BaseTimestamp()-start.UnixMilli()))
			}
			if b.Codec() != batch.None {
				flags = append(flags, b.Codec().String())
			}
			fmt.Fprintf(&out, "%d-%d", b.BaseOffset(), b.LastOffset())
		} else {
			fmt.Fprintf(&out, "v%d@%d", e.Magic(), e.LastOffset())
		}
		if len(flags) > 0 {
			fmt.Fprintf(&out, "(%s)", strings.Join(flags, ","))
		}
		out.WriteString("[")
		n := 0
		for r, err := range e.Records(nil) {
			if err != nil {
				return err
			}
			if n++; n > 1 {
				out.WriteString(" ")
			}
			v := string(r.Value)
			if r.Value == nil {
				v = "null"
			}
			if b, ok := e.Batch(); ok && b.IsControl() {
				v = map[byte]string{markerAbort: "abort", markerCommit: "commit"}[r.Key[3]]
				fmt.Fprintf(&out, "%d:%s", r.Offset, v)
				continue
			}
			fmt.Fprintf(&out, "%d:%s=%s", r.Offset, r.Key, v)
		}
		out.WriteString("] ")
		return nil
	})
	return strings.TrimSpace(out.String()), err
}

func (e *env) expect(want string) {
	e.t.Helper()
	if got := e.dump(); got != want {
		e.t.Errorf("log:\n %s\nwant:\n %s", got, want)
	}
}
