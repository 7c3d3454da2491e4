package network

import (
	"net"
	"slices"
	"testing"
	"time"
)

// TestListenersComeAndGo: a listener that is added serves, also one whose name was there before; one that is removed closes its
// connections, those that wait for room included, and leaves nothing behind.
func TestListenersComeAndGo(t *testing.T) {
	var l logs
	s := start(t, options(echo, &l))
	stays := dial(t, s)
	add := func(limit int) net.Conn {
		t.Helper()
		if err := s.Add(Listener{Name: "EXTRA", Host: "127.0.0.1", MaxConnections: limit}); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", s.Addr("EXTRA").String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	id := int32(0)
	works := func(c net.Conn) {
		t.Helper()
		id++
		write(t, c, metadata(id))
		wantAnswers(t, c, id)
	}
	for range 3 {
		c := add(1)
		works(c)
		waits, err := net.Dial("tcp", s.Addr("EXTRA").String())
		if err != nil {
			t.Fatal(err)
		}
		defer waits.Close()
		deadline := time.Now().Add(10 * time.Second)
		for s.stats.Accepted.Load()-s.stats.Closed.Load() < 3 { // it is counted before it waits for room
			if time.Now().After(deadline) {
				t.Fatal("the second connection is not accepted")
			}
			time.Sleep(time.Millisecond) // the accept loop is another goroutine's, over a real socket
		}
		if err := s.Add(Listener{Name: "EXTRA", Host: "127.0.0.1"}); err == nil {
			t.Error("two of one name")
		}
		if err := s.Remove("EXTRA"); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, c)
		wantClosed(t, waits)
		works(stays)
		if got := s.Listeners(); !slices.Equal(got, []string{listenerName}) || s.Addr("EXTRA") != nil {
			t.Errorf("listeners %q, %v", got, s.Addr("EXTRA"))
		}
	}
	if err := s.Remove("EXTRA"); err == nil {
		t.Error("removed twice")
	}
	deadline := time.Now().Add(10 * time.Second)
	for s.stats.Accepted.Load()-s.stats.Closed.Load() > 1 {
		if time.Now().After(deadline) {
			t.Fatal("connections of removed listeners are not let go")
		}
		time.Sleep(time.Millisecond) // their goroutines end on their own, over real sockets
	}
	s.admission.mu.Lock()
	defer s.admission.mu.Unlock()
	if n := len(s.admission.mu.listeners); n != 1 {
		t.Errorf("%d shares", n)
	}
}
