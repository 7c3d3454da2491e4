package dirs

import (
	"weir/internal/checkpoint"
	"weir/internal/storage"
)

// fresh is a log that a power cut may take.
type fresh struct {
	p checkpoint.TopicPartition
	e *entry
}

// Secure makes what Create and Delete have done since the last call survive a power cut, many logs at once. It waits for
// the disk, which neither of them does. What a full disk did not allow is left to the next call.
func (s *Set) Secure() {
	s.mu.Lock()
	made := map[*Dir][]fresh{}
	for _, f := range s.fresh {
		if s.current[f.p] == f.e || s.future[f.p] == f.e {
			made[f.e.dir] = append(made[f.e.dir], f)
		}
	}
	s.fresh = nil
	var list []*Dir
	for _, d := range s.liveLocked() {
		if d.renamed || len(made[d]) > 0 {
			list = append(list, d)
		}
		d.renamed = false
	}
	s.mu.Unlock()
	for _, d := range list {
		var unsure []*storage.Log
		for _, f := range made[d] {
			if f.e.log.Unsecured() {
				unsure = append(unsure, f.e.log)
			}
		}
		err := s.judge(d, storage.SecureAll(s.o.FS, d.Path, unsure))
		full := noSpace(err)
		s.mu.Lock()
		if full {
			s.fresh = append(s.fresh, made[d]...)
			d.renamed = true
		}
		told := d.unsure
		d.unsure = full
		s.mu.Unlock()
		if full && !told {
			s.log.Warn("disk is full: new logs are not sure yet to survive a power cut", "dir", d.Path, "err", err)
		}
	}
}
