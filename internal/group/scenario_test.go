package group

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/group/consumer"
	"weir/internal/image"
	"weir/internal/rng"
)

// sim is one partition: a core, its state, and its log, which commits at once.
type sim struct {
	config Config
	core   *Core
	state  *State
	log    [][]Record // batches
	end    int64
	now    time.Time
	refuse *kerr.Error // of the next append
	late   bool        // the next append is not committed in time, but is later
	out    strings.Builder
	ids    map[string]string // label of a client → member id
	gens   map[string]int32  // the generation it was told last

	// Of consumer groups: the cluster, their settings, and what each client was assigned last.
	image     *image.Image
	newTopics int64
	own       consumer.Settings
	has       map[string][]kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic
}

var simStart = time.UnixMilli(1_000_000_000_000)

func newSim() *sim {
	s := &sim{
		config: Config{
			Classic: classic.Config{MaxSize: 3, InitialDelay: 3 * time.Second}, MinSession: 6 * time.Second, MaxSession: 30 * time.Minute,
			Retention: time.Hour, CheckEvery: 10 * time.Minute, MaxMetadata: 8,
		},
		state: NewState(), now: simStart, ids: map[string]string{}, gens: map[string]int32{}, image: image.New(),
		own: consumer.Settings{Session: 45 * time.Second, Heartbeat: 5 * time.Second},
		has: map[string][]kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{},
	}
	s.config.Consumer, s.config.Settings = consumerConfig(), s.settings
	s.core = New(&s.config, rng.New(1))
	return s
}

// step runs one step of the core as package coordinator does.
func (s *sim) step(f func(Step) Result) {
	r := f(s.now0())
	for _, n := range r.Notes {
		s.printf("note: %s\n", n)
	}
	for _, w := range r.Waits {
		s.printf("note: group %s: %v waits for %s\n", w.Group, w.State, s.waiting(w))
	}
	var failed *kerr.Error
	if len(r.Records) > 0 {
		late := s.late
		if failed, s.refuse, s.late = s.refuse, nil, false; failed == nil {
			for i := range r.Records {
				r.Records[i].Delta = int32(i)
				s.printf("write %s\n", s.show(&r.Records[i]))
			}
			s.log = append(s.log, r.Records)
			s.state = s.state.Apply(s.end, r.Records)
			s.end += int64(len(r.Records))
			if late {
				failed = kerr.CoordinatorNotAvailable
				s.printf("not committed in time\n")
			}
		} else {
			s.printf("append refused: %s\n", failed.Message)
		}
	}
	for _, a := range r.Answers {
		if failed != nil {
			a = Refuse(a, failed)
		}
		a.To(a.Response)
	}
	if r.Resolve != nil {
		defer s.resolve(r.Resolve)
	}
	if r.Then != nil {
		s.step(func(now Step) Result { return r.Then(now, failed) })
	}
}

func (s *sim) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for label, id := range s.ids {
		text = strings.ReplaceAll(text, id, "<"+label+">")
	}
	s.out.WriteString(text)
}

func (s *sim) show(r *Record) string {
	switch {
	case r.Consumer != nil:
		return s.showConsumer(r.Consumer)
	case r.Group != nil && r.Group.Value == nil:
		return fmt.Sprintf("group %q: gone", r.Group.ID)
	case r.Group != nil:
		v := r.Group.Value
		text := fmt.Sprintf("group %q: type %q protocol %s leader %s generation %d", r.Group.ID, v.ProtocolType, opt(v.Protocol), opt(v.Leader), v.Generation)
		for _, m := range v.Members {
			text += fmt.Sprintf("\n  %s instance %s session %d rebalance %d assignment %q", m.MemberID, opt(m.GroupInstanceID), m.SessionTimeout, m.RebalanceTimeout, m.Assignment)
		}
		return text
	case r.Offset.Value == nil:
		return fmt.Sprintf("offset %v: gone", r.Offset.Key)
	}
	return fmt.Sprintf("offset %v: %d %q", r.Offset.Key, r.Offset.Value.Offset, r.Offset.Value.Metadata)
}

