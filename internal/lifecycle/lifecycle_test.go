package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// images is an Images that the test moves on.
type images struct {
	mu        sync.Mutex
	img       *image.Image
	c         chan struct{}
	committed int64 // the highest committed offset
}

func (i *images) Current(img *image.Image) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return img.Provenance.Offset >= i.committed
}

func newImages(metadata int16) *images {
	i := &images{img: image.New(), c: make(chan struct{})}
	r := records.NewFeatureLevelRecord()
	r.Name, r.FeatureLevel = "metadata.version", metadata
	d := image.NewDelta(i.img)
	if err := d.Replay(records.Versioned{Record: &r}); err != nil {
		panic(err)
	}
	i.img = d.Apply(image.Provenance{Offset: 3})
	return i
}

func (i *images) Image() *image.Image {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.img
}

// register shows broker 1 as registered and unfenced at this epoch.
func (i *images) register(epoch int64) {
	r := records.NewRegisterBrokerRecord()
	r.BrokerID, r.BrokerEpoch, r.Fenced = 1, epoch, false
	i.replayAt(&r, epoch)
}

func (i *images) replay(r records.Metadata) { i.replayAt(r, i.Image().Provenance.Offset+1) }

func (i *images) replayAt(r records.Metadata, offset int64) {
	i.mu.Lock()
	d := image.NewDelta(i.img)
	if err := d.Replay(records.Versioned{Record: r, Version: r.HighestVersion()}); err != nil {
		panic(err)
	}
	i.img = d.Apply(image.Provenance{Offset: offset})
	close(i.c)
	i.c = make(chan struct{})
	i.mu.Unlock()
}

func (i *images) WaitFor(ctx context.Context, ok func(*image.Image) bool) *image.Image {
	for {
		i.mu.Lock()
		img, c := i.img, i.c
		i.mu.Unlock()
		if ok(img) {
			return img
		}
		select {
		case <-c:
		case <-ctx.Done():
			return img
		}
	}
}

// fake is a controller with one broker: it unfences what has caught up, and
// lets it go when it asks.
type fake struct {
	imgs *images

	mu       sync.Mutex
	down     bool
	epoch    int64
	register int16 // error code of registrations
	beat     int16 // error code of heartbeats
	regs     []*kmsg.BrokerRegistrationRequest
	beats    []*kmsg.BrokerHeartbeatRequest
	leave    bool // answer ShouldShutdown
}

func (f *fake) Do(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errors.New("no controller")
	}
	switch q := req.(type) {
	case *kmsg.BrokerRegistrationRequest:
		f.regs = append(f.regs, q)
		res := q.ResponseKind().(*kmsg.BrokerRegistrationResponse)
		res.ErrorCode = f.register
		if res.ErrorCode == 0 {
			f.epoch += 10
			res.BrokerEpoch = f.epoch
			f.imgs.register(f.epoch)
		}
		return res, nil
	case *kmsg.BrokerHeartbeatRequest:
		f.beats = append(f.beats, q)
		res := q.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
		res.ErrorCode = f.beat
		if q.BrokerEpoch != f.epoch {
			res.ErrorCode = kerr.StaleBrokerEpoch.Code
		}
		res.IsFenced = q.CurrentMetadataOffset < f.epoch
		res.IsCaughtUp = !res.IsFenced
		res.ShouldShutdown = q.WantShutdown && f.leave
		return res, nil
	}
	return nil, errors.New("unexpected request")
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) count() (regs, beats int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.regs), len(f.beats)
}

func newLifecycle(f *fake) *Lifecycle {
	return New(Options{
		NodeID: 1, ClusterID: "c", Incarnation: uuid.UUID{1}, PreviousEpoch: 77, Controller: f, Images: f.imgs,
		Features: func() []image.FeatureRange { return []image.FeatureRange{{Name: "metadata.version", Min: 7, Max: 30}} },
		Dirs:     []uuid.UUID{{15: 1, 0: 9}}, Interval: 2 * time.Second, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
		OfflineDirs: func() []uuid.UUID { return nil }, Cordoned: func() []uuid.UUID { return nil },
	})
}

// run starts l and returns how to end it; the error of Run is checked.
func run(t *testing.T, l *Lifecycle) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

// A level that was raised late in the log is not known from the first images: a registration by them would be refused.
func TestRegistersByAllThatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30)}
		f.imgs.committed = 9
		l := newLifecycle(f)
		defer run(t, l)()
		time.Sleep(time.Minute) // synctest's clock
		if regs, _ := f.count(); regs != 0 || l.Phase() != Registering {
			t.Fatalf("%d registrations before the log was read", regs)
		}
		r := records.NewNoOpRecord()
		f.imgs.replayAt(&r, 9)
		<-l.Running()
	})
}

