package storage

import (
	"weir/internal/storage/segment"
	"weir/internal/vfs"
)

// Read finds the batches from offset from on: those that end below upTo
// (exclusive; HighWatermark, LastStable or LogEnd), at most maxBytes of them,
// all from one segment. The first batch may begin below from. The last one may
// be cut. With minOne the first one is whole even when it is larger than
// maxBytes.
//
// An offset at upTo or above, up to the log end, gives an empty result; outside
// [log start, log end] *OutOfRangeError. A hole that compaction left is passed
// over. Read takes no lock.
func (l *Log) Read(from int64, maxBytes int, upTo int64, minOne bool) (ReadResult, error) {
	return onView(l, func(v *view) (ReadResult, error) { return l.readView(v, from, maxBytes, upTo, minOne) })
}

// onView reads from the latest view. Retention, a truncation or the log's end
// may take away files meanwhile: then there is a newer view, which says how
// things are now.
func onView[T any](l *Log, read func(v *view) (T, error)) (T, error) {
	for {
		v := l.view.Load()
		if v.gone != nil {
			var none T
			return none, v.gone
		}
		r, err := read(v)
		if err == nil || l.view.Load() == v {
			return r, err
		}
	}
}

func (l *Log) readView(v *view, from int64, maxBytes int, upTo int64, minOne bool) (ReadResult, error) {
	if from < v.logStart || from > v.logEnd {
		return ReadResult{}, &OutOfRangeError{Name: l.name, Offset: from, Start: v.logStart, End: v.logEnd}
	}
	empty := ReadResult{FirstBatchOffset: from}
	upTo = min(upTo, v.logEnd)
	if from >= upTo {
		return empty, nil
	}
	for i := v.floor(from); i < len(v.segments); i++ {
		seg := v.segments[i]
		limit, err := l.limit(v, i, upTo)
		if err != nil {
			return ReadResult{}, err
		}
		r, found, err := seg.Read(from, int64(max(maxBytes, 0)), limit, minOne)
		if err != nil {
			return ReadResult{}, l.readError(seg, from, err)
		}
		if !found {
			r.Region.Release()
			continue
		}
		if r.Region.N == 0 {
			r.Region.Release()
			empty.SegmentBase, empty.Position = seg.BaseOffset(), r.First.Pos
			// Either nothing below upTo, or the first batch alone is too large.
			empty.FirstBatchCut = r.First.Pos < limit
			return empty, nil
		}
		return ReadResult{
			Regions: []vfs.Region{r.Region}, FirstBatchOffset: r.First.BaseOffset, Size: r.Region.N,
			FirstBatchCut: r.First.Size > r.Region.N, SegmentBase: seg.BaseOffset(), Position: r.First.Pos,
		}, nil
	}
	return empty, nil
}

// limit is the position in segment i at which reading must end so that nothing
// at upTo or above is read.
func (l *Log) limit(v *view, i int, upTo int64) (int64, error) {
	end := v.end(i)
	if upTo >= v.logEnd || i+1 < len(v.segments) && upTo >= v.segments[i+1].BaseOffset() {
		return end, nil
	}
	p, found, err := v.segments[i].Position(upTo)
	if err != nil {
		return 0, l.readError(v.segments[i], upTo, err)
	}
	if found {
		end = min(end, p.Pos)
	}
	return end, nil
}

func (l *Log) readError(seg *segment.Segment, offset int64, err error) error {
	return l.segmentError(l.Dir(), "read", seg, offset, err)
}
