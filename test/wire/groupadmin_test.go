package wire

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/group/consumer"
	"weir/internal/records"
)

func groupAdminCases() []testCase {
	return []testCase{
		{name: "describe-groups", run: describeGroupsCase},
		{name: "list-groups", run: listGroupsCase},
		{name: "delete-groups", run: deleteGroupsCase},
		{name: "K28-consumer-offsets", run: consumerOffsetsRecords},
		{name: "group-configs", run: groupConfigs},
		{name: "list-config-resources", run: listConfigResources},
		{name: "group-waiting", run: waitingIsTold, slow: true, weirOnly: "the log and the metrics are ours"},
	}
}

func describeGroupsCase(s *session) {
	g, empty := s.group("g"), s.group("empty")
	s.alone(g)
	a, _ := s.alone(empty)
	s.ask(leaveGroup(empty, leaver{member: a}), 5)
	offsets, t := s.group("offsets"), s.topic("t")
	id := s.create(t, 1)
	s.ask(commitSpots(offsets, spot{t, id, 0, 5, nil}), 9)
	for v := int16(0); v <= 6; v++ {
		s.do("several", describeGroups(g, empty, offsets, "no-such-group", ""), v)
		s.do("one twice", describeGroups(empty, empty), v)
		s.do("none", describeGroups(), v)
		if v >= 3 {
			req := describeGroups(g, "no-such-group")
			req.IncludeAuthorizedOperations = true
			s.do("authorized operations", req, v)
		}
	}
}

func listGroups(states, types []string) *kmsg.ListGroupsRequest {
	req := kmsg.NewPtrListGroupsRequest()
	req.StatesFilter, req.TypesFilter = states, types
	return req
}

// list shows the groups of this case.
func (s *session) list(what string, req *kmsg.ListGroupsRequest, version int16) {
	s.Helper()
	res := s.ask(req, version).(*kmsg.ListGroupsResponse)
	res.Groups = slices.DeleteFunc(res.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return !strings.HasPrefix(g.Group, s.topic("")) })
	slices.SortFunc(res.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
	s.show(what, res)
}

func listGroupsCase(s *session) {
	g, empty, assigning, offsets := s.group("stable"), s.group("empty"), s.group("assigning"), s.group("offsets")
	t := s.topic("t")
	id := s.create(t, 1)
	s.ask(commitSpots(offsets, spot{t, id, 0, 5, nil}), 9)
	s.alone(g)
	a, _ := s.alone(empty)
	s.ask(leaveGroup(empty, leaver{member: a}), 5)
	s.newMember(joinGroup(assigning, ""), 9)
	s.memberID(s.group("pending"))
	for v := int16(0); v <= 5; v++ {
		s.list("all", listGroups(nil, nil), v)
		if v < 4 {
			continue
		}
		for _, states := range [][]string{{"Stable"}, {"stable", "EMPTY"}, {"CompletingRebalance"}, {"PreparingRebalance"}, {"Dead"}, {"Assigning"}, {"nonsense"}, {""}, {" Stable "}} {
			s.list(fmt.Sprintf("states %q", states), listGroups(states, nil), v)
		}
	}
	for _, types := range [][]string{{"classic"}, {"Classic", "consumer"}, {"consumer"}, {"share"}, {"streams"}, {"nonsense"}, {""}, {"unknown"}} {
		s.list(fmt.Sprintf("types %q", types), listGroups(nil, types), 5)
	}
	s.list("both filters", listGroups([]string{"Empty"}, []string{"classic"}), 5)
}

func deleteGroups(groups ...string) *kmsg.DeleteGroupsRequest {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = groups
	return req
}

