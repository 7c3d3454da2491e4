package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func rubbishCases() []testCase {
	return []testCase{
		{name: "rubbish-frames", run: rubbishFrames},
		{name: "rubbish-client-id", run: rubbishClientID, differs: "only -1 is null to us, any negative length is to Kafka"},
		{name: "rubbish-bodies", run: rubbishBodies},
		{name: "wrong-versions", run: wrongVersions},
		{name: "disconnects", run: disconnects},
		{name: "disconnects-goroutines", run: goroutines, weirOnly: "it counts goroutines"},
	}
}

// framed puts a size in front.
func framed(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

// header is a request header v1.
func header(key, version int16, client string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 7)
	b = binary.BigEndian.AppendUint16(b, uint16(len(client)))
	return append(b, client...)
}

// closes sends bytes on a connection of their own and notes what becomes of it.
func (s *session) closes(what string, raw []byte) {
	s.Helper()
	c := s.dial()
	if _, err := c.Write(raw); err != nil {
		s.note("%s: closed while writing", what)
		return
	}
	closed, err := c.closedByPeer(3 * time.Second)
	if err != nil {
		s.note("%s: %v", what, err)
		return
	}
	s.note("%s: closed=%t", what, closed)
	s.lives()
}

// lives makes sure that other connections and the node go on.
func (s *session) lives() {
	s.Helper()
	if s.ask(apiVersionsRequest(), 3).(*kmsg.ApiVersionsResponse).ErrorCode != 0 {
		s.Error("the node does not answer any more")
	}
}

func rubbishFrames(s *session) {
	size := func(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	s.closes("size -1", size(-1))
	s.closes("size -2147483648", size(-2147483648))
	s.closes("size 2147483647", size(2147483647))
	s.closes("size beyond socket.request.max.bytes", size(20_000_001))
	s.closes("size 0", size(0))
	s.closes("size 3", append(size(3), 1, 2, 3))
	s.closes("a text of another protocol", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	s.closes("a TLS hello", append([]byte{0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3}, make([]byte, 300)...))
	s.closes("zeros", make([]byte, 64))
	s.closes("unknown key 999", framed(header(999, 0, "x")))
	s.closes("key -1", framed(header(-1, 0, "x")))
	s.closes("LeaderAndIsr, which is no more", framed(header(4, 0, "x")))
	s.closes("Vote, which is for controllers", framed(append(header(52, 0, "x"), make([]byte, 40)...)))
	cut := framed(header(3, 0, "client"))
	binary.BigEndian.PutUint32(cut, 10)
	s.closes("a client id longer than the frame", cut[:14])
}

func rubbishClientID(s *session) {
	neg := header(3, 0, "")
	binary.BigEndian.PutUint16(neg[8:], 0x8000)
	s.closes("a client id of length -32768", framed(append(neg, 0, 0, 0, 0)))
}

func rubbishBodies(s *session) {
	body := func(key, version int16, flexible bool, b ...byte) []byte {
		h := header(key, version, "x")
		if flexible {
			h = append(h, 0)
		}
		return framed(append(h, b...))
	}
	s.closes("metadata, cut", body(3, 1, false, 0, 0, 0, 1, 0, 10))
	s.closes("metadata, a huge array", body(3, 1, false, 0x7f, 0xff, 0xff, 0xff))
	s.closes("metadata, an array of -5", body(3, 1, false, 0xff, 0xff, 0xff, 0xfb))
	s.closes("metadata v12, a huge compact array", body(3, 12, true, 0xff, 0xff, 0xff, 0xff, 0x0f))
	s.closes("metadata v12, an endless varint", body(3, 12, true, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
	s.closes("metadata, a null name", body(3, 1, false, 0, 0, 0, 1, 0xff, 0xff))
	s.closes("produce, records longer than the frame", body(0, 7, false, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 10, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 0, 0x7f, 0, 0, 0))
	s.closes("fetch, nothing but a header", body(1, 11, false))
	s.closes("fetch v12, tags that lie", body(1, 12, true, 0xff, 0xff))
	s.closes("create topics, a million topics", body(19, 4, false, 0, 0x0f, 0x42, 0x40))
	s.closes("list offsets, a string of -2", body(2, 1, false, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xfe))
	random := uint32(12345)
	noise := make([]byte, 200)
	for i := range noise {
		random = random*1664525 + 1013904223
		noise[i] = byte(random >> 24)
	}
	for _, key := range []int16{0, 1, 2, 3, 19, 32, 44} {
		s.closes(fmt.Sprintf("noise as API %d", key), body(key, 3, false, noise...))
	}
}

func wrongVersions(s *session) {
	for _, key := range []int16{0, 1, 2, 3, 19, 22, 32, 60, 75} {
		req := kmsg.RequestForKey(key)
		req.SetVersion(req.MaxVersion())
		c := s.dial()
		b := c.frame(req)
		binary.BigEndian.PutUint16(b[6:], 99)
		s.closes(fmt.Sprintf("%s v99", kmsg.NameForKey(key)), b)
		binary.BigEndian.PutUint16(b[6:], 0xffff)
		s.closes(fmt.Sprintf("%s v-1", kmsg.NameForKey(key)), b)
	}
}

// disconnects: clients go away in the middle of everything.
func disconnects(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	for range 30 {
		s.leave(fetch(30_000, 1, part{topic: t, id: id}), 13)
	}
	half := framed(append(header(0, 9, "x"), make([]byte, 5000)...))
	for range 10 {
		c := s.dial()
		if _, err := c.Write(half[:100]); err != nil {
			s.Fatal(err)
		}
		c.Close()
	}
	s.do("all is well", produce(-1, part{topic: t, records: plain(kv("a", "1"))}), 9)
	s.lives()
}

// leave sends a request and hangs up at once.
func (s *session) leave(req kmsg.Request, v int16) {
	c := s.dial()
	req.SetVersion(v)
	if _, err := c.send(req); err != nil {
		s.Fatal(err)
	}
	c.Close()
}

// goroutines: a client that hangs up in a long poll leaves nothing behind.
func goroutines(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	before := s.countGoroutines()
	var open []*conn
	for range 100 {
		c := s.dial()
		req := inSession(fetch(60_000, 1, part{topic: t, id: id}), 0, 0)
		req.SetVersion(13)
		if _, err := c.send(req); err != nil {
			s.Fatal(err)
		}
		open = append(open, c)
	}
	s.eventually("all of them wait", func() bool { return s.countGoroutines() >= before+100 })
	for _, c := range open {
		c.Close()
	}
	s.eventually("nothing is left of them", func() bool { return s.countGoroutines() <= before+5 })
	s.note("nothing is left")
}

func (s *session) countGoroutines() int {
	s.Helper()
	res, err := http.Get("http://" + s.node.http + "/metrics")
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^go_goroutines (\d+)`).FindSubmatch(text)
	if m == nil {
		s.Fatalf("no go_goroutines in %d bytes of metrics", len(text))
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		s.Fatal(err)
	}
	return n
}
