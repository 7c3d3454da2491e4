package testnode

import (
	"fmt"
	"testing"
	"time"
)

// pollEvery is how often Until asks.
const pollEvery = 10 * time.Millisecond

// Until asks ready again and again until it returns nil, and fails the test with its last error after the limit.
func Until(t testing.TB, limit time.Duration, what string, ready func() error) {
	t.Helper()
	if err := until(limit, ready); err != nil {
		t.Fatalf("%s: not within %v: %v", what, limit, err)
	}
}

// until is Until for callers that have something to add to the error.
func until(limit time.Duration, ready func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if _, hopeless := err.(*goneError); hopeless {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return err
		}
	}
}

// goneError tells that waiting is of no use: the process has ended.
type goneError struct{ how string }

func (e *goneError) Error() string { return fmt.Sprintf("the process has ended: %s", e.how) }

// Patience is the limit for what a node does by itself within moments.
const Patience = 30 * time.Second
