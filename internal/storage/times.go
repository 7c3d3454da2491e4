package storage

import (
	"weir/internal/batch"
	"weir/internal/storage/segment"
)

// OffsetForTimestamp finds the first record with a timestamp of at least ts
// (ms); false when there is none. Takes no lock.
func (l *Log) OffsetForTimestamp(ts int64) (TimestampOffset, bool, error) {
	found, err := onView(l, func(v *view) (*TimestampOffset, error) { return l.offsetFor(v, ts) })
	return deref(found), found != nil, err
}

// offsetFor is OffsetForTimestamp in one view; nil when there is none.
func (l *Log) offsetFor(v *view, ts int64) (*TimestampOffset, error) {
	for _, seg := range v.segments {
		largest, err := l.largestTimestamp(seg)
		if err != nil {
			return nil, err
		}
		if largest >= ts {
			return l.findTimestamp(v, seg, ts, v.logStart)
		}
	}
	return nil, nil
}

func deref(t *TimestampOffset) TimestampOffset {
	if t == nil {
		return TimestampOffset{}
	}
	return *t
}

// MaxTimestamp finds the (first) record with the largest timestamp; false when
// no record has one. As in Kafka it may lie below the log start, in a segment
// that DeleteRecords has cut in two. Takes no lock.
func (l *Log) MaxTimestamp() (TimestampOffset, bool, error) {
	found, err := onView(l, l.maxTimestamp)
	return deref(found), found != nil, err
}

// maxTimestamp is MaxTimestamp in one view; nil when there is none.
func (l *Log) maxTimestamp(v *view) (*TimestampOffset, error) {
	var best *segment.Segment
	largest := batch.NoTimestamp
	for _, seg := range v.segments {
		t, err := seg.LargestTimestamp()
		if err != nil {
			return nil, l.readError(seg, seg.BaseOffset(), err)
		}
		if t.Timestamp > largest {
			best, largest = seg, t.Timestamp
		}
	}
	if best == nil {
		return nil, nil
	}
	return l.findTimestamp(v, best, largest, best.BaseOffset())
}

// findTimestamp looks in one segment, from an offset on, as Kafka does; nil when
// nothing is found there.
func (l *Log) findTimestamp(v *view, seg *segment.Segment, ts, from int64) (*TimestampOffset, error) {
	f, found, err := seg.FindTimestamp(ts, from, nil)
	if err != nil {
		return nil, l.readError(seg, seg.BaseOffset(), err)
	}
	if !found || f.Offset >= v.logEnd {
		return nil, nil
	}
	return &TimestampOffset{Timestamp: f.Timestamp, Offset: f.Offset, LeaderEpoch: f.LeaderEpoch}, nil
}

// largestTimestamp is the largest timestamp in a segment or, when its records
// have none, the time of its last change.
func (l *Log) largestTimestamp(seg *segment.Segment) (int64, error) {
	t, err := seg.LargestTimestamp()
	if err == nil && t.Timestamp < 0 {
		t.Timestamp, err = seg.LastModifiedMs()
	}
	if err != nil {
		return 0, l.readError(seg, seg.BaseOffset(), err)
	}
	return t.Timestamp, nil
}

// Special times of OffsetsBefore.
const (
	latestTime   = -1
	earliestTime = -2
)

// OffsetsBefore answers ListOffsets v0: up to limit offsets, the largest
// first, at which segments last changed before ts (ms) start; -1 starts at the
// log end and -2 at the log start.
func (l *Log) OffsetsBefore(ts int64, limit int) ([]int64, error) {
	return onView(l, func(v *view) ([]int64, error) { return l.offsetsBefore(v, ts, limit) })
}

func (l *Log) offsetsBefore(v *view, ts int64, limit int) ([]int64, error) {
	offsets := make([]int64, 0, len(v.segments)+1)
	start := -1
	for i, seg := range v.segments {
		offsets = append(offsets, max(seg.BaseOffset(), v.logStart))
		if ts >= 0 {
			changed, err := seg.LastModifiedMs()
			if err != nil {
				return nil, l.readError(seg, seg.BaseOffset(), err)
			}
			if changed <= ts {
				start = i
			}
		}
	}
	if v.activeEnd > 0 {
		offsets = append(offsets, v.logEnd)
		if l.nowMs() <= ts {
			start = len(offsets) - 1
		}
	}
	switch ts {
	case latestTime:
		start = len(offsets) - 1
	case earliestTime:
		start = 0
	}
	var out []int64
	for i := start; i >= 0 && len(out) < limit; i-- {
		out = append(out, offsets[i])
	}
	return out, nil
}
