package liveness

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/controller"
	"weir/internal/image"
	"weir/internal/peer/peertest"
	"weir/internal/records"
	"weir/internal/wire"
)

// answers serves ApiVersions and nothing else.
func answers(h wire.Header, req kmsg.Request) []byte {
	if _, ok := req.(*kmsg.ApiVersionsRequest); !ok {
		return nil
	}
	return peertest.Versions(h, req, map[kmsg.Key]wire.Range{kmsg.ApiVersions: {Max: 4}})
}

// set changes what dials of an address do, and ends its connections.
func (e *env) set(address, state string) {
	e.Set(address, map[string]peertest.Host{"up": peertest.Serves(answers), "refuses": peertest.Nobody(), "silent": peertest.Silent()}[state])
	e.HangUp(address)
}

type env struct {
	*Watch
	*peertest.Net
	mu     sync.Mutex
	img    *image.Image
	active bool
	err    error // of fencing
	fenced [][]controller.BrokerRef
}

// bubble runs test with a Watch in virtual time.
func bubble(t *testing.T, test func(t *testing.T, e *env)) {
	synctest.Test(t, func(t *testing.T) {
		e := &env{Net: peertest.New(t, peertest.Silent()), img: image.New(), active: true}
		e.Watch = New(Options{
			NodeID: 1, Dial: e.Dial, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
			Addresses: func(b *image.Broker) []string { return []string{address(b.ID)} },
			Active:    func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.active },
			Fence:     e.fence,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		test(t, e)
	})
}

func address(id int32) string { return net.JoinHostPort("10.0.0."+string(rune('0'+id)), "9092") }

func (e *env) fence(_ context.Context, dead []controller.BrokerRef) error {
	e.mu.Lock()
	err := e.err
	if err == nil {
		e.fenced = append(e.fenced, dead)
	}
	e.mu.Unlock()
	if err == nil {
		for _, ref := range dead {
			e.change(ref.ID, ref.Epoch, 1)
		}
	}
	return err
}

// batches are the batches that were fenced since the last call.
func (e *env) batches() (out [][]int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.fenced {
		var ids []int32
		for _, ref := range b {
			ids = append(ids, ref.ID)
		}
		out = append(out, ids)
	}
	e.fenced = nil
	return out
}

func (e *env) want(t *testing.T, want ...[]int32) {
	t.Helper()
	synctest.Wait()
	if got := e.batches(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("fenced %v, want %v", got, want)
	}
}

func (e *env) replay(recs ...records.Metadata) {
	e.mu.Lock()
	d := image.NewDelta(e.img)
	for _, r := range recs {
		if err := d.Replay(records.Versioned{Record: r, Version: r.HighestVersion()}); err != nil {
			panic(err)
		}
	}
	e.img = d.Apply(image.Provenance{Offset: e.img.Provenance.Offset + 1})
	img := e.img
	e.mu.Unlock()
	e.Apply(img, d)
}

// register lets brokers appear, unfenced.
func (e *env) register(epoch int64, ids ...int32) {
	var recs []records.Metadata
	for _, id := range ids {
		r := records.NewRegisterBrokerRecord()
		r.BrokerID, r.BrokerEpoch, r.Fenced = id, epoch, false
		recs = append(recs, &r)
	}
	e.replay(recs...)
}

func (e *env) change(id int32, epoch int64, fenced int8) {
	r := records.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch, r.Fenced = id, epoch, fenced
	e.replay(&r)
}

func TestTheDeadAreFencedInOneBatch(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		for id := int32(2); id <= 4; id++ {
			e.set(address(id), "up")
		}
		e.register(7, 1, 2, 3, 4)
		e.want(t)
		e.set(address(2), "refuses")
		e.set(address(4), "refuses")
		time.Sleep(10 * time.Millisecond)
		e.want(t, []int32{2, 4})
		time.Sleep(time.Minute)
		e.want(t)
	})
}

func TestWhatProvesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.set(address(2), "refuses") // never answered
		e.set(address(3), "up")
		e.set(address(4), "up")
		e.register(7, 2, 3, 4)
		synctest.Wait()
		e.set(address(3), "silent")
		e.set(address(4), "up") // hung up on us, and is there
		time.Sleep(time.Minute)
		e.want(t)
		e.set(address(3), "refuses") // it had answered
		time.Sleep(20 * time.Second)
		e.want(t, []int32{3})
		// In a new epoch what an earlier process answered counts for nothing.
		e.register(8, 3)
		time.Sleep(time.Minute)
		e.want(t)
	})
}

// A controller that is not active watches too, so that one more dial is proof when
// it becomes active.
func TestTheNextControllerKnows(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.active = false
		e.set(address(2), "up")
		e.set(address(3), "up")
		e.register(7, 2, 3)
		synctest.Wait()
		e.set(address(2), "refuses")
		e.set(address(3), "refuses")
		time.Sleep(time.Second)
		e.want(t)
		e.set(address(3), "up") // only this node could not reach it, for a while
		e.mu.Lock()
		e.active = true
		e.mu.Unlock()
		e.Lead()
		time.Sleep(10 * time.Millisecond)
		e.want(t, []int32{2})
	})
}

func TestFencingIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.set(address(2), "up")
		e.register(7, 2)
		synctest.Wait()
		e.mu.Lock()
		e.err = errors.New("not the leader")
		e.mu.Unlock()
		e.set(address(2), "refuses")
		time.Sleep(time.Second)
		e.want(t)
		e.mu.Lock()
		e.err = nil
		e.mu.Unlock()
		time.Sleep(time.Second)
		e.want(t, []int32{2})
	})
}

// A broker that was taken for dead and heartbeats on is left to its timeout.
func TestTheLivingAreTrustedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.set(address(2), "up")
		e.register(7, 2)
		synctest.Wait()
		e.set(address(2), "refuses")
		time.Sleep(time.Second)
		e.want(t, []int32{2})
		e.set(address(2), "up")
		e.change(2, 7, -1)
		synctest.Wait()
		if n := e.Wrong(); n != 1 {
			t.Fatalf("%d wrong", n)
		}
		e.set(address(2), "refuses")
		time.Sleep(4 * time.Minute)
		e.want(t)
		e.set(address(2), "up")
		time.Sleep(2 * time.Minute)
		e.set(address(2), "refuses")
		time.Sleep(time.Second)
		e.want(t, []int32{2})
	})
}

// A silent broker is dialed now and then, not all the time.
func TestSilenceIsCheap(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.set(address(2), "refuses")
		e.register(7, 2)
		time.Sleep(10 * time.Minute)
		if len(e.Dials()) > 130 {
			t.Fatalf("%d dials in ten minutes", len(e.Dials()))
		}
	})
}
