package wire

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata anew")

// testCase is one story told to a node. Its transcript is the expectation.
type testCase struct {
	name string // of the transcript; cases of the list of user cases begin with K and their number
	run  func(s *session)
	// slow cases run with WEIR_FULL=1 only.
	slow bool
	// weirOnly says why Apache Kafka is not asked.
	weirOnly string
	// kafkaOnly says why Weir is not asked.
	kafkaOnly string
	// differs says why our transcript is another than Kafka's.
	differs string
}

// allCases is the table.
func allCases() []testCase {
	return slices.Concat(
		produceCases(), fetchCases(), sessionCases(), oldVersionCases(), offsetCases(), metadataCases(),
		topicCases(), configCases(), clusterCases(), rubbishCases(), restartCases(), groupCases(), txnCases(),
	)
}

func TestWeir(t *testing.T) {
	t.Parallel()
	n := weirNode.get(t)
	for _, c := range allCases() {
		if c.kafkaOnly == "" {
			t.Run(c.name, func(t *testing.T) { runCase(t, n, c) })
		}
	}
}

func TestKafka(t *testing.T) {
	t.Parallel()
	if oracle() == "" {
		t.Skip("Apache Kafka is not compared: WEIR_ORACLE does not name the script that runs it")
	}
	n := kafkaNode.get(t)
	for _, c := range allCases() {
		if c.weirOnly == "" {
			t.Run(c.name, func(t *testing.T) { runCase(t, n, c) })
		}
	}
}

// TestTranscripts finds transcripts that belong to no case, and cases without one.
func TestTranscripts(t *testing.T) {
	want := map[string]bool{}
	for _, c := range allCases() {
		if want[c.name+".txt"] {
			t.Errorf("two cases are named %s", c.name)
		}
		want[c.name+".txt"] = true
		if c.differs != "" {
			want[c.name+".weir.txt"] = true
		}
	}
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !want[e.Name()] {
			t.Errorf("testdata/%s belongs to no case: remove it", e.Name())
		}
		delete(want, e.Name())
	}
	for name := range want {
		if !*rewrite {
			t.Errorf("testdata/%s is missing: run with -rewrite", name)
		}
	}
}

func runCase(t *testing.T, n *node, c testCase) {
	if c.slow && os.Getenv("WEIR_FULL") == "" {
		t.Skip("slow: WEIR_FULL=1 runs it")
	}
	s := newSession(t, n, c.name)
	defer func() {
		s.close()
		if t.Failed() && !s.complete {
			t.Logf("transcript so far:\n%s", s.out.String())
		}
	}()
	c.run(s)
	if t.Failed() {
		return
	}
	s.complete = true
	file := filepath.Join("testdata", c.name+".txt")
	if c.differs != "" && !n.kafka {
		file = filepath.Join("testdata", c.name+".weir.txt")
	}
	got := s.out.String()
	if *rewrite && (n.kafka || c.weirOnly != "" || c.differs != "") {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is missing: run with -rewrite\n%s", file, got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(string(want), got); d != "" {
		t.Errorf("%s (- expected, + answered):\n%s", file, d)
	}
	if c.differs == "" || n.kafka {
		return
	}
	if theirs, err := os.ReadFile(filepath.Join("testdata", c.name+".txt")); err == nil && string(theirs) == got {
		t.Errorf("the answer is Kafka's now: take out the difference %q", c.differs)
	}
}

