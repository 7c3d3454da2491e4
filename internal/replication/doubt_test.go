package replication

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/peer"
	"weir/internal/records"
)

// A leader that closes its connection is doubted for a moment and dialed at once; one whose process is gone is doubted for
// as long as an election may take, and counts as gone until it is heard of again.
func TestLeadersAreDoubted(t *testing.T) {
	follow(t, func(t *testing.T, e *env, l *fakeLeader) {
		b := records.NewRegisterBrokerRecord()
		b.BrokerID, b.BrokerEpoch = 2, 8
		e.replay(&b, topic("a", t1), part(t1, 0, 2, 3, dirA, 2, 1))
		check := func(gone, doubted bool) {
			t.Helper()
			if b, _ := e.img.Broker(2); e.Gone(b) != gone || e.Doubted(b) != doubted {
				t.Errorf("gone %v, doubted %v; want %v, %v", e.Gone(b), e.Doubted(b), gone, doubted)
			}
		}
		l.lead(3)
		l.produce(t, "a")
		synctest.Wait()
		check(false, false)

		before := l.count()
		l.fail(&peer.Error{Kind: peer.Disconnected})
		for l.count() == before { // until the fetch that is held ends
			time.Sleep(time.Millisecond) // synctest's clock
			synctest.Wait()
		}
		if n := l.count() - before; n != 2 {
			t.Errorf("%d attempts at once, want a second one", n)
		}
		check(false, true)
		time.Sleep(doubtOfClosed)
		check(false, false)

		l.fail(&peer.Error{Kind: peer.Refused, Gone: true})
		for b, _ := e.img.Broker(2); !e.Gone(b); {
			time.Sleep(time.Millisecond)
		}
		check(true, true)
		time.Sleep(doubtOfGone)
		check(true, false)

		l.fail(nil)
		time.Sleep(2 * time.Second)
		check(false, false)

		l.fail(&peer.Error{Kind: peer.Refused, Gone: true})
		for b, _ := e.img.Broker(2); !e.Gone(b); {
			time.Sleep(time.Millisecond)
		}
		b.BrokerEpoch = 9 // it is back
		e.replay(&b)
		check(false, false)
	})
}
