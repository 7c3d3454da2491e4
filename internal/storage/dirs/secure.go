package dirs

import (
	"slices"

	"weir/internal/checkpoint"
	"weir/internal/storage"
)

// fresh is a log that a power cut may take.
type fresh struct {
	p checkpoint.TopicPartition
	e *entry
}

// Secure makes what Create and Delete have done since the last call survive a power cut, many logs at once. It waits for
// the disk, which neither of them does.
func (s *Set) Secure() {
	s.mu.Lock()
	logs := map[*Dir][]*storage.Log{}
	for _, f := range s.fresh {
		if s.current[f.p] == f.e || s.future[f.p] == f.e {
			logs[f.e.dir] = append(logs[f.e.dir], f.e.log)
		}
	}
	s.fresh = nil
	var list []*Dir
	for _, d := range s.liveLocked() {
		if d.renamed || len(logs[d]) > 0 {
			list = append(list, d)
		}
		d.renamed = false
	}
	s.mu.Unlock()
	for _, d := range list {
		unsure := slices.DeleteFunc(logs[d], func(l *storage.Log) bool { return !l.Unsecured() })
		if err := s.judge(d, storage.SecureAll(s.o.FS, d.Path, unsure)); noSpace(err) {
			s.log.Warn("disk is full: new logs are not sure yet to survive a power cut", "dir", d.Path, "err", err)
		}
	}
}
