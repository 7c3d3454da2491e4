package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// testdata/apache-4.3.1-apiversions.txt is what a running Apache Kafka 4.3.1 answered to ApiVersions v4 on its broker and
// its controller listener: kind of listener, key, lowest, highest.
func TestTableIsApacheKafkas(t *testing.T) {
	f, err := os.Open("testdata/apache-4.3.1-apiversions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kinds := map[string]Listeners{"broker": OnBroker, "controller": OnController}
	listed := map[int16]Listeners{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var kind string
		var key, lowest, highest int16
		if _, err := fmt.Sscan(sc.Text(), &kind, &key, &lowest, &highest); err != nil {
			t.Fatal(err)
		}
		listed[key] |= kinds[kind]
		r, ok := SupportedOn(kinds[kind], key)
		if !ok || r.Max != highest || r.Min > lowest {
			t.Errorf("%s listener, %s (%d): have %v %v, Apache Kafka serves %d to %d", kind, Name(key), key, r, ok, lowest, highest)
		}
	}
	if len(listed) < 80 {
		t.Fatalf("only %d APIs in the golden file", len(listed))
	}
	for api := range APIs() {
		telemetry := api.Name == "GetTelemetrySubscriptions" || api.Name == "PushTelemetry"
		if listed[api.Key] != api.Listeners && !telemetry {
			t.Errorf("%s is served on listeners %b here, on %b by Apache Kafka", api.Name, api.Listeners, listed[api.Key])
		}
		lowest := int16(0)
		if api.Name == "AlterPartition" {
			lowest = 2
		}
		if api.Versions.Min != lowest {
			t.Errorf("%s starts at v%d", api.Name, api.Versions.Min)
		}
	}
}

func TestTableMatchesCodec(t *testing.T) {
	previous := int16(-1)
	for api := range APIs() {
		if api.Key <= previous {
			t.Errorf("key %d stands after %d", api.Key, previous)
		}
		previous = api.Key
		if got, ok := Lookup(api.Key); !ok || got != api {
			t.Errorf("Lookup(%d) finds %v", api.Key, got)
		}
		req := kmsg.RequestForKey(api.Key)
		if req == nil {
			t.Errorf("the codec lacks %s", api.Name)
			continue
		}
		if !strings.EqualFold(kmsg.NameForKey(api.Key), api.Name) && api.Name != "AlterPartitionReassignments" {
			t.Errorf("key %d is %s in the codec, %s here", api.Key, kmsg.NameForKey(api.Key), api.Name)
		}
		if req.MaxVersion() < api.Versions.Max {
			t.Errorf("the codec knows %s up to v%d only", api.Name, req.MaxVersion())
		}
		for v := api.Versions.Min; v <= api.Versions.Max; v++ {
			req.SetVersion(v)
			if req.IsFlexible() != FlexibleRequest(api.Key, v) {
				t.Errorf("%s v%d: flexible is %v in the codec", api.Name, v, req.IsFlexible())
			}
		}
	}
	for _, key := range []int16{-1, 4, 5, 6, 7, 93, 32767, -32768} {
		if _, ok := Supported(key); ok || Name(key) != "Unknown" {
			t.Errorf("key %d is known as %s", key, Name(key))
		}
	}
}

// Every API, every version: a request formatted by the client codec comes back with the same header and body, and the
// answer is read back by it.
func TestHeadersOfEveryVersion(t *testing.T) {
	id := "client-1"
	last := &id
	for api := range APIs() {
		for v := api.Versions.Min; v <= api.Versions.Max; v++ {
			for _, clientID := range []*string{nil, &id} {
				req := kmsg.RequestForKey(api.Key)
				req.SetVersion(v)
				f := kmsg.NewRequestFormatter()
				if clientID != nil {
					f = kmsg.NewRequestFormatter(kmsg.FormatterClientID(*clientID))
				}
				frame := f.AppendRequest(nil, req, 77)
				h, body, err := ParseHeaderReusing(frame[4:], last)
				if err != nil {
					t.Fatalf("%s v%d: %v", api.Name, v, err)
				}
				if h.Key != api.Key || h.Version != v || h.CorrelationID != 77 || (h.ClientID == nil) != (clientID == nil) {
					t.Fatalf("%s v%d: header %+v", api.Name, v, h)
				}
				if clientID != nil && h.ClientID != last {
					t.Errorf("%s v%d: client id was not reused", api.Name, v)
				}
				if want := req.AppendTo(nil); string(body) != string(want) {
					t.Fatalf("%s v%d: body %x, want %x", api.Name, v, body, want)
				}
				got, err := ReadRequest(h, body)
				if err != nil {
					t.Fatalf("%s v%d: %v", api.Name, v, err)
				}
				checkResponse(t, h, got.ResponseKind())
			}
		}
	}
}

func checkResponse(t *testing.T, h Header, resp kmsg.Response) {
	t.Helper()
	frame := AppendResponse([]byte("x"), h, resp)[1:]
	if n := binary.BigEndian.Uint32(frame); int(n) != len(frame)-4 {
		t.Fatalf("%s v%d: size %d of %d", Name(h.Key), h.Version, n, len(frame)-4)
	}
	if c := binary.BigEndian.Uint32(frame[4:]); c != 77 {
		t.Fatalf("%s v%d: correlation id %d", Name(h.Key), h.Version, c)
	}
	body := frame[8:]
	if resp.IsFlexible() && h.Key != 18 {
		if body[0] != 0 {
			t.Fatalf("%s v%d: header tags %x", Name(h.Key), h.Version, body[0])
		}
		body = body[1:]
	}
	if want := resp.AppendTo(nil); string(want) != string(body) {
		t.Fatalf("%s v%d: answer %x, want %x", Name(h.Key), h.Version, body, want)
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	for _, tc := range []struct{ name, frame, reason string }{
		{"empty", "", "too few"},
		{"cut", "\x00\x12\x00\x00\x00\x00\x00", "too few"},
		{"http", "GET / HTTP/1.1\r\n", "unknown API key"},
		{"removed", "\x00\x07\x00\x00\x00\x00\x00\x01\xff\xff", "unknown API key 7"},
		{"no client id", "\x00\x12\x00\x00\x00\x00\x00\x01", "client id"},
		{"long client id", "\x00\x12\x00\x00\x00\x00\x00\x01\x00\x05abcd", "client id"},
		{"negative client id", "\x00\x12\x00\x00\x00\x00\x00\x01\xff\xfe", "length -2"},
		{"no tags", "\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff", "tagged"},
		{"cut tag", "\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff\x01\x00\x05ab", "tagged"},
		{"many tags", "\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\x0f", "tagged"},
		{"huge tag", "\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "tagged"},
	} {
		_, _, err := ParseHeader([]byte(tc.frame))
		var he *HeaderError
		if !errors.As(err, &he) || !strings.Contains(he.Error(), tc.reason) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	h, body, err := ParseHeader([]byte("\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff\x00rest"))
	if err != nil || h.Version != 99 || string(body) != "rest" {
		t.Errorf("ApiVersions v99: %+v %q %v", h, body, err)
	}
}

func TestReadRequestRefuses(t *testing.T) {
	var uv *UnsupportedVersionError
	if _, err := ReadRequest(Header{Key: 0, Version: 14}, nil); !errors.As(err, &uv) || err.Error() != "Produce version 14 is not supported" {
		t.Errorf("Produce v14: %v", err)
	}
	if _, err := ReadRequest(Header{Key: 56, Version: 1}, nil); !errors.As(err, &uv) {
		t.Errorf("AlterPartition v1: %v", err)
	}
	if _, err := ReadRequest(Header{Key: 7, Version: 0}, nil); !errors.As(err, &uv) {
		t.Errorf("ControlledShutdown: %v", err)
	}
	var be *BodyError
	if _, err := ReadRequest(Header{Key: 1, Version: 4}, []byte{1}); !errors.As(err, &be) {
		t.Errorf("cut Fetch: %v", err)
	}
}

// hostileBodies puts array counts that the body has no bytes for at every place of a small body.
func hostileBodies() [][]byte {
	var bodies [][]byte
	for _, count := range []string{"\x7f\xff\xff\xff", "\x00\x0f\xff\xff", "\xff\xff\xff\xff\x0f", "\xff\xff\x3f", "\x80\x00\x00\x00", "\x81\x80\x80\x80\x08"} {
		for pad := 0; pad < 64; pad++ {
			body := make([]byte, pad)
			body = append(body, count...)
			bodies = append(bodies, body)
		}
	}
	return bodies
}

// No count in a body may make the decoder allocate by itself: what it allocates stays in proportion to the bytes sent.
func TestHostileCountsAllocateLittle(t *testing.T) {
	bodies := hostileBodies()
	for api := range APIs() {
		for v := api.Versions.Min; v <= api.Versions.Max; v++ {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for _, body := range bodies {
				// Whether it decodes does not matter here.
				_, _ = ReadRequest(Header{Key: api.Key, Version: v}, body)
			}
			runtime.ReadMemStats(&after)
			if per := (after.TotalAlloc - before.TotalAlloc) / uint64(len(bodies)); per > 16<<10 {
				t.Errorf("%s v%d: %d bytes for a body of at most 70", api.Name, v, per)
			}
		}
	}
}

// A body filled with the densest elements decodes to a bounded multiple of its size.
func TestLargeHostileBodies(t *testing.T) {
	const size = 1 << 16
	for api := range APIs() {
		v := api.Versions.Max
		for _, fill := range []byte{0, 1, 2} {
			for _, at := range []int{0, 2, 4, 8, 12, 16, 21} {
				body := make([]byte, size)
				for i := range body {
					body[i] = fill
				}
				binary.PutUvarint(body[at:], size/2)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, _ = ReadRequest(Header{Key: api.Key, Version: v}, body)
				runtime.ReadMemStats(&after)
				if n := (after.TotalAlloc - before.TotalAlloc) / size; n > 90 {
					t.Errorf("%s v%d, fill %d at %d: %d times the body", api.Name, v, fill, at, n)
				}
			}
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	for api := range APIs() {
		req := kmsg.RequestForKey(api.Key)
		req.SetVersion(api.Versions.Max)
		f.Add(kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, 1)[4:])
	}
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseHeader(frame)
		if err != nil {
			return
		}
		if len(body) > len(frame)-10 {
			t.Fatalf("body of %d bytes in a frame of %d", len(body), len(frame))
		}
		req, err := ReadRequest(h, body)
		if err == nil && (req.Key() != h.Key || req.GetVersion() != h.Version) {
			t.Fatalf("read %d v%d for %+v", req.Key(), req.GetVersion(), h)
		}
	})
}
