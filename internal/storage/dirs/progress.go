package dirs

import (
	"sync/atomic"
	"time"

	"weir/internal/storage"
)

// progressEvery is the pause between lines about the progress of loading.
const progressEvery = 5 * time.Second

// progress is how far the loading of one directory has come.
type progress struct {
	started time.Time
	logs    atomic.Int64 // opened, or given up
	bytes   atomic.Int64 // of segments that have been recovered
	total   int64        // bytes that are to be recovered; set before the first log is opened
	told    atomic.Int64 // when the last line was written, ns after started
}

// measure finds out how much recovery has to read. What cannot be read now costs the estimate, and fails later.
func (l *loading) measure() {
	for _, f := range l.found {
		if n, err := storage.RecoverySize(l.set.o.FS, f.path, l.recovery[f.p]); err == nil {
			l.total += n
		}
	}
}

// count notes one more log done and says so every few seconds.
func (l *loading) count() {
	l.logs.Add(1)
	if l.due() {
		l.set.log.Info("still loading logs", l.state()...)
	}
}

// recovered is told of each segment that recovery begins or has ended.
func (l *loading) recovered(p storage.Progress) {
	l.bytes.Add(p.Read)
	if l.due() {
		l.set.log.Info("still recovering", append([]any{"log", p.Dir, "segments left", p.Remaining, "segment", p.Segment, "offset", p.Offset}, l.state()...)...)
	}
}

// state is how far it has come, for a log line: logs, and when some are recovered their bytes and how long it still takes.
func (l *loading) state() []any {
	out := []any{"dir", l.dir.Path, "done", l.logs.Load(), "of", len(l.found)}
	if l.total == 0 {
		return out
	}
	done := min(l.bytes.Load(), l.total)
	return append(out, "bytes", done, "of bytes", l.total, "eta", eta(l.set.o.Clock.Now().Sub(l.started), done, l.total))
}

// eta is how long what is left takes at the speed so far.
func eta(took time.Duration, done, total int64) string {
	if done == 0 {
		return "unknown"
	}
	return time.Duration(float64(took) * float64(total-done) / float64(done)).Round(time.Second).String()
}

// due is true for one caller in each progressEvery.
func (l *loading) due() bool {
	now := int64(l.set.o.Clock.Now().Sub(l.started))
	last := l.told.Load()
	return now-last >= int64(progressEvery) && l.told.CompareAndSwap(last, now)
}
