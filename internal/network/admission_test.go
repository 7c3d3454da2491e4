package network

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/clock"
)

func newTestAdmission(t *testing.T, l Limits, listeners ...Listener) *admission {
	t.Helper()
	a, err := newAdmission(&Options{Listeners: listeners, InterBroker: "INTERNAL", Clock: clock.System{}, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var client = netip.MustParseAddr("192.0.2.1")

// tryAdmit reports whether a connection gets in, and how to wait for it when it does not yet.
func tryAdmit(a *admission, listener string) (now bool, done chan error) {
	done = make(chan error, 1)
	go func() {
		_, err := a.admit(listener, client)
		done <- err
	}()
	synctest.Wait()
	return len(done) == 1, done
}

func TestMaxConnectionsWaits(t *testing.T) {
	for name, limits := range map[string]Limits{"total": {MaxConnections: 2}, "listener": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := Listener{Name: "CLIENTS"}
				if name == "listener" {
					l.MaxConnections = 2
				}
				a := newTestAdmission(t, limits, l, Listener{Name: "INTERNAL"})
				for range 2 {
					if now, _ := tryAdmit(a, "CLIENTS"); !now {
						t.Fatal("no room below the limit")
					}
				}
				now, third := tryAdmit(a, "CLIENTS")
				if now {
					t.Fatal("admitted beyond the limit")
				}
				full, err := a.admit("INTERNAL", client)
				if err != nil || full != (name == "total") {
					t.Fatalf("a broker: full %v, %v", full, err)
				}
				a.leave("INTERNAL", client)
				a.leave("CLIENTS", client)
				synctest.Wait()
				if err := <-third; err != nil {
					t.Fatal(err)
				}
				now, fourth := tryAdmit(a, "CLIENTS")
				if now {
					t.Fatal("admitted beyond the limit")
				}
				a.stop()
				if err := <-fourth; !errors.Is(err, errStopping) {
					t.Fatalf("when stopping: %v", err)
				}
			})
		})
	}
}

// With one listener, the inter-broker name on it gives no privilege: it is everybody's.
func TestSingleListenerIsBoundByTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestAdmission(t, Limits{MaxConnections: 1}, Listener{Name: "INTERNAL"})
		if now, _ := tryAdmit(a, "INTERNAL"); !now {
			t.Fatal("no room")
		}
		now, done := tryAdmit(a, "INTERNAL")
		if now {
			t.Fatal("admitted beyond the limit")
		}
		if err := a.set(Limits{MaxConnections: 2}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestListenerLimitCanBeRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestAdmission(t, Limits{}, Listener{Name: "A", MaxConnections: 1})
		if now, _ := tryAdmit(a, "A"); !now {
			t.Fatal("no room")
		}
		_, second := tryAdmit(a, "A")
		if err := a.setListener("A", 2, 0); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Fatal(err)
		}
		if err := a.setListener("B", 2, 0); err == nil {
			t.Fatal("an unknown listener got limits")
		}
	})
}

// Kafka allows max.connections.per.ip=0 only together with overrides: the addresses named there, and no others.
func TestOnlyOverridesGetIn(t *testing.T) {
	other := netip.MustParseAddr("2001:db8::1")
	a := newTestAdmission(t, Limits{PerIPOverrides: map[string]int{"2001:db8::1": 1}}, Listener{Name: "A"})
	if _, err := a.admit("A", client); !errors.Is(err, errPerIP) {
		t.Errorf("somebody else: %v", err)
	}
	if _, err := a.admit("A", other); err != nil {
		t.Error(err)
	}
	if _, err := a.admit("A", other); !errors.Is(err, errPerIP) {
		t.Errorf("a second one: %v", err)
	}
}

func TestCreationRateDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestAdmission(t, Limits{MaxCreationRate: 10}, Listener{Name: "A"}, Listener{Name: "B", MaxCreationRate: 2})
		begun := time.Now()
		for range 30 {
			a.throttle(context.Background(), "A")
		}
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("30 connections at 10 a second took %v after the burst", d)
		}
		begun = time.Now()
		for range 6 {
			a.throttle(context.Background(), "B")
		}
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("6 connections at 2 a second took %v after the burst", d)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		begun = time.Now()
		a.throttle(ctx, "B")
		if d := time.Since(begun); d != 0 {
			t.Errorf("waited %v while stopping", d)
		}
	})
}

func TestPacer(t *testing.T) {
	now := time.Unix(1000, 0)
	var p pacer
	for i := range 10 {
		if d := p.take(now, 10); d > 0 {
			t.Fatalf("event %d of the burst waits %v", i, d)
		}
	}
	for i := 1; i <= 5; i++ {
		if d := p.take(now, 10); d != time.Duration(i)*100*time.Millisecond {
			t.Fatalf("event %d after the burst waits %v", i, d)
		}
	}
	if d := p.take(now.Add(time.Hour), 10); d > 0 {
		t.Fatalf("after an hour: %v", d)
	}
	if d := p.take(now, 0); d != 0 {
		t.Fatalf("no limit, %v", d)
	}
}