func deleteGroupsCase(s *session) {
	t := s.topic("t")
	id := s.create(t, 1)
	for v := int16(0); v <= 2; v++ {
		full, empty, offsets := s.group(fmt.Sprint("full", v)), s.group(fmt.Sprint("empty", v)), s.group(fmt.Sprint("offsets", v))
		s.alone(full)
		a, n := s.alone(empty)
		s.ask(commitOf(empty, n, a, t, 0, 5), 9)
		s.ask(leaveGroup(empty, leaver{member: a}), 5)
		s.ask(commitSpots(offsets, spot{t, id, 0, 5, nil}), 9)
		pending := s.group(fmt.Sprint("pending", v))
		member := s.memberID(pending)
		// One group a request: Kafka answers several in the order of a hash table.
		for _, g := range []string{full, empty, offsets, pending, "no-such-group", ""} {
			s.do("delete "+strings.TrimPrefix(g, s.topic("")), deleteGroups(g), v)
		}
		s.do("none", deleteGroups(), v)
		s.do("one twice", deleteGroups("no-such-group", "no-such-group"), v)
		for _, g := range []string{full, empty, offsets, pending} {
			s.do("described", describeGroups(g), 6)
			s.do("offsets", offsetsOf(g), 9)
		}
		s.do("the one that was about to join", joinGroup(pending, member), 9)
		s.do("again", deleteGroups(empty), v)
	}
}

// consumerOffsetsRecords is K28: what is written down of a group's life.
func consumerOffsetsRecords(s *session) {
	t := s.topic("t")
	id := s.create(t, 2)
	g := s.group("g")
	req := joinGroup(g, "", protocol{"range", subscription(t)}, protocol{"sticky", []byte("s")})
	a, n := s.newMember(req, 9)
	s.ask(syncGroup(g, n, a, a, "all of it"), 5)
	first := commitOf(g, n, a, t, 0, 5)
	first.Topics[0].Partitions[0].LeaderEpoch, first.Topics[0].Partitions[0].Metadata = 3, ptr("text")
	s.ask(first, 9)
	b := s.begin("a static member joins", staticJoin(g, "", "i-1", protocol{"range", subscription(t, "u")}), 9)
	s.awaitState(g, "PreparingRebalance", 2)
	again := joinGroup(g, a, protocol{"range", subscription(t)}, protocol{"sticky", []byte("s")})
	again.SessionTimeoutMillis, again.RebalanceTimeoutMillis = 25_000, 50_000
	s.ask(again, 9)
	n++
	bID := b.answered().(*kmsg.JoinGroupResponse).MemberID
	s.ask(syncGroup(g, n, a, a, "for a", bID, "for b"), 5)
	s.ask(syncGroup(g, n, bID), 5)
	s.ask(staticJoin(g, "", "i-1", protocol{"range", subscription(t, "u")}), 9) // comes back
	s.ask(commitSpots(g, spot{t, id, 0, 9, nil}), 9)                            // refused
	s.ask(leaveGroup(g, leaver{member: a}, leaver{instance: "i-1"}), 5)
	kept := commitSpots(g, spot{t, id, 1, 7, nil})
	kept.RetentionTimeMillis = 86_400_000
	s.ask(kept, 4)
	s.ask(commitSpots(g, spot{"", id, 1, 8, nil}, spot{"", id, 0, 9, ptr("x")}), 10)
	s.ask(deleteOffsets(g, spot{topic: t, n: 1}), 0)
	s.ask(deleteGroups(g), 2)
	simple := s.group("simple")
	s.ask(commitSpots(simple, spot{t, id, 0, 1, nil}), 9)
	s.deleteTopic(t)
	s.eventually("its offsets are gone", func() bool {
		return len(s.ask(offsetsOf(simple), 9).(*kmsg.OffsetFetchResponse).Groups[0].Topics) == 0
	})
	for p := range int32(50) {
		s.groupRecords(p, g, simple)
	}
}