func TestRegistersAndIsUnfencedWithoutWaitingForAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30)}
		l := newLifecycle(f)
		begun := time.Now()
		defer run(t, l)()
		<-l.Running()
		if took := time.Since(begun); took > time.Second || l.Epoch() != 10 || l.Phase() != Running {
			t.Fatalf("running after %v at epoch %d, phase %s", took, l.Epoch(), l.Phase())
		}
		if f.regs[0].PreviousBrokerEpoch != 77 || f.regs[0].Features[0].MaxSupportedVersion != 30 {
			t.Fatalf("registered with %+v", f.regs[0])
		}
		_, before := f.count()
		time.Sleep(11 * time.Second) // synctest's clock
		if _, after := f.count(); after-before != 5 {
			t.Fatalf("%d heartbeats in 11 s at an interval of 2 s", after-before)
		}
	})
}

func TestWaitsForAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30), down: true}
		l := newLifecycle(f)
		defer run(t, l)()
		time.Sleep(30 * time.Second) // synctest's clock
		if l.Phase() != Registering {
			t.Fatal(l.Phase())
		}
		f.set(func() { f.down = false })
		<-l.Running()
	})
}

func TestRegistersAgainWhenForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30)}
		l := newLifecycle(f)
		defer run(t, l)()
		<-l.Running()
		f.set(func() { f.epoch = 100 }) // somebody else registered the id, or we were unregistered
		time.Sleep(5 * time.Second)     // synctest's clock
		if l.Epoch() != 110 || l.Phase() != Running {
			t.Fatalf("epoch %d, phase %s", l.Epoch(), l.Phase())
		}
	})
}

func TestDuplicateNodeIDWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30), register: kerr.DuplicateBrokerRegistration.Code}
		f.imgs.register(5)
		l := newLifecycle(f)
		defer run(t, l)()
		time.Sleep(9 * time.Second) // synctest's clock
		if regs, _ := f.count(); l.Phase() != Registering || regs < 9 || regs > 20 {
			t.Fatalf("phase %s after %d registrations", l.Phase(), regs)
		}
		f.set(func() { f.register = 0 })
		<-l.Running()
	})
}

// An incarnation that answers at its address keeps the id; the refusal names both.
func TestDuplicateNodeIDThatAnswersIsFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30), register: kerr.DuplicateBrokerRegistration.Code}
		r := records.NewRegisterBrokerRecord()
		r.BrokerID, r.BrokerEpoch, r.IncarnationID = 1, 5, uuid.UUID{0: 9, 15: 9}
		r.EndPoints = []records.RegisterBrokerRecordEndPoint{{Name: "PLAINTEXT", Host: "10.0.0.9", Port: 9092}}
		f.imgs.replay(&r)
		var alive atomic.Bool
		l := newLifecycle(f)
		l.o.Answers = func(_ context.Context, b *image.Broker) bool { return alive.Load() && b.Incarnation == r.IncarnationID }
		done := make(chan error, 1)
		go func() { done <- l.Run(t.Context()) }()
		time.Sleep(2 * time.Second) // synctest's clock
		select {
		case err := <-done:
			t.Fatalf("gave up although nobody answers: %v", err)
		default:
		}
		alive.Store(true)
		err := <-done
		if err == nil || !strings.Contains(err.Error(), r.IncarnationID.String()) || !strings.Contains(err.Error(), l.o.Incarnation.String()) ||
			!strings.Contains(err.Error(), "10.0.0.9:9092") {
			t.Errorf("refused with: %v", err)
		}
	})
}

// An incarnation whose process is known to have ended is reported as gone, once, and
// its id is free at once where the controller understands that. A controller that takes
// no note of it, as one that is none any more, is told again.
func TestDuplicateNodeIDOfTheDead(t *testing.T) {
	for _, c := range []struct {
		understands bool
		first       *kerr.Error // the answer to the first report
		reports     int
	}{{true, nil, 1}, {false, nil, 1}, {true, kerr.NotController, 2}, {false, kerr.StaleBrokerEpoch, 1}} {
		understands := c.understands
		synctest.Test(t, func(t *testing.T) {
			dead := uuid.UUID{0: 9, 15: 9}
			imgs := newImages(30)
			r := records.NewRegisterBrokerRecord()
			r.BrokerID, r.BrokerEpoch, r.IncarnationID, r.Fenced = 1, 5, dead, false
			imgs.replay(&r)
			f := &fake{imgs: imgs}
			session := true // of the dead
			var told []*kmsg.BrokerHeartbeatRequest
			l := newLifecycle(f)
			l.o.Before = []uuid.UUID{{0: 8}, dead}
			l.o.Answers = func(context.Context, *image.Broker) bool { return false }
			l.o.Controller = doFunc(func(req kmsg.Request) (kmsg.Response, error) {
				switch q := req.(type) {
				case *kmsg.BrokerHeartbeatRequest:
					if q.BrokerEpoch == 5 {
						told = append(told, q)
						res := q.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
						if c.first != nil && len(told) == 1 {
							res.ErrorCode = c.first.Code
							return res, nil
						}
						session = !understands
						return res, nil
					}
				case *kmsg.BrokerRegistrationRequest:
					if session {
						res := q.ResponseKind().(*kmsg.BrokerRegistrationResponse)
						res.ErrorCode = kerr.DuplicateBrokerRegistration.Code
						return res, nil
					}
				}
				return f.Do(t.Context(), req)
			})
			begun := time.Now()
			defer run(t, l)()
			if !understands {
				time.Sleep(9 * time.Second) // synctest's clock
				if l.Phase() != Registering || len(told) != c.reports {
					t.Fatalf("phase %s, told %d times", l.Phase(), len(told))
				}
				session = false
			}
			<-l.Running()
			if took := time.Since(begun); understands && took > 200*time.Millisecond {
				t.Errorf("running after %v", took)
			}
			if len(told) != c.reports || !told[0].WantFence || !told[0].WantShutdown || told[0].BrokerID != 1 {
				t.Errorf("told: %+v", told)
			}
		})
	}
}

