package epoch

import (
	"slices"
	"sync"
)

// Undefined values of an answer.
const (
	NoEpoch  int32 = -1
	NoOffset int64 = -1
)

// Entry says that a leader epoch starts at an offset.
type Entry struct {
	Epoch       int32
	StartOffset int64
}

// Cache is the epochs of one log, safe for concurrent use: its lock is held for
// memory work only and nothing is locked under it.
type Cache struct {
	mu struct {
		sync.RWMutex
		// Invariant: epochs and start offsets both rise strictly.
		entries []Entry
		// version counts changes; saved is the one last written to the file.
		version, saved uint64
	}
}

// New returns a cache with these entries, which the file held. Entries that
// break the order are dropped as assigning them would.
func New(entries []Entry) *Cache {
	c := &Cache{}
	for _, e := range entries {
		c.Assign(e.Epoch, e.StartOffset)
	}
	c.mu.saved = c.mu.version
	return c
}

// Assign records that epoch starts at start and reports whether that was news.
// As in Kafka: an epoch equal to the last one is not moved; a lower epoch, or a
// start at or below known ones, removes what it contradicts (a leader was
// unclean).
func (c *Cache) Assign(epoch int32, start int64) bool {
	if epoch < 0 || start < 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.mu.entries
	if n := len(e); n > 0 {
		last := e[n-1]
		if last.Epoch == epoch && start >= last.StartOffset {
			return false
		}
		for len(e) > 0 && (e[len(e)-1].Epoch >= epoch || e[len(e)-1].StartOffset >= start) {
			e = e[:len(e)-1]
		}
	}
	c.mu.entries = append(slices.Clip(e), Entry{epoch, start})
	c.mu.version++
	return true
}

// Latest returns the last epoch; false when there is none.
func (c *Cache) Latest() (Entry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n := len(c.mu.entries); n > 0 {
		return c.mu.entries[n-1], true
	}
	return Entry{NoEpoch, NoOffset}, false
}

// At returns the epoch in which the record at offset was written.
func (c *Cache) At(offset int64) (int32, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	i, found := slices.BinarySearchFunc(c.mu.entries, offset, byStart)
	if found {
		return c.mu.entries[i].Epoch, true
	}
	if i == 0 {
		return NoEpoch, false
	}
	return c.mu.entries[i-1].Epoch, true
}

// EndOffsetFor returns the largest epoch at or below the asked one and the
// offset at which it ended (the start of the next, or logEnd for the last one).
// Both are undefined when the log knows nothing at or above the asked epoch.
func (c *Cache) EndOffsetFor(epoch int32, logEnd int64) (int32, int64) {
	if epoch == NoEpoch {
		return NoEpoch, NoOffset
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.mu.entries
	if n := len(e); n > 0 && e[n-1].Epoch == epoch {
		return epoch, logEnd
	}
	higher := slices.IndexFunc(e, func(x Entry) bool { return x.Epoch > epoch })
	switch {
	case higher < 0:
		return NoEpoch, NoOffset
	case higher == 0:
		// The asked epoch is older than all that is left: it ended where the
		// first known one starts.
		return epoch, e[0].StartOffset
	}
	return e[higher-1].Epoch, e[higher].StartOffset
}

// TruncateFromEnd forgets epochs that start at or after end, because the log
// was cut there.
func (c *Cache) TruncateFromEnd(end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.mu.entries
	n := len(e)
	for n > 0 && e[n-1].StartOffset >= end {
		n--
	}
	if n < len(e) {
		c.mu.entries = slices.Clip(e[:n])
		c.mu.version++
	}
}

// TruncateFromStart forgets epochs that ended at or before start; the one in
// which start lies now starts there.
func (c *Cache) TruncateFromStart(start int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.mu.entries
	n := 0
	for n < len(e) && e[n].StartOffset <= start {
		n++
	}
	if n == 0 || n == 1 && e[0].StartOffset == start {
		return
	}
	kept := append([]Entry{{e[n-1].Epoch, start}}, e[n:]...)
	c.mu.entries = kept
	c.mu.version++
}

// Clear forgets everything.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.entries) > 0 {
		c.mu.entries = nil
		c.mu.version++
	}
}

// Touch makes the entries unsaved, for a file that is damaged or missing.
func (c *Cache) Touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.version++
}

// Entries returns a copy, in order.
func (c *Cache) Entries() []Entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.mu.entries)
}

// Unsaved returns what the file should hold when the log is durable up to end,
// and a version for Saved; false when the file holds it already. Epochs that
// start after end are left out: the file must not be ahead of the data. (One
// that starts at end is kept, as Kafka does for a new leader that has written
// nothing yet.)
func (c *Cache) Unsaved(end int64) (entries []Entry, version uint64, needed bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.mu.version == c.mu.saved {
		return nil, 0, false
	}
	n := len(c.mu.entries)
	for n > 0 && c.mu.entries[n-1].StartOffset > end {
		n--
	}
	version = c.mu.version
	if n < len(c.mu.entries) {
		version = 0 // what was left out is still to be saved
	}
	return slices.Clone(c.mu.entries[:n]), version, true
}

// Saved tells that the entries of this version are durable in the file.
func (c *Cache) Saved(version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version > c.mu.saved {
		c.mu.saved = version
	}
}

func byStart(e Entry, offset int64) int {
	switch {
	case e.StartOffset < offset:
		return -1
	case e.StartOffset > offset:
		return 1
	}
	return 0
}
