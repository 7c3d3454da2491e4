package txn

import "slices"

// Filter says which transactional ids a list is to name; one with
// LongerThanMs -1 alone names all.
type Filter struct {
	ProducerIDs []int64
	// States are names of states; names that do not exist match nothing.
	States []string
	// LongerThanMs leaves out transactions that have been open for so long or less;
	// negative for none.
	LongerThanMs int64
	// Match, when set, decides on the transactional id.
	Match func(id string) bool
}

// UnknownStates lists the names of a filter that are no states.
func (f *Filter) UnknownStates() []string {
	var out []string
	for _, n := range f.States {
		if !slices.Contains(names[:], n) {
			out = append(out, n)
		}
	}
	return out
}

// List names the transactional ids that a filter lets pass, in order.
func (c *Core) List(s Step, f *Filter) []*Txn {
	var out []*Txn
	for t := range s.State.All() {
		switch {
		case len(f.ProducerIDs) > 0 && !slices.Contains(f.ProducerIDs, t.ProducerID),
			len(f.States) > 0 && !slices.Contains(f.States, t.Status.String()),
			f.LongerThanMs >= 0 && s.ms()-t.StartMs <= f.LongerThanMs,
			f.Match != nil && !f.Match(t.ID):
			continue
		}
		out = append(out, t)
	}
	return out
}

// Oldest is the transaction that has been open for longest, nil when none is.
func (s *State) Oldest() *Txn {
	var oldest *Txn
	for t := range s.Open() {
		if oldest == nil || t.StartMs < oldest.StartMs {
			oldest = t
		}
	}
	return oldest
}
