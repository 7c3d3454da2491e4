package storage

import (
	"container/list"
	"sync"

	"weir/internal/storage/segment"
)

// FileLimiter bounds how many files the segments of all logs keep open. A
// segment opens its files when it is used; when that makes too many, the
// segments that opened theirs longest ago close theirs and open them again when
// they are used. Regions in flight keep their file open beyond that.
type FileLimiter struct {
	capacity int

	mu struct {
		sync.Mutex
		// order holds *openSegment, the one that opened last in front.
		order  *list.List
		places map[*segment.Segment]*list.Element
		open   int
	}
}

type openSegment struct {
	seg   *segment.Segment
	files int
}

// NewFileLimiter returns a limiter for capacity open files.
func NewFileLimiter(capacity int) *FileLimiter {
	f := &FileLimiter{capacity: max(capacity, 1)}
	f.mu.order = list.New()
	f.mu.places = map[*segment.Segment]*list.Element{}
	return f
}

// Open is the number of files that the limiter knows to be open.
func (f *FileLimiter) Open() int {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.open
}

// opened is told that s has opened a file. It closes others' files outside the
// limiter's lock.
func (f *FileLimiter) opened(s *segment.Segment) {
	if f == nil {
		return
	}
	for _, victim := range f.admit(s) {
		// The files of a victim were only read or are written through: closing
		// loses nothing, and an error of it shows again at the next use.
		_ = victim.CloseHandles()
	}
}

func (f *FileLimiter) admit(s *segment.Segment) []*segment.Segment {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(s)
	o := &openSegment{seg: s, files: max(s.OpenFiles(), 1)}
	f.mu.places[s] = f.mu.order.PushFront(o)
	f.mu.open += o.files
	var victims []*segment.Segment
	for f.mu.open > f.capacity && f.mu.order.Len() > 1 {
		oldest := f.mu.order.Back().Value.(*openSegment)
		f.dropLocked(oldest.seg)
		victims = append(victims, oldest.seg)
	}
	return victims
}

// closed is told that the files of s are closed.
func (f *FileLimiter) closed(s *segment.Segment) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(s)
}

func (f *FileLimiter) dropLocked(s *segment.Segment) {
	if e, ok := f.mu.places[s]; ok {
		f.mu.open -= e.Value.(*openSegment).files
		f.mu.order.Remove(e)
		delete(f.mu.places, s)
	}
}
