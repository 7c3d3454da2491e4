//go:build invariants

package invariant

// Expensive is true in builds with -tags invariants.
const Expensive = true