func opt(s *string) string {
	if s == nil {
		return "null"
	}
	return strconv.Quote(*s)
}

func errorName(code int16) string {
	if e, ok := kerr.ErrorForCode(code).(*kerr.Error); ok && code != 0 {
		return e.Message
	}
	return "ok"
}

// waiter prints the answer to a client.
func (s *sim) waiter(label string) classic.Waiter {
	return func(r kmsg.Response) {
		switch m := r.(type) {
		case *kmsg.JoinGroupResponse:
			if m.MemberID != "" && (m.ErrorCode == 0 || m.ErrorCode == kerr.MemberIDRequired.Code) {
				s.ids[label], s.gens[label] = m.MemberID, m.Generation
			}
			var members []string
			for _, x := range m.Members {
				members = append(members, x.MemberID)
			}
			s.printf("%s: join %s generation %d protocol %s leader %q skip %v members %v\n", label, errorName(m.ErrorCode), m.Generation, opt(m.Protocol), m.LeaderID, m.SkipAssignment, members)
		case *kmsg.SyncGroupResponse:
			s.printf("%s: sync %s %q\n", label, errorName(m.ErrorCode), m.MemberAssignment)
		case *kmsg.ConsumerGroupHeartbeatResponse:
			s.beaten(label, m)
		case *kmsg.HeartbeatResponse:
			s.printf("%s: heartbeat %s\n", label, errorName(m.ErrorCode))
		case *kmsg.LeaveGroupResponse:
			s.printf("%s: leave %s", label, errorName(m.ErrorCode))
			for _, x := range m.Members {
				s.printf(" %q %s", x.MemberID, errorName(x.ErrorCode))
			}
			s.printf("\n")
		case *kmsg.OffsetCommitResponse:
			s.printf("%s: commit", label)
			for _, t := range m.Topics {
				for _, p := range t.Partitions {
					s.printf(" %s-%d %s", t.Topic, p.Partition, errorName(p.ErrorCode))
				}
			}
			s.printf("\n")
		case *kmsg.OffsetDeleteResponse:
			s.printf("%s: delete offsets %s", label, errorName(m.ErrorCode))
			for _, t := range m.Topics {
				for _, p := range t.Partitions {
					s.printf(" %s-%d %s", t.Topic, p.Partition, errorName(p.ErrorCode))
				}
			}
			s.printf("\n")
		}
	}
}

// after lets time pass, deadline by deadline.
func (s *sim) after(d time.Duration) {
	to := s.now.Add(d)
	for {
		at := s.core.Next()
		if at.IsZero() || at.After(to) {
			break
		}
		if at.After(s.now) {
			s.now = at
			s.printf("at +%v\n", s.now.Sub(simStart))
		}
		s.step(s.core.Due)
	}
	s.now = to
}

// restart begins anew from the log, as another broker would.
func (s *sim) restart() {
	for _, a := range s.core.Lost() {
		a.To(a.Response)
	}
	s.state = replay(s.log)
	s.core = New(&s.config, rng.New(2))
	s.step(s.core.Activate)
}

// replay is the state that the bytes of the records give.
func replay(log [][]Record) *State {
	st, end := NewState(), int64(0)
	for _, b := range log {
		var recs []Record
		for i := range b {
			r := b[i]
			if r.Marker == nil {
				key, value := r.Append(nil)
				var err error
				if r, err = ParseRecord(r.Producer, key, value); err != nil {
					panic(err)
				}
				r.Delta = int32(i)
			}
			recs = append(recs, r)
		}
		st = st.Apply(end, recs)
		end += int64(len(b))
	}
	return st
}

