package peer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/peer/peertest"
	"weir/internal/wire"
)

// node is the other side: at every address the same, unless the test sets another.
type node struct{ *peertest.Net }

func newNode(t *testing.T, serve peertest.Answer) *node {
	return &node{peertest.New(t, peertest.Serves(serve))}
}

func (n *node) client(change ...func(*Options)) *Client {
	o := Options{
		Node: 3, Addresses: func() []string { return []string{"10.0.0.1:9093"} }, ClientID: "test",
		Dial: n.Dial, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&o)
	}
	return New(o)
}

var usual = map[kmsg.Key]wire.Range{kmsg.ApiVersions: {Max: 4}, kmsg.Vote: {Max: 1}, kmsg.Fetch: {Min: 4, Max: 18}, kmsg.BrokerHeartbeat: {Max: 2}}

// polite answers everything with an empty answer; votes with the candidate's epoch as error code.
func polite(h wire.Header, req kmsg.Request) []byte {
	switch q := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return peertest.Versions(h, req, usual)
	case *kmsg.VoteRequest:
		res := q.ResponseKind().(*kmsg.VoteResponse)
		res.ErrorCode = int16(q.VoterID)
		return wire.AppendResponse(nil, h, res)
	}
	return wire.AppendResponse(nil, h, req.ResponseKind())
}

func vote(id int32) *kmsg.VoteRequest {
	q := kmsg.NewPtrVoteRequest()
	q.VoterID = id
	return q
}

func wantKind(t *testing.T, err error, k Kind) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != k {
		t.Fatalf("error %v, want kind %q", err, k)
	}
	return e
}

func TestRequestsAreAnsweredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, polite)
		c := n.client()
		defer c.Close()
		var all sync.WaitGroup
		for i := range int32(50) {
			all.Go(func() {
				q := vote(i)
				q.SetVersion(2)
				r, err := c.Do(t.Context(), q)
				if err != nil {
					t.Error(err)
					return
				}
				if got := r.(*kmsg.VoteResponse); got.ErrorCode != int16(i) || got.Version != 1 || q.Version != 2 {
					t.Errorf("request %d was answered %d in version %d; its own version is %d now", i, got.ErrorCode, got.Version, q.Version)
				}
			})
		}
		all.Wait()
		if len(n.Dials()) != 1 {
			t.Errorf("dialed %v", n.Dials())
		}
	})
}

func TestVersionsAreChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, polite)
		c := n.client()
		defer c.Close()
		for _, x := range []struct {
			key        kmsg.Key
			wish, want int16 // want -1: unsupported
		}{{kmsg.Fetch, 0, 18}, {kmsg.Fetch, 12, 12}, {kmsg.Fetch, 3, -1}, {kmsg.Vote, 2, 1}, {kmsg.EndQuorumEpoch, 0, -1}, {kmsg.BrokerHeartbeat, 1, 1}} {
			v, err := c.Version(t.Context(), int16(x.key), x.wish)
			if x.want < 0 {
				if e := wantKind(t, err, UnsupportedVersion); e.Sent() {
					t.Errorf("%v: said to be sent", e)
				}
			} else if err != nil || v != x.want {
				t.Errorf("%s up to %d: version %d, %v; want %d", x.key.Name(), x.wish, v, err, x.want)
			}
		}
		if _, err := c.Do(t.Context(), kmsg.NewPtrEndQuorumEpochRequest()); KindOf(err) != UnsupportedVersion {
			t.Errorf("an API that is not served: %v", err)
		}
		if !c.Connected() {
			t.Error("an unsupported version cost the connection")
		}
	})
}

func TestOldApiVersionsIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := []int16{}
		n := newNode(t, func(h wire.Header, req kmsg.Request) []byte {
			if q, ok := req.(*kmsg.ApiVersionsRequest); ok {
				asked = append(asked, h.Version)
				if h.Version > 2 {
					res := kmsg.NewPtrApiVersionsResponse()
					res.ErrorCode = kerr.UnsupportedVersion.Code
					res.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: int16(kmsg.ApiVersions), MaxVersion: 2}}
					h.Version = 0
					return wire.AppendResponse(nil, h, res)
				}
				return peertest.Versions(h, q, usual)
			}
			return polite(h, req)
		})
		c := n.client()
		defer c.Close()
		if _, err := c.Do(t.Context(), vote(1)); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(asked) != "[4 2]" {
			t.Errorf("ApiVersions was asked in versions %v", asked)
		}
	})
}

