package cleaner

import "math"

// piece is one segment.
type piece struct {
	base, size int64
	// Timestamps in ms: the largest, and the first batch's; negative when unknown or not asked for.
	largest, first int64
}

// picture is a log as the cleaner sees it when it looks for work.
type picture struct {
	start, end int64 // log start and end offset
	lastStable int64
	durable    int64   // recovery point: what lies below survives a power cut
	active     int64   // base offset of the active segment
	pieces     []piece // all segments but the active one, in order
	checkpoint int64
	known      bool // there is a checkpoint
}

// rules is a topic's configuration.
type rules struct {
	minLagMs, maxLagMs int64   // min.compaction.lag.ms, max.compaction.lag.ms
	minRatio           float64 // min.cleanable.dirty.ratio
}

// plan is what there is to do for a log.
type plan struct {
	dirty, upper               int64 // the first dirty and the first uncleanable offset; the latter begins a segment
	cleanBytes, cleanableBytes int64
	delayMs                    int64 // by how much a record exceeds max.compaction.lag.ms, 0 when none does
	reset                      bool  // the checkpoint was impossible: dirty is what it should be
}

// ratio is the dirty share of what can be cleaned and was.
func (p plan) ratio() float64 {
	if total := p.cleanBytes + p.cleanableBytes; total > 0 {
		return float64(p.cleanableBytes) / float64(total)
	}
	return 0
}

// due says that the log should be cleaned now.
func (p plan) due(r rules) bool {
	return p.cleanableBytes > 0 && (p.delayMs > 0 || p.ratio() > r.minRatio)
}

// firstDirty is where cleaning begins. A checkpoint outside the log is not believed.
func firstDirty(p picture) (offset int64, reset bool) {
	switch {
	case !p.known:
		return p.start, false
	case p.checkpoint < p.start, p.checkpoint > p.end:
		return p.start, true
	}
	return p.checkpoint, false
}

// decide finds what there is to do for a log, as Kafka's LogCleanerManager does.
func decide(p picture, r rules, nowMs int64) plan {
	var out plan
	out.dirty, out.reset = firstDirty(p)
	upper := min(p.lastStable, p.active, p.durable)
	from := floor(p.pieces, out.dirty)
	oldest := int64(math.MaxInt64)
	for _, s := range p.pieces[from:] {
		if r.minLagMs > 0 && s.largest > nowMs-r.minLagMs {
			upper = min(upper, s.base)
		}
		if s.first > 0 {
			oldest = min(oldest, s.first)
		}
	}
	if until := nowMs - max(r.maxLagMs, 0); oldest < until {
		out.delayMs = until - oldest
	}
	// Segments are cleaned whole: the one that holds the offset is the first that is not.
	upper = max(out.dirty, upper)
	out.upper = p.active
	if i := floor(p.pieces, upper); upper < p.active && i < len(p.pieces) {
		out.upper = p.pieces[i].base
	}
	for i, s := range p.pieces {
		if s.base < out.dirty {
			out.cleanBytes += s.size
		}
		if i >= from && s.base < out.upper && out.dirty < out.upper {
			out.cleanableBytes += s.size
		}
	}
	return out
}

// floor is the index of the piece that holds an offset, or would: the last that begins at or below it, or the first.
func floor(pieces []piece, offset int64) int {
	i := 0
	for i+1 < len(pieces) && pieces[i+1].base <= offset {
		i++
	}
	return i
}

// groups parts the segments into runs of neighbours that fit into one segment each: by bytes, by index bytes, and by the
// distance of their offsets. index gives the index bytes of a piece. upper is the first uncleanable offset.
func groups(pieces []piece, index func(i int) (offsets, times int64, err error), maxSize, maxIndex, upper int64) ([][2]int, error) {
	var out [][2]int
	for i := 0; i < len(pieces); {
		first := i
		size := pieces[i].size
		offsets, times, err := index(i)
		if err != nil {
			return nil, err
		}
		for i++; i < len(pieces); i++ {
			o, t, err := index(i)
			if err != nil {
				return nil, err
			}
			last := upper - 1
			if i+1 < len(pieces) {
				last = pieces[i+1].base - 1
			}
			tooFar := pieces[i].size > 0 && last-pieces[first].base > math.MaxInt32
			if size+pieces[i].size > maxSize || offsets+o > maxIndex || times+t > maxIndex || tooFar {
				break
			}
			size, offsets, times = size+pieces[i].size, offsets+o, times+t
		}
		out = append(out, [2]int{first, i})
	}
	return out, nil
}
