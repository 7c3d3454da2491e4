// Package invariant holds assertions about our own code. A failed Check is a bug, never bad input or a bad disk: those
// are errors. Check is cheap and always on. What costs more than the work it guards stands behind
//
//	if invariant.Expensive { … }
//
// which is compiled in only with -tags invariants.
package invariant

import "fmt"

// Check panics with "BUG: …" unless ok. The arguments are evaluated in any case, so they must be cheap.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic("BUG: " + fmt.Sprintf(format, args...))
	}
}