// dump is all there is in a state.
func (s *State) dump() string {
	var b strings.Builder
	for id, v := range s.Groups() {
		fmt.Fprintf(&b, "group %s %+v\n", id, *v)
		for i := range v.Members {
			fmt.Fprintf(&b, "  instance %s\n", opt(v.Members[i].GroupInstanceID))
		}
	}
	b.WriteString(s.dumpConsumers())
	for id, o := range all(s.offsets) {
		for tp, v := range all(o) {
			fmt.Fprintf(&b, "offset %s %v %+v\n", id, tp, *v)
		}
	}
	for id, p := range all(s.open) {
		for k, v := range all(p) {
			fmt.Fprintf(&b, "open %d %v %+v\n", id, k, *v)
		}
	}
	return b.String()
}

func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newSim()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.command(t, d)
			if err := s.checkConsumers(); err != nil {
				t.Errorf("%s: %v", d.Pos, err)
			}
			if got, want := replay(s.log).dump(), s.state.dump(); stripPointers(got) != stripPointers(want) {
				t.Errorf("%s: the state from the records differs:\n%s\nlive:\n%s", d.Pos, got, want)
			}
			return s.out.String()
		})
	})
}

// stripPointers leaves out addresses, which %+v prints for pointers.
func stripPointers(s string) string {
	var out []string
	for _, w := range strings.Fields(s) {
		if i := strings.Index(w, "0x"); i >= 0 {
			w = w[:i]
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

// args are the words of a command: the first ones without "=", then key=value.
type args struct {
	*testing.T
	words []string
	kv    map[string]string
}

func parse(t *testing.T, d *datadriven.TestData) args {
	a := args{T: t, kv: map[string]string{}}
	for _, x := range d.CmdArgs {
		if len(x.Vals) == 0 {
			a.words = append(a.words, x.Key)
		} else {
			a.kv[x.Key] = strings.Join(x.Vals, ",")
		}
	}
	return a
}

func (a args) get(key, def string) string {
	if v, ok := a.kv[key]; ok {
		return v
	}
	return def
}

func (a args) num(key string, def int64) int64 {
	n, err := strconv.ParseInt(a.get(key, strconv.FormatInt(def, 10)), 10, 64)
	if err != nil {
		a.Fatal(err)
	}
	return n
}

func (a args) opt(key string) *string {
	if v, ok := a.kv[key]; ok {
		return &v
	}
	return nil
}

func (s *sim) id(a args, label string) string { return a.get("id", s.ids[label]) }

func (s *sim) gen(a args, label string) int32 {
	return int32(a.num("generation", int64(s.gens[label])))
}

func (s *sim) command(t *testing.T, d *datadriven.TestData) {
	a := parse(t, d)
	word := func(i int) string {
		if i >= len(a.words) {
			t.Fatalf("%s: %s has no word %d", d.Pos, d.Cmd, i)
		}
		return a.words[i]
	}
	switch d.Cmd {
	case "join":
		s.join(a, word(0))
	case "sync":
		s.sync(a, word(0))
	case "heartbeat":
		q := kmsg.NewPtrHeartbeatRequest()
		q.Version, q.Group, q.MemberID, q.Generation, q.InstanceID = 4, a.get("group", "g"), s.id(a, word(0)), s.gen(a, word(0)), a.opt("instance")
		s.step(func(st Step) Result { return s.core.Heartbeat(st, q, s.waiter(word(0))) })
	case "leave":
		s.leave(a)
	case "commit":
		s.commit(a)
	case "fetch":
		q := kmsg.NewOffsetFetchRequestGroup()
		q.Group = a.get("group", "g")
		for _, topic := range s.state.Fetch(&q, a.get("stable", "") != "").Topics {
			for _, p := range topic.Partitions {
				s.printf("%s-%d %d %s %s\n", topic.Topic, p.Partition, p.Offset, opt(p.Metadata), errorName(p.ErrorCode))
			}
		}
	case "delete-offsets":
		q := kmsg.NewPtrOffsetDeleteRequest()
		q.Group = a.get("group", "g")
		topic := kmsg.NewOffsetDeleteRequestTopic()
		topic.Topic, topic.Partitions = word(0), []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 1}}
		q.Topics = append(q.Topics, topic)
		s.step(func(st Step) Result { return s.core.DeleteOffsets(st, q, s.waiter("admin")) })
	case "delete":
		var refused *kerr.Error
		s.step(func(st Step) (r Result) { r, refused = s.core.DeleteGroup(st, word(0)); return r })
		if refused != nil {
			s.printf("refused: %s\n", refused.Message)
		}
	case "topic-deleted":
		s.step(func(st Step) Result { return s.core.TopicsDeleted(st, []DeletedTopic{{Name: word(0)}}) })
	default:
		if !s.consumerCommand(a, d.Cmd, word) {
			s.control(t, d, a, word)
		}
	}
}

// control are the commands that are no requests.
func (s *sim) control(t *testing.T, d *datadriven.TestData, a args, word func(int) string) {
	switch d.Cmd {
	case "describe":
		s.describe(word(0), int16(a.num("v", 6)))
	case "list":
		for _, g := range s.core.List(s.now0(), words(a.get("states", "")), words(a.get("types", ""))) {
			s.printf("%s %q %s %s\n", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
		}
	case "after":
		dur, err := time.ParseDuration(word(0))
		if err != nil {
			t.Fatal(err)
		}
		s.after(dur)
	case "restart":
		s.restart()
	case "refuse":
		s.refuse = kerr.CoordinatorNotAvailable
	case "late":
		s.late = true
	case "forget":
		delete(s.ids, word(0))
	case "state":
		s.out.WriteString(fmt.Sprintf("%d groups, %d offsets, %d timers, soft: %v\n", s.state.NumGroups(), s.state.NumOffsets(), s.core.soft.timers.Len(), slices.Sorted(maps.Keys(s.core.soft.groups))))
	case "transaction":
		s.transaction(a)
	default:
		t.Fatalf("%s: no command %s", d.Pos, d.Cmd)
	}
}

func words(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func (s *sim) join(a args, label string) {
	q := kmsg.NewPtrJoinGroupRequest()
	q.Version, q.Group, q.MemberID = int16(a.num("v", 9)), a.get("group", "g"), s.id(a, label)
	q.SessionTimeoutMillis, q.RebalanceTimeoutMillis = int32(a.num("session", 10_000)), int32(a.num("rebalance", 60_000))
	q.InstanceID, q.ProtocolType, q.Reason = a.opt("instance"), a.get("type", "consumer"), a.opt("reason")
	for _, name := range words(a.get("protocols", "range")) {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, subscribing(a.get("topics", "t"))
		q.Protocols = append(q.Protocols, p)
	}
	s.step(func(st Step) Result {
		return s.core.Join(st, q, classic.Client{ID: label, Host: "/192.0.2.1"}, s.waiter(label))
	})
}

// subscribing is a consumer's subscription, version 0.
func subscribing(topics string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = words(topics)
	return m.AppendTo(nil)
}

func (s *sim) sync(a args, label string) {
	q := kmsg.NewPtrSyncGroupRequest()
	q.Version, q.Group, q.MemberID, q.Generation, q.InstanceID = 5, a.get("group", "g"), s.id(a, label), s.gen(a, label), a.opt("instance")
	q.ProtocolType, q.Protocol = a.opt("type"), a.opt("protocol")
	for _, x := range words(a.get("assign", "")) {
		to, what, _ := strings.Cut(x, ":")
		e := kmsg.NewSyncGroupRequestGroupAssignment()
		e.MemberID, e.MemberAssignment = s.ids[to], assigning(what)
		q.GroupAssignment = append(q.GroupAssignment, e)
	}
	s.step(func(st Step) Result { return s.core.Sync(st, q, s.waiter(label)) })
}

// assigning is a consumer's assignment, version 1, of "@t/0/1", else the text itself.
func assigning(what string) []byte {
	text, ok := strings.CutPrefix(what, "@")
	if !ok {
		return []byte(what)
	}
	parts := strings.Split(text, "/")
	m := kmsg.NewConsumerMemberAssignment()
	m.Version = 1
	t := kmsg.NewConsumerMemberAssignmentTopic()
	t.Topic = parts[0]
	for _, p := range parts[1:] {
		n, err := strconv.Atoi(p)
		if err != nil {
			panic(err)
		}
		t.Partitions = append(t.Partitions, int32(n))
	}
	m.Topics = append(m.Topics, t)
	return m.AppendTo(nil)
}

func (s *sim) leave(a args) {
	q := kmsg.NewPtrLeaveGroupRequest()
	q.Version, q.Group = int16(a.num("v", 5)), a.get("group", "g")
	for _, label := range a.words {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID, m.InstanceID = s.id(a, label), a.opt("instance")
		q.MemberID, q.Members = m.MemberID, append(q.Members, m)
	}
	s.step(func(st Step) Result { return s.core.Leave(st, q, s.waiter(strings.Join(a.words, "+"))) })
}

func (s *sim) commit(a args) {
	label := a.words[0]
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Version, q.Group, q.MemberID, q.Generation, q.InstanceID = int16(a.num("v", 9)), a.get("group", "g"), s.id(a, label), -1, a.opt("instance")
	if q.MemberID != "" {
		q.Generation = s.gen(a, label)
	}
	q.RetentionTimeMillis = a.num("retention", -1)
	for _, w := range a.words[1:] {
		topic, offset, _ := strings.Cut(w, ":")
		n, err := strconv.ParseInt(offset, 10, 64)
		if err != nil {
			a.Fatal(err)
		}
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = topic
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset, p.Metadata, p.Timestamp = n, a.opt("metadata"), a.num("timestamp", -1)
		t.Partitions = append(t.Partitions, p)
		q.Topics = append(q.Topics, t)
	}
	s.step(func(st Step) Result { return s.core.Commit(st, q, s.waiter(label)) })
}

// transaction writes what a transactional producer does: "transaction 7 t:5" or
// "transaction 7 end=commit".
func (s *sim) transaction(a args) {
	id, err := strconv.ParseInt(a.words[0], 10, 64)
	if err != nil {
		a.Fatal(err)
	}
	var recs []Record
	for i, w := range a.words[1:] {
		topic, offset, _ := strings.Cut(w, ":")
		n, err := strconv.ParseInt(offset, 10, 64)
		if err != nil {
			a.Fatal(err)
		}
		recs = append(recs, Record{Producer: id, Delta: int32(i), Offset: &OffsetRecord{
			Key: OffsetKey{a.get("group", "g"), TopicPartition{topic, 0}}, Value: &Offset{Offset: n, LeaderEpoch: -1, CommitMs: s.now.UnixMilli(), ExpireMs: -1},
		}})
	}
	if end := a.get("end", ""); end != "" {
		recs = append(recs, Record{Producer: id, Delta: int32(len(recs)), Marker: &Marker{Commit: end == "commit"}})
	}
	s.step(func(Step) Result { return Result{Records: nil} })
	s.log = append(s.log, recs)
	s.state = s.state.Apply(s.end, recs)
	s.end += int64(len(recs))
}

func (s *sim) describe(id string, version int16) {
	g, missing := s.core.Describe(s.now0(), id, version)
	s.printf("%s %s type %q protocol %q\n", errorName(g.ErrorCode), g.State, g.ProtocolType, g.Protocol)
	for _, m := range g.Members {
		s.printf("  %s instance %s client %q %q assignment %q\n", m.MemberID, opt(m.InstanceID), m.ClientID, m.ClientHost, m.MemberAssignment)
	}
	if missing != nil {
		s.printf("  waits for %s\n", s.waiting(missing))
	}
}

// waiting shows whom a rebalance waits for, and for how much longer.
func (s *sim) waiting(w *classic.Missing) string {
	names := w.Names()
	slices.Sort(names)
	return fmt.Sprintf("[%s] since %v, for %v more: %s", strings.Join(names, ", "), w.For, w.Until.Sub(s.now), w.Why)
}
