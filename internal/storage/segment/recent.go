package segment

import (
	"sync"

	"weir/internal/batch"
)

// recent is where the batches stand that were appended last: followers and most consumers read these, and would else have
// each header between an index entry and theirs read from the file. Its lock is held for a few loads and stores only.
type recent struct {
	mu   sync.Mutex
	ring [8]Position // Size 0: none
	next int
}

// add notes a batch that stands at pos. Message sets v0/v1 are not noted: they do not tell their first offset.
func (r *recent) add(e batch.Entry, pos int64) {
	b, ok := e.Batch()
	if !ok {
		return
	}
	r.mu.Lock()
	r.ring[r.next] = Position{Pos: pos, Size: int64(e.Len()), BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset()}
	r.next = (r.next + 1) % len(r.ring)
	r.mu.Unlock()
}

// find returns the batch that holds offset, if it is noted.
func (r *recent) find(offset int64) (Position, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.ring {
		if p.Size > 0 && p.BaseOffset <= offset && offset <= p.LastOffset {
			return p, true
		}
	}
	return Position{}, false
}

// forget empties it, before batches go away.
func (r *recent) forget() {
	r.mu.Lock()
	r.ring = [len(r.ring)]Position{}
	r.mu.Unlock()
}
