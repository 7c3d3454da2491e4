package cluster

import (
	"sync"
	"testing"
	"time"

	"weir/test/testnode"
)

// figures is what the tests measured, for test/results/soak.json.
type figures struct {
	mu    sync.Mutex
	start time.Time
	m     map[string]any
}

var measured = &figures{start: time.Now(), m: map[string]any{}}

// report notes what a test measured; a long run writes all there is so far.
func report(t *testing.T, name string, values map[string]any) {
	t.Helper()
	t.Logf("%s: %v", name, values)
	if !testnode.Full() {
		return
	}
	measured.mu.Lock()
	defer measured.mu.Unlock()
	measured.m[name] = values
	testnode.WriteResult(t, "soak", time.Since(measured.start), measured.m)
}
