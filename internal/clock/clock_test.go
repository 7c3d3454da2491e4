package clock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestManualOrder(t *testing.T) {
	c := NewManual(start)
	var got []string
	note := func(name string, due time.Duration) func() {
		return func() {
			if now := c.Now(); !now.Equal(start.Add(due)) {
				t.Errorf("%s ran at %v", name, now.Sub(start))
			}
			got = append(got, name)
		}
	}
	c.AfterFunc(2*time.Second, note("b", 2*time.Second))
	c.AfterFunc(time.Second, func() {
		note("a", time.Second)()
		// Planned within the span that is being advanced over.
		c.AfterFunc(500*time.Millisecond, note("a2", 1500*time.Millisecond))
	})
	c.AfterFunc(2*time.Second, note("c", 2*time.Second))
	c.AfterFunc(9*time.Second, note("late", 9*time.Second))
	c.AfterFunc(-time.Second, note("now", 0))
	if next, ok := c.Next(); !ok || !next.Equal(start) {
		t.Errorf("Next = %v, %v", next, ok)
	}
	c.Advance(3 * time.Second)
	if want := []string{"now", "a", "a2", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("ran %v, want %v", got, want)
	}
	if now := c.Now(); !now.Equal(start.Add(3 * time.Second)) {
		t.Errorf("Now = %v", now)
	}
	c.Advance(6 * time.Second)
	if got[len(got)-1] != "late" {
		t.Errorf("ran %v", got)
	}
	if _, ok := c.Next(); ok {
		t.Error("a timer is left")
	}
}

func TestManualStopReset(t *testing.T) {
	c := NewManual(start)
	ran := 0
	tm := c.AfterFunc(time.Second, func() { ran++ })
	if !tm.Stop() || tm.Stop() {
		t.Error("Stop must say once that it stopped")
	}
	c.Advance(time.Hour)
	if ran != 0 {
		t.Fatal("a stopped timer ran")
	}
	if tm.Reset(time.Second) {
		t.Error("Reset of a stopped timer says it was planned")
	}
	if !tm.Reset(3 * time.Second) {
		t.Error("Reset of a planned timer says it was not")
	}
	c.Advance(2 * time.Second)
	if ran != 0 {
		t.Error("the timer ran at its old time")
	}
	c.Advance(time.Second)
	if ran != 1 || tm.Stop() {
		t.Errorf("ran %d times", ran)
	}
	// A function may plan itself again.
	n := 0
	var self Timer
	self = c.AfterFunc(time.Second, func() {
		if n++; n < 3 {
			self.Reset(time.Second)
		}
	})
	c.Advance(10 * time.Second)
	if n != 3 {
		t.Errorf("ran %d times, want 3", n)
	}
}

func TestSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c System
		begin := c.Now()
		done := make(chan time.Time, 1)
		c.AfterFunc(time.Minute, func() { done <- c.Now() })
		if d := (<-done).Sub(begin); d != time.Minute {
			t.Errorf("ran after %v", d)
		}
		if tm := c.AfterFunc(time.Minute, func() { t.Error("ran") }); !tm.Stop() {
			t.Error("Stop says it was too late")
		}
	})
}

func TestAfter(t *testing.T) {
	c := NewManual(time.UnixMilli(0))
	over, _ := After(c, time.Second)
	never, stop := After(c, time.Second)
	if !stop() {
		t.Error("a timer that has not fired cannot be stopped")
	}
	c.Advance(time.Second)
	select {
	case <-over:
	default:
		t.Error("the time is over, the channel is not closed")
	}
	select {
	case <-never:
		t.Error("a stopped timer fires")
	default:
	}
}

func TestAlarm(t *testing.T) {
	c := NewManual(time.UnixMilli(0))
	a := NewAlarm(c, time.Second)
	due := func() bool {
		select {
		case <-a.C:
			return true
		default:
			return false
		}
	}
	c.Advance(999 * time.Millisecond)
	if due() {
		t.Fatal("early")
	}
	a.Set(2 * time.Millisecond)
	c.Advance(time.Millisecond)
	if due() {
		t.Fatal("due at the time it was moved from")
	}
	c.Advance(time.Millisecond)
	if !due() || due() {
		t.Fatal("not due, or twice")
	}
	a.Set(-time.Second)
	c.Advance(0)
	if !due() {
		t.Fatal("a time that has passed is now")
	}
	a.Set(time.Second)
	a.Stop()
	c.Advance(time.Hour)
	if due() {
		t.Fatal("stopped, and due")
	}
}