// A refused address proves that the node is gone only once it has answered there.
func TestRefusedAndGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, polite)
		var gone atomic.Int32
		shared := new(Answered)
		options := func(o *Options) {
			o.Addresses = func() []string { return []string{"[::1]:1", "10.0.0.1:9093"} }
			o.Gone, o.Answered = func() { gone.Add(1) }, shared
		}
		n.Set("[::1]:1", peertest.Nobody())
		n.Set("10.0.0.1:9093", peertest.Nobody())
		c, other := n.client(options), n.client(options)
		defer c.Close()
		defer other.Close()
		if _, err := c.Do(t.Context(), vote(1)); IsGone(err) {
			t.Errorf("gone before it ever answered: %v", err)
		} else if e := wantKind(t, err, Refused); e.Sent() {
			t.Errorf("%v: said to be sent", e)
		}
		n.Unset("10.0.0.1:9093")
		if _, err := c.Do(t.Context(), vote(1)); err != nil {
			t.Fatal(err)
		}
		n.Set("10.0.0.1:9093", peertest.Nobody())
		n.HangUpAll()
		synctest.Wait()
		for _, x := range []*Client{c, other} { // what one has seen counts for both
			if _, err := x.Do(t.Context(), vote(1)); KindOf(err) != Refused || !IsGone(err) {
				t.Errorf("refused where it had answered: %v", err)
			}
		}
		synctest.Wait()
		if gone.Load() != 2 {
			t.Errorf("told %d times that the node is gone", gone.Load())
		}
		n.Set("[::1]:1", peertest.Refuses(syscall.ETIMEDOUT)) // one address is silent: nothing is proved
		if _, err := c.Do(t.Context(), vote(1)); KindOf(err) != Timeout || IsGone(err) {
			t.Errorf("one address refuses, the other is silent: %v", err)
		}
		n.Set("[::1]:1", peertest.Refuses(syscall.EADDRNOTAVAIL))
		if _, err := c.Do(t.Context(), vote(1)); !IsGone(err) {
			t.Errorf("one address refuses, the other is none of this machine's: %v", err)
		}
	})
}

func TestNamesAreResolvedAtEachDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, polite)
		ips := []string{"10.0.0.7"}
		c := n.client(func(o *Options) {
			o.Addresses = func() []string { return []string{"weir.test:9093"} }
			o.Resolve = func(_ context.Context, host string) ([]string, error) {
				if len(ips) == 0 {
					return nil, errors.New("no such host: " + host)
				}
				return ips, nil
			}
		})
		defer c.Close()
		for _, ip := range []string{"10.0.0.7", "10.0.0.8", ""} {
			ips = []string{ip}
			if ip == "" {
				ips = nil
			}
			_, err := c.Do(t.Context(), vote(1))
			if (ip == "") != (KindOf(err) == Unreachable) {
				t.Errorf("address %q: %v", ip, err)
			}
			n.HangUpAll()
			synctest.Wait()
		}
		if got := strings.Join(n.Dials(), " "); got != "10.0.0.7:9093 10.0.0.8:9093" {
			t.Errorf("dialed %s", got)
		}
	})
}

// The answer of a request that was given up would be taken for that of the next.
func TestGivingUpDropsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(h wire.Header, req kmsg.Request) []byte {
			if _, ok := req.(*kmsg.BrokerHeartbeatRequest); ok {
				return nil
			}
			return polite(h, req)
		})
		c := n.client()
		defer c.Close()
		other := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			_, err := c.Do(t.Context(), kmsg.NewPtrBrokerHeartbeatRequest())
			other <- err
		}()
		synctest.Wait()
		_, err := c.Do(ctx, kmsg.NewPtrBrokerHeartbeatRequest())
		wantKind(t, err, Timeout)
		if err := <-other; err == nil {
			t.Error("the request before it outlived the connection")
		}
		if c.Connected() {
			t.Error("still connected")
		}
		r, err := c.Do(t.Context(), vote(7))
		if err != nil || r.(*kmsg.VoteResponse).ErrorCode != 7 {
			t.Errorf("the next request: %v, %v", r, err)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Do(canceled, kmsg.NewPtrBrokerHeartbeatRequest())
		wantKind(t, err, Canceled)
	})
}

func TestPeerHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(h wire.Header, req kmsg.Request) []byte {
			if _, ok := req.(*kmsg.BrokerHeartbeatRequest); ok {
				return nil
			}
			return polite(h, req)
		})
		c := n.client()
		defer c.Close()
		errs := make(chan error, 1)
		go func() {
			_, err := c.Do(t.Context(), kmsg.NewPtrBrokerHeartbeatRequest())
			errs <- err
		}()
		synctest.Wait()
		n.HangUpAll()
		if e := wantKind(t, <-errs, Disconnected); !e.Sent() || e.Node != 3 || e.Addr != "10.0.0.1:9093" {
			t.Errorf("%+v", e)
		}
		if _, err := c.Do(t.Context(), vote(1)); err != nil {
			t.Errorf("after the peer is back: %v", err)
		}
	})
}