// An incarnation that is not known to be dead is never reported as gone.
func TestDuplicateNodeIDOfAnotherIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30), register: kerr.DuplicateBrokerRegistration.Code}
		r := records.NewRegisterBrokerRecord()
		r.BrokerID, r.BrokerEpoch, r.IncarnationID, r.Fenced = 1, 5, uuid.UUID{0: 9, 15: 9}, false
		f.imgs.replay(&r)
		l := newLifecycle(f)
		l.o.Before = []uuid.UUID{{0: 8}}
		defer run(t, l)()
		time.Sleep(9 * time.Second) // synctest's clock
		if _, beats := f.count(); beats != 0 || l.Phase() != Registering {
			t.Errorf("phase %s after %d heartbeats for another", l.Phase(), beats)
		}
	})
}

// While another broker shuts down, each change of the image is told at once.
func TestOthersShutdownIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30)}
		l := newLifecycle(f)
		defer run(t, l)()
		<-l.Running()
		r := records.NewRegisterBrokerRecord()
		r.BrokerID, r.BrokerEpoch, r.Fenced = 2, 100, false
		f.imgs.replay(&r)
		synctest.Wait()
		_, before := f.count()
		c := records.NewBrokerRegistrationChangeRecord()
		c.BrokerID, c.BrokerEpoch, c.InControlledShutdown = 2, 100, 1
		f.imgs.replay(&c)
		synctest.Wait()
		if _, after := f.count(); after != before+1 {
			t.Fatalf("%d heartbeats after the change, %d before", after, before)
		}
		f.set(func() {
			if got, want := f.beats[len(f.beats)-1].CurrentMetadataOffset, f.imgs.Image().Provenance.Offset; got != want {
				t.Errorf("told offset %d, applied is %d", got, want)
			}
		})
	})
}

func TestFatalRefusalsEndRun(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.InconsistentClusterID, kerr.UnsupportedVersion, kerr.InvalidRegistration} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{imgs: newImages(30), register: e.Code}
			err := newLifecycle(f).Run(t.Context())
			if err == nil || (e != kerr.InconsistentClusterID && !errors.Is(err, e)) {
				t.Errorf("%s: %v", e.Message, err)
			}
			if e == kerr.InconsistentClusterID && !strings.Contains(err.Error(), "cluster c") {
				t.Errorf("the message names no cluster: %v", err)
			}
		})
	}
}

func TestControlledShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30)}
		l := newLifecycle(f)
		defer run(t, l)()
		<-l.Running()
		time.AfterFunc(3*time.Second, func() { f.set(func() { f.leave = true }) })
		begun := time.Now()
		if err := l.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 3*time.Second || took > 4*time.Second || l.Phase() != Stopped {
			t.Fatalf("gone after %v, phase %s", took, l.Phase())
		}
	})
}

func TestShutdownGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{imgs: newImages(30)}
		l := newLifecycle(f)
		defer run(t, l)()
		<-l.Running()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := l.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestShutdownOfABrokerThatNobodyKnows(t *testing.T) {
	if err := newLifecycle(&fake{imgs: newImages(30)}).Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestControllerRegistersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		imgs := newImages(30)
		sent := 0
		ctl := doFunc(func(req kmsg.Request) (kmsg.Response, error) {
			if sent++; sent == 1 {
				return nil, errors.New("no controller yet")
			}
			q := req.(*kmsg.ControllerRegistrationRequest)
			r := records.NewRegisterControllerRecord()
			r.ControllerID, r.IncarnationID = q.ControllerID, q.IncarnationID
			imgs.replay(&r)
			return req.ResponseKind(), nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- RegisterController(ctx, ControllerOptions{
				NodeID: 1, Incarnation: uuid.UUID{1}, Controller: ctl, Images: imgs, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
			})
		}()
		imgs.WaitFor(ctx, func(i *image.Image) bool { _, ok := i.Controller(1); return ok })
		time.Sleep(time.Minute) // synctest's clock
		cancel()
		if err := <-done; err != nil || sent != 2 {
			t.Fatalf("%v after %d requests", err, sent)
		}
	})
}

type doFunc func(req kmsg.Request) (kmsg.Response, error)

func (f doFunc) Do(_ context.Context, req kmsg.Request) (kmsg.Response, error) { return f(req) }
