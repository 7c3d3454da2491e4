// Package statemachine runs one core over one replicated log: the controller
// over the metadata log, a group or transaction coordinator over its partition.
//
// It is the only way in which replicated state changes:
//
//	                 write: func(view) → (records, response)
//	                   │
//	request ──▶ inbox ─┤ runs in the loop, changes nothing itself
//	                   ▼
//	             Log.Append ──▶ Apply(state, records): the appended state,
//	                   │        which the next write sees
//	                   ▼ committed
//	             the committed state, which readers see; the response is given
//
// Apply is the same function live, on a follower and at restart. A write that
// cannot be appended, or whose epoch ends before it is committed, is answered
// with an error, and the appended state returns to the committed one; if its
// records are committed by a later leader after all, they come back as
// committed batches like any other.
//
// Every answer waits until all that the write has seen is committed, also one
// without records and also an error: what it says may rest on records that are
// not committed yet.
//
// State is a value that is never changed once made (an image, a persistent map),
// so returning to an earlier state is keeping its pointer. What is not
// replicated (sessions, timers, joining members) is soft state: the core keeps
// it beside the machine and drops it when [Options].Lost is called.
//
// # Metadata transactions
//
// Records between BeginTransactionRecord and EndTransactionRecord become
// visible together (KIP-868). The state itself remembers what was there before
// (image.Image.Visible); with [Options].Visible set, readers see that.
//
// # Running
//
// [Machine.Poll] does all that is due, in the calling goroutine; [Machine.Run]
// is the loop around it. A simulation calls Poll itself.
package statemachine