// Close ends a dial, a request and the goroutines: synctest fails when one stays.
func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := New(Options{
			Node: 1, Addresses: func() []string { return []string{"10.0.0.9:1"} }, ClientID: "test", Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler),
			Dial: func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		})
		silent := newNode(t, func(h wire.Header, req kmsg.Request) []byte {
			if _, ok := req.(*kmsg.ApiVersionsRequest); ok {
				return polite(h, req)
			}
			return nil
		})
		c := silent.client()
		errs := make(chan error, 2)
		for _, x := range []*Client{hung, c} {
			go func() {
				_, err := x.Do(t.Context(), vote(1))
				errs <- err
			}()
		}
		synctest.Wait()
		for _, x := range []*Client{hung, c} {
			x.Close()
			x.Close()
			if _, err := x.Do(t.Context(), vote(1)); KindOf(err) != ClientClosed {
				t.Errorf("after Close: %v", err)
			}
		}
		for range 2 {
			wantKind(t, <-errs, ClientClosed)
		}
		silent.HangUpAll()
	})
}

func TestSilentDialTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(wire.Header, kmsg.Request) []byte { return nil })
		c := n.client()
		defer c.Close()
		defer n.HangUpAll()
		start := time.Now()
		_, err := c.Do(t.Context(), vote(1))
		wantKind(t, err, Timeout)
		if d := time.Since(start); d != defaultDialTimeout {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestBadAnswers(t *testing.T) {
	good := wire.AppendResponse(nil, wire.Header{Key: int16(kmsg.Vote), Version: 1, CorrelationID: 2}, kmsg.NewPtrVoteResponse())
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for name, answer := range map[string][]byte{
		"too large":       change(func(b []byte) []byte { binary.BigEndian.PutUint32(b, 1<<31-1); return b }),
		"negative size":   change(func(b []byte) []byte { binary.BigEndian.PutUint32(b, 1<<31); return b }),
		"no header":       {0, 0, 0, 2, 0, 0},
		"another id":      change(func(b []byte) []byte { b[7]++; return b }),
		"cut":             change(func(b []byte) []byte { b = b[:len(b)-3]; b[3] -= 3; return b }),
		"array of 2^31":   {0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"answer too many": append(bytes.Clone(good), good...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, func(h wire.Header, req kmsg.Request) []byte {
					if _, ok := req.(*kmsg.VoteRequest); ok {
						return answer
					}
					return polite(h, req)
				})
				c := n.client()
				defer c.Close()
				defer n.HangUpAll()
				_, err := c.Do(t.Context(), vote(1))
				if name != "answer too many" {
					wantKind(t, err, BadAnswer)
				} else if err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if c.Connected() {
					t.Error("the connection lives on")
				}
			})
		})
	}
}

// FuzzAnswer reads rubbish as an answer: an error, or what encodes to the same
// value again; never a panic, and no memory before bytes have come.
func FuzzAnswer(f *testing.F) {
	for _, k := range []kmsg.Key{kmsg.Vote, kmsg.Fetch, kmsg.ApiVersions, kmsg.FetchSnapshot, kmsg.BrokerHeartbeat, kmsg.Envelope} {
		req := kmsg.RequestForKey(int16(k))
		r, _ := wire.Supported(int16(k))
		req.SetVersion(r.Max)
		f.Add(int16(k), r.Max, wire.AppendResponse(nil, wire.Header{Key: int16(k), Version: r.Max, CorrelationID: 1}, req.ResponseKind()))
	}
	f.Fuzz(func(t *testing.T, key, version int16, raw []byte) {
		r, ok := wire.Supported(key)
		if !ok || version < r.Min || version > r.Max {
			return
		}
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		in := bytes.NewReader(raw)
		size, err := readSize(in, 1<<20)
		if err != nil {
			return
		}
		frame, err := readFrame(in, size, nil)
		if err != nil {
			return
		}
		if len(frame) != int(binary.BigEndian.Uint32(raw)) || !bytes.Equal(frame, raw[4:4+len(frame)]) {
			t.Fatalf("the frame of %d bytes is not what was sent", len(frame))
		}
		res := req.ResponseKind()
		if decode(frame, 1, res) != nil {
			return
		}
		again := req.ResponseKind()
		again.SetVersion(res.GetVersion())
		if err := again.ReadFrom(res.AppendTo(nil)); err != nil {
			t.Fatalf("%s v%d: what was read does not read again: %v", wire.Name(key), version, err)
		}
	})
}

// asking is a connection whose owner asks the client about it when it closes, as
// package liveness does.
type asking struct {
	net.Conn
	ask func()
}

func (a asking) Close() error {
	a.ask()
	return a.Conn.Close()
}

func TestClosingHoldsNoLock(t *testing.T) {
	n := newNode(t, polite)
	var c *Client
	late := make(chan bool, 1)
	c = n.client(func(o *Options) {
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			nc, err := n.Dial(ctx, addr)
			return asking{nc, func() {
				told := make(chan bool)
				go func() { told <- c.Connected() }()
				select {
				case connected := <-told:
					late <- connected
				case <-time.After(10 * time.Second):
					late <- true
				}
			}}, err
		}
	})
	if _, err := c.Do(t.Context(), vote(1)); err != nil {
		t.Fatal(err)
	}
	n.HangUpAll()
	if <-late {
		t.Fatal("the client is locked, or calls a connection alive, while that closes")
	}
	c.Close()
}
