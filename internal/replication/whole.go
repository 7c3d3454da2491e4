package replication

import "weir/internal/batch"

// whole cuts a batch that is not complete off the end.
func whole(b []byte) []byte {
	n := 0
	for rest := b; len(rest) > 0; {
		e, next, err := batch.NextEntry(rest)
		if err != nil {
			break
		}
		n += e.Len()
		rest = next
	}
	return b[:n]
}
