package kraft

import (
	"slices"

	"weir/internal/invariant"
)

// Members is what the log has said about the quorum's membership so far: the
// set in force is the latest, committed or not, as in Raft.
type Members struct {
	// Static is controller.quorum.voters: the set at kraft.version 0.
	Static VoterSet
	// Log holds what snapshots and the log said, in offset order. Records of
	// 0-0.checkpoint have offset -1: they are not in the log yet.
	Log []Control
}

// current returns the voter set in force, the kraft.version and the offset of
// the record that set it (-1: not in the log).
func (m *Members) current() (set VoterSet, version int16, offset int64) {
	set, offset = m.Static, -1
	for _, c := range m.Log {
		if c.Version != nil {
			version = *c.Version
		}
		if c.Voters != nil {
			set, offset = *c.Voters, c.Offset
		}
	}
	return set, version, offset
}

// At returns voter set and kraft.version as of just before offset, for a
// snapshot that ends there.
func (m *Members) At(offset int64) (VoterSet, int16) {
	i := slices.IndexFunc(m.Log, func(c Control) bool { return c.Offset >= offset })
	if i < 0 {
		i = len(m.Log)
	}
	part := Members{Static: m.Static, Log: m.Log[:i]}
	set, version, _ := part.current()
	return set, version
}

func (m *Members) append(cs []Control) {
	for _, c := range cs {
		invariant.Check((c.Voters == nil) != (c.Version == nil), "kraft: control record at %d is neither voters nor version", c.Offset)
	}
	m.Log = append(m.Log, cs...)
}

func (m *Members) truncate(to int64) {
	m.Log = slices.DeleteFunc(m.Log, func(c Control) bool { return c.Offset >= to })
}

// compact forgets entries that later ones below offset replace.
func (m *Members) compact(offset int64) {
	var voters, version bool
	for i := len(m.Log) - 1; i >= 0; i-- {
		c := m.Log[i]
		seen := &version
		if c.Voters != nil {
			seen = &voters
		}
		if c.Offset < offset {
			if *seen {
				m.Log = slices.Delete(m.Log, i, i+1)
			}
			*seen = true
		}
	}
}