// groupRecords shows the records of some groups in one partition of __consumer_offsets.
func (s *session) groupRecords(p int32, groups ...string) {
	s.Helper()
	const offsetsTopic = "__consumer_offsets"
	end := s.logEnd(offsetsTopic, p)
	var raw []byte
	for at := int64(0); at < end; {
		r := s.ask(fetch(0, 1, part{topic: offsetsTopic, n: p, offset: at}), 12).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if r.ErrorCode != 0 || len(r.RecordBatches) == 0 {
			s.Fatalf("cannot read %s-%d at %d: %d", offsetsTopic, p, at, r.ErrorCode)
		}
		for rest := r.RecordBatches; len(rest) > 0; {
			e, after, err := batch.NextEntry(rest)
			if err != nil {
				break // cut
			}
			rest, at = after, e.LastOffset()+1
		}
		raw = append(raw, r.RecordBatches...)
	}
	buf := new(batch.Buffers)
	for len(raw) > 0 {
		e, rest, err := batch.NextEntry(raw)
		if err != nil {
			s.Fatal(err)
		}
		raw = rest
		heading := ""
		if b, ok := e.Batch(); ok {
			heading = fmt.Sprintf("batch of partition %d: %s producer=%d/%d/%d txn=%t %s", p, b.Codec(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.IsTransactional(), b.TimestampType())
		}
		var lines []string
		for r, err := range e.Records(buf) {
			if err != nil {
				s.Fatal(err)
			}
			if text := s.groupRecord(r.Key, r.Value, groups); text != "" {
				lines = append(lines, fmt.Sprintf("%s headers=%d", text, len(r.Headers)))
			}
		}
		if len(lines) > 0 && !s.hide["batch"] {
			s.note("%s", heading)
		}
		for _, line := range sortRuns(lines) {
			s.note("%s", line)
		}
	}
}

// sortRuns sorts records of one kind that follow each other: the members of consumer
// groups stand in the order of a hash table.
func sortRuns(lines []string) []string {
	kind := func(line string) string {
		kind, _, _ := strings.Cut(line, " of ")
		return kind
	}
	for i := 0; i < len(lines); {
		j := i + 1
		for j < len(lines) && kind(lines[j]) == kind(lines[i]) && !strings.HasPrefix(lines[i], "offset ") {
			j++
		}
		slices.Sort(lines[i:j])
		i = j
	}
	return lines
}

// groupRecord reads one record of __consumer_offsets, "" for that of another group.
func (s *session) groupRecord(key, value []byte, groups []string) string {
	s.Helper()
	kind, k := int16(key[0])<<8|int16(key[1]), key[2:]
	version, v := int16(-1), []byte(nil)
	if value != nil {
		version, v = int16(value[0])<<8|int16(value[1]), value[2:]
	}
	fail := func(err error) {
		if err != nil {
			s.Fatalf("record of type %d, value version %d: %v", kind, version, err)
		}
	}
	p := printer{out: new(strings.Builder), names: s.names, hide: map[string]bool{}, since: s.since}
	switch kind {
	case 0, 1:
		key, val := records.NewOffsetCommitKey(), records.NewOffsetCommitValue()
		fail(key.ReadFrom(k, 0))
		if !slices.Contains(groups, key.Group) {
			return ""
		}
		if v == nil {
			return fmt.Sprintf("offset %s %s-%d is gone", key.Group, key.Topic, key.Partition)
		}
		fail(val.ReadFrom(v, version))
		return fmt.Sprintf("offset %s %s-%d v%d: %d epoch=%d %q at=%s expires=%s id=%s", key.Group, key.Topic, key.Partition, version, val.Offset, val.LeaderEpoch,
			val.Metadata, p.number("", val.CommitTimestamp), expiry(val.ExpireTimestamp, val.CommitTimestamp), p.id(val.TopicID))
	case 2:
		key, val := records.NewGroupMetadataKey(), records.NewGroupMetadataValue()
		fail(key.ReadFrom(k, 0))
		if !slices.Contains(groups, key.Group) {
			return ""
		}
		if v == nil {
			return fmt.Sprintf("group %s is gone", key.Group)
		}
		fail(val.ReadFrom(v, version))
		return fmt.Sprintf("group %s v%d: type=%q generation=%d protocol=%s leader=%s since=%s%s", key.Group, version, val.ProtocolType, val.Generation, str(val.Protocol),
			s.memberName(str(val.Leader)), p.number("", val.CurrentStateTimestamp), s.memberRecords(val.Members))
	}
	if consumer.IsKind(kind) {
		text, _ := s.consumerRecord(kind, k, v, version, groups)
		return text
	}
	return fmt.Sprintf("record of type %d", kind)
}

// expiry tells how long after its commit an offset expires.
func expiry(at, commit int64) string {
	if at < 0 {
		return fmt.Sprint(at)
	}
	return fmt.Sprintf("+%d", at-commit)
}

func (s *session) memberRecords(members []records.GroupMetadataValueMemberMetadata) string {
	slices.SortFunc(members, func(a, b records.GroupMetadataValueMemberMetadata) int {
		return cmp.Or(cmp.Compare(str(a.GroupInstanceID), str(b.GroupInstanceID)), cmp.Compare(string(a.Subscription), string(b.Subscription)))
	})
	out := ""
	for _, m := range members {
		out += fmt.Sprintf("\n  member %s instance=%s client=%s host=%s session=%d rebalance=%d subscription=%q assignment=%q", s.memberName(m.MemberID), str(m.GroupInstanceID),
			m.ClientID, m.ClientHost, m.SessionTimeout, m.RebalanceTimeout, m.Subscription, m.Assignment)
	}
	return out
}

// groupConfigs: configurations of single groups (KIP-848 and later).
func groupConfigs(s *session) {
	const kind = kmsg.ConfigResourceType(32)
	g := s.topic("g")
	for v := int16(1); v <= 4; v++ {
		req := describeConfigs(kind, g)
		req.IncludeSynonyms = true
		s.do("the defaults", req, v)
	}
	s.do("the empty name", describeConfigs(kind, ""), 4)
	for _, c := range [][2]string{
		{"consumer.session.timeout.ms", "50000"}, {"consumer.session.timeout.ms", "1"}, {"consumer.session.timeout.ms", "44999"}, {"consumer.session.timeout.ms", "60001"},
		{"consumer.session.timeout.ms", "x"}, {"consumer.heartbeat.interval.ms", "5001"}, {"consumer.heartbeat.interval.ms", "4999"}, {"consumer.heartbeat.interval.ms", "15001"},
		{"consumer.heartbeat.interval.ms", "0"}, {"consumer.assignment.interval.ms", "15001"}, {"consumer.assignor.offload.enable", "x"},
		{"share.session.timeout.ms", "44999"}, {"share.heartbeat.interval.ms", "15001"}, {"share.record.lock.duration.ms", "14999"},
		{"share.record.lock.duration.ms", "60001"}, {"share.auto.offset.reset", "earliest"}, {"share.auto.offset.reset", "none"}, {"share.auto.offset.reset", "by_duration:PT1H"},
		{"share.auto.offset.reset", "by_duration:-PT1H"}, {"share.isolation.level", "read_committed"}, {"share.isolation.level", "READ_COMMITTED"}, {"share.isolation.level", "x"},
		{"share.delivery.count.limit", "1"}, {"share.delivery.count.limit", "11"}, {"share.partition.max.record.locks", "99"}, {"share.partition.max.record.locks", "4001"},
		{"streams.num.standby.replicas", "1"}, {"streams.num.standby.replicas", "3"}, {"streams.num.standby.replicas", "-1"}, {"streams.session.timeout.ms", "44999"},
		{"streams.heartbeat.interval.ms", "4999"}, {"streams.initial.rebalance.delay.ms", "0"}, {"streams.initial.rebalance.delay.ms", "-1"},
		{"no.such.key", "1"}, {"retention.ms", "1"},
	} {
		req := incremental(kind, g, change{c[0], 0, c[1]})
		req.ValidateOnly = true
		s.do(c[0]+"="+c[1], req, 1)
	}
	s.do("a heartbeat interval above the session timeout", incremental(kind, g, change{"consumer.heartbeat.interval.ms", 0, "15000"}, change{"consumer.session.timeout.ms", 0, "45000"}), 1)
	s.do("the empty name", incremental(kind, "", change{"consumer.session.timeout.ms", 0, "50000"}), 1)
	s.do("append to what is no list", incremental(kind, g, change{"consumer.session.timeout.ms", 2, "1"}), 1)
	s.do("set", incremental(kind, g, change{"consumer.session.timeout.ms", 0, "50000"}, change{"share.auto.offset.reset", 0, "earliest"}), 1)
	s.settle()
	req := describeConfigs(kind, g, "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "share.auto.offset.reset", "no.such.key")
	req.IncludeSynonyms = true
	s.do("described", req, 4)
	s.do("replaced", alterConfigs(kind, g, "consumer.heartbeat.interval.ms", "6000"), 2)
	s.settle()
	s.do("described", req, 4)
	s.do("deleted", incremental(kind, g, change{"consumer.heartbeat.interval.ms", 1, ""}, change{"consumer.session.timeout.ms", 1, ""}), 1)
	s.settle()
	s.do("described", req, 4)
}

// listConfigResources shows this case's resources and all of fixed number.
func listConfigResources(s *session) {
	g, m := s.topic("g"), s.topic("metrics")
	classic := s.group("classic")
	s.alone(classic)
	s.do("a group's configuration", incremental(32, g, change{"consumer.session.timeout.ms", 0, "50000"}), 1)
	s.do("a subscription of metrics", incremental(16, m, change{"interval.ms", 0, "60000"}), 1)
	s.create(s.topic("t"), 1)
	list := func(what string, version int16, types ...int8) {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = types
		res := s.ask(req, version).(*kmsg.ListConfigResourcesResponse)
		res.ConfigResources = slices.DeleteFunc(res.ConfigResources, func(r kmsg.ListConfigResourcesResponseConfigResource) bool {
			return !strings.HasPrefix(r.Name, s.topic("")) && (version == 0 || r.Type != 4 && r.Type != 8)
		})
		slices.SortFunc(res.ConfigResources, func(a, b kmsg.ListConfigResourcesResponseConfigResource) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
		})
		s.show(what, res)
	}
	list("v0", 0)
	list("all", 1)
	for _, kind := range []int8{2, 4, 8, 16, 32} {
		list(fmt.Sprintf("type %d", kind), 1, kind)
	}
	list("two types, one twice", 1, 32, 16, 32)
	for _, kind := range []int8{0, 1, 3, 64, -1} {
		list(fmt.Sprintf("type %d", kind), 1, kind)
		list(fmt.Sprintf("type %d and groups", kind), 1, kind, 32)
	}
	s.do("gone", incremental(32, g, change{"consumer.session.timeout.ms", 1, ""}), 1)
	s.settle()
	list("groups", 1, 32)
}

// waitingIsTold: whom a rebalance waits for stands in the log at once, and in the
// metrics after 5 s.
func waitingIsTold(s *session) {
	g := s.group("g")
	a, n := s.alone(g)
	b := s.begin("the other's join", joinGroup(g, s.memberID(g)), 9)
	s.awaitState(g, "PreparingRebalance", 2)
	log, err := os.ReadFile(s.node.log.Name())
	if err != nil {
		s.Fatal(err)
	}
	for _, line := range strings.Split(string(log), "\n") {
		if strings.Contains(line, "a rebalance waits for members") && strings.Contains(line, g) {
			s.note("the log names the member: %t; says since when: %t, until when: %t", strings.Contains(line, a), strings.Contains(line, "since="), strings.Contains(line, "until="))
			break
		}
	}
	s.eventually("the metrics tell of the group", func() bool { return len(s.metrics(`group="`+g+`"`)) == 2 })
	for _, line := range s.metrics(`group="` + g + `"`) {
		name, value, _ := strings.Cut(line, " ")
		if strings.HasPrefix(name, "weir_group_rebalance_waiting_seconds") {
			value = "<seconds>"
		}
		s.note("%s %s", name, value)
	}
	s.do("heartbeat of the one that is missing", heartbeat(g, n, a), 4)
	s.ask(joinGroup(g, a), 9)
	b.answered()
	s.ask(syncGroup(g, n+1, a, a, "all"), 5)
	s.note("afterwards nothing is told of it: %t", len(s.metrics(`group="`+g+`"`)) == 0)
}

// metrics are the lines of our metrics that contain a text.
func (s *session) metrics(part string) []string {
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
	return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "#") || !strings.Contains(line, part)
	})
}