// diff shows the lines that differ, with what stands around them.
func diff(want, got string) string {
	if want == got {
		return ""
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	common := longestCommon(a, b)
	var out []string
	i, j := 0, 0
	emit := func(sign string, line string) { out = append(out, sign+line) }
	for _, p := range append(common, [2]int{len(a), len(b)}) {
		for ; i < p[0]; i++ {
			emit("-", a[i])
		}
		for ; j < p[1]; j++ {
			emit("+", b[j])
		}
		if i < len(a) {
			emit(" ", a[i])
		}
		i, j = i+1, j+1
	}
	return strings.Join(around(out, 6), "\n")
}

// around keeps the changed lines, n lines beside them, and all headings.
func around(lines []string, n int) []string {
	keep := make([]bool, len(lines))
	for i, l := range lines {
		if l[0] != ' ' {
			for k := max(i-n, 0); k <= min(i+n, len(lines)-1); k++ {
				keep[k] = true
			}
		}
		keep[i] = keep[i] || strings.HasPrefix(l, " >")
	}
	var out []string
	for i, l := range lines {
		if keep[i] {
			out = append(out, l)
		}
	}
	return out
}

// longestCommon pairs the lines that two texts share, in order.
func longestCommon(a, b []string) [][2]int {
	length := make([][]int32, len(a)+1)
	for i := range length {
		length[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var out [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			out = append(out, [2]int{i, j})
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	return out
}

// session is one run of a case against one node.
type session struct {
	*testing.T
	node  *node
	name  string
	c     *conn
	out   strings.Builder
	names *names
	hide  map[string]bool
	since time.Time
	// complete is set when the case ran to its end.
	complete bool
}

func newSession(t *testing.T, n *node, name string) *session {
	c, err := dial(n.main)
	if err != nil {
		t.Fatal(err)
	}
	return &session{T: t, node: n, name: name, c: c, names: newNames(n), hide: map[string]bool{}, since: time.Now()}
}

func (s *session) close() { s.c.Close() }

// topic is a name that no other case uses.
func (s *session) topic(suffix string) string { return strings.ToLower(s.name) + "-" + suffix }

// dial opens another connection to the first listener.
func (s *session) dial() *conn { return s.dialTo(s.node.main) }

func (s *session) dialTo(addr string) *conn {
	s.Helper()
	c, err := dial(addr)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

// note writes a line of the transcript.
func (s *session) note(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

// ask sends a request and returns the answer; the transcript is left alone.
func (s *session) ask(req kmsg.Request, version int16) kmsg.Response {
	s.Helper()
	res, err := s.c.do(req, version)
	if err != nil {
		s.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	return res
}

// do sends a request and writes the answer down.
func (s *session) do(what string, req kmsg.Request, version int16) kmsg.Response {
	s.Helper()
	res := s.ask(req, version)
	s.show(what, res)
	return res
}

// try is do for a request that may cost the connection.
func (s *session) try(what string, req kmsg.Request, version int16) {
	s.Helper()
	res, err := s.c.do(req, version)
	if err == nil {
		s.show(what, res)
		return
	}
	s.note("> %s · %s v%d\n  the connection is closed", what, kmsg.NameForKey(req.Key()), version)
	s.c.Close()
	s.c = s.dial()
}

// hiding leaves fields out of what follows, by name: those that say nothing here.
func (s *session) hiding(fields ...string) *session {
	for _, f := range fields {
		s.hide[f] = true
	}
	return s
}

// show writes an answer down.
func (s *session) show(what string, res kmsg.Response) {
	order(res)
	s.note("> %s · %s v%d", what, kmsg.NameForKey(res.Key()), res.GetVersion())
	p := printer{out: &s.out, names: s.names, hide: s.hide, since: s.since}
	p.message(res)
}

// order sorts rows whose order in Kafka's answers is that of a hash table.
func order(res kmsg.Response) {
	switch r := res.(type) {
	case *kmsg.ProduceResponse:
		slices.SortStableFunc(r.Topics, func(a, b kmsg.ProduceResponseTopic) int { return cmp.Compare(a.Topic, b.Topic) })
		for _, t := range r.Topics {
			slices.SortStableFunc(t.Partitions, func(a, b kmsg.ProduceResponseTopicPartition) int { return cmp.Compare(a.Partition, b.Partition) })
		}
	case *kmsg.CreateTopicsResponse:
		slices.SortStableFunc(r.Topics, func(a, b kmsg.CreateTopicsResponseTopic) int { return cmp.Compare(a.Topic, b.Topic) })
		for _, t := range r.Topics {
			slices.SortStableFunc(t.Configs, func(a, b kmsg.CreateTopicsResponseTopicConfig) int { return cmp.Compare(a.Name, b.Name) })
		}
	case *kmsg.DeleteTopicsResponse:
		slices.SortStableFunc(r.Topics, func(a, b kmsg.DeleteTopicsResponseTopic) int { return cmp.Compare(str(a.Topic), str(b.Topic)) })
	case *kmsg.MetadataResponse:
		slices.SortStableFunc(r.Topics, func(a, b kmsg.MetadataResponseTopic) int { return cmp.Compare(str(a.Topic), str(b.Topic)) })
	case *kmsg.ListOffsetsResponse:
		for _, t := range r.Topics {
			slices.SortStableFunc(t.Partitions, func(a, b kmsg.ListOffsetsResponseTopicPartition) int { return cmp.Compare(a.Partition, b.Partition) })
		}
	case *kmsg.AddPartitionsToTxnResponse:
		orderAdded(r)
	case *kmsg.DescribeTransactionsResponse:
		for _, x := range r.TransactionStates {
			slices.SortFunc(x.Topics, func(a, b kmsg.DescribeTransactionsResponseTransactionStateTopic) int {
				return cmp.Compare(a.Topic, b.Topic)
			})
			for _, t := range x.Topics {
				slices.Sort(t.Partitions)
			}
		}
	case *kmsg.JoinGroupResponse:
		slices.SortStableFunc(r.Members, func(a, b kmsg.JoinGroupResponseMember) int {
			return cmp.Or(cmp.Compare(str(a.InstanceID), str(b.InstanceID)), bytes.Compare(a.ProtocolMetadata, b.ProtocolMetadata))
		})
	case *kmsg.OffsetFetchResponse:
		for i := range r.Groups {
			orderOffsets(&r.Groups[i])
		}
		slices.SortStableFunc(r.Topics, func(a, b kmsg.OffsetFetchResponseTopic) int { return cmp.Compare(a.Topic, b.Topic) })
		for _, t := range r.Topics {
			slices.SortStableFunc(t.Partitions, func(a, b kmsg.OffsetFetchResponseTopicPartition) int { return cmp.Compare(a.Partition, b.Partition) })
		}
	case *kmsg.DescribeGroupsResponse:
		slices.SortStableFunc(r.Groups, func(a, b kmsg.DescribeGroupsResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
		for _, g := range r.Groups {
			slices.SortStableFunc(g.Members, func(a, b kmsg.DescribeGroupsResponseGroupMember) int {
				return cmp.Or(cmp.Compare(str(a.InstanceID), str(b.InstanceID)), bytes.Compare(a.ProtocolMetadata, b.ProtocolMetadata), bytes.Compare(a.MemberAssignment, b.MemberAssignment))
			})
		}
	case *kmsg.DescribeConfigsResponse:
		for _, x := range r.Resources {
			slices.SortStableFunc(x.Configs, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int { return cmp.Compare(a.Name, b.Name) })
		}
	}
}

// orderOffsets is order of one group. Topics without names, from v10 on, are told
// apart by what stands in them.
func orderOffsets(g *kmsg.OffsetFetchResponseGroup) {
	slices.SortStableFunc(g.Topics, func(a, b kmsg.OffsetFetchResponseGroupTopic) int {
		by := cmp.Compare(a.Topic, b.Topic)
		if by == 0 && len(a.Partitions) > 0 && len(b.Partitions) > 0 {
			by = cmp.Or(cmp.Compare(a.Partitions[0].ErrorCode, b.Partitions[0].ErrorCode), cmp.Compare(a.Partitions[0].Offset, b.Partitions[0].Offset))
		}
		return by
	})
	for _, t := range g.Topics {
		slices.SortStableFunc(t.Partitions, func(a, b kmsg.OffsetFetchResponseGroupTopicPartition) int {
			return cmp.Compare(a.Partition, b.Partition)
		})
	}
}

// eventually asks until ok; real processes leave no other way.
func (s *session) eventually(what string, ok func() bool) {
	s.Helper()
	deadline := time.Now().Add(answerWithin)
	for !ok() {
		if time.Now().After(deadline) {
			s.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(10 * time.Millisecond) // another process works: there is no event to wait for
	}
}

// create makes a topic and returns its id, when it can be written and read.
func (s *session) create(topic string, partitions int32, configs ...string) [16]byte {
	s.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, partitions, 1
	for i := 0; i+1 < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	req.Topics, req.TimeoutMillis = append(req.Topics, t), 10_000
	r := s.ask(req, 7).(*kmsg.CreateTopicsResponse).Topics[0]
	if r.ErrorCode != 0 {
		s.Fatalf("cannot create %s: %d %v", topic, r.ErrorCode, str(r.ErrorMessage))
	}
	s.eventually(topic+" has leaders", func() bool { return s.leads(topic, partitions) })
	return r.TopicID
}

// leads tells whether every partition answers for its log end.
func (s *session) leads(topic string, partitions int32) bool {
	for p := range partitions {
		if r := s.listOffset(topic, p, -1); r.ErrorCode != 0 {
			return false
		}
	}
	return true
}

// listOffset asks for one offset by time.
func (s *session) listOffset(topic string, p int32, ts int64) kmsg.ListOffsetsResponseTopicPartition {
	s.Helper()
	return s.ask(listOffsets(topic, p, ts), 7).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
}

// logEnd is the next offset of a partition.
func (s *session) logEnd(topic string, p int32) int64 { return s.listOffset(topic, p, -1).Offset }

func str(p *string) string {
	if p == nil {
		return "null"
	}
	return *p
}
