package group

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/assignor"
	"weir/internal/group/classic"
	"weir/internal/group/consumer"
	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// consumerConfig and settings are what consumer groups run with here.
func consumerConfig() consumer.Config {
	return consumer.Config{
		MaxSize: 3, ClassicMaxSize: 3, Assignors: []string{assignor.Uniform, assignor.Range},
		Upgrade: true, Downgrade: true, RegexRefresh: 10 * time.Minute,
	}
}

func (s *sim) settings(*image.Image, string) consumer.Settings { return s.own }

// topic makes a topic, gives it more partitions, or with none deletes it.
func (s *sim) topic(name string, partitions int) {
	d := image.NewDelta(s.image)
	add := func(r records.Metadata) {
		if err := d.Replay(records.Versioned{Record: r, Version: 0}); err != nil {
			panic(err)
		}
	}
	t, known := s.image.Topic(name)
	var id uuid.UUID
	has := 0
	switch {
	case !known:
		copy(id[:], name)
		id[15] = byte(s.image.Provenance.Offset + 2)
		add(&records.TopicRecord{Name: name, TopicID: id})
	default:
		id, has = t.ID, t.NumPartitions()
	}
	for p := has; p < partitions; p++ {
		add(&records.PartitionRecord{TopicID: id, PartitionID: int32(p), Replicas: []int32{1}, ISR: []int32{1}, Leader: 1})
	}
	if partitions == 0 {
		add(&records.RemoveTopicRecord{TopicID: id})
	}
	at := s.image.Provenance
	at.Offset++
	s.image = d.Apply(at)
	if !known {
		s.newTopics = at.Offset
	}
	s.core.TopicsChanged(s.now0(), []string{name})
}

func (s *sim) now0() Step {
	return Step{Now: s.now, State: s.state, Image: s.image, NewTopicsAt: s.newTopics}
}

// parts shows partitions by topic name: "t:0,1 u:3".
func (s *sim) parts(topics map[uuid.UUID][]string) string {
	var rows []string
	for id, ps := range topics {
		name := "?"
		if t, ok := s.image.TopicByID(id); ok {
			name = t.Name
		}
		rows = append(rows, name+":"+strings.Join(ps, ","))
	}
	if slices.Sort(rows); len(rows) == 0 {
		return "nothing"
	}
	return strings.Join(rows, " ")
}

func texts(ps []int32) []string {
	var out []string
	for _, p := range slices.Sorted(slices.Values(ps)) {
		out = append(out, strconv.Itoa(int(p)))
	}
	return out
}

func (s *sim) showConsumer(r *consumer.Record) string {
	what := fmt.Sprintf("consumers %q ", r.Group)
	if r.Value == nil {
		return what + fmt.Sprintf("%d %s: gone", r.Kind, r.Of)
	}
	switch v := r.Value.(type) {
	case *records.ConsumerGroupMetadataValue:
		return what + fmt.Sprintf("epoch %d hash %x", v.Epoch, uint64(v.MetadataHash)&0xffff)
	case *records.ConsumerGroupMemberMetadataValue:
		what += fmt.Sprintf("member %s: topics %v regex %s", r.Of, v.SubscribedTopicNames, opt(v.SubscribedTopicRegex))
		for name, x := range map[string]*string{"instance": v.InstanceID, "rack": v.RackID, "assignor": v.ServerAssignor} {
			if x != nil {
				what += " " + name + " " + *x
			}
		}
		if c := v.ClassicMemberMetadata; c != nil {
			what += fmt.Sprintf(" classic session %d", c.SessionTimeoutMs)
		}
		return what
	case *records.ConsumerGroupTargetAssignmentMetadataValue:
		return what + fmt.Sprintf("target of epoch %d", v.AssignmentEpoch)
	case *records.ConsumerGroupTargetAssignmentMemberValue:
		rows := map[uuid.UUID][]string{}
		for _, t := range v.TopicPartitions {
			rows[t.TopicID] = texts(t.Partitions)
		}
		return what + "target of " + r.Of + ": " + s.parts(rows)
	case *records.ConsumerGroupCurrentMemberAssignmentValue:
		return what + fmt.Sprintf("current of %s: epoch %d, before %d, state %d, has %s, gives up %s", r.Of, v.MemberEpoch, v.PreviousMemberEpoch, v.State,
			s.parts(current(v.AssignedPartitions)), s.parts(current(v.PartitionsPendingRevocation)))
	case *records.ConsumerGroupRegularExpressionValue:
		return what + fmt.Sprintf("regex %q: %v", r.Of, v.Topics)
	}
	return what + fmt.Sprintf("%T", r.Value)
}

func current(rows []records.ConsumerGroupCurrentMemberAssignmentValueTopicPartitions) map[uuid.UUID][]string {
	out := map[uuid.UUID][]string{}
	for _, t := range rows {
		at := map[int32]int32{}
		for i, p := range t.Partitions {
			at[p] = t.AssignmentEpochs[i]
		}
		for _, p := range slices.Sorted(maps.Keys(at)) {
			out[t.TopicID] = append(out[t.TopicID], fmt.Sprintf("%d@%d", p, at[p]))
		}
	}
	return out
}

// beat sends a heartbeat: "beat a topics=t,u" joins, "beat a own=t:0/1" tells what it
// owns, own=all what it was assigned last, own=none nothing.
func (s *sim) beat(a args, label string) {
	q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	q.Version, q.Group, q.MemberID = int16(a.num("v", 1)), a.get("group", "g"), a.get("id", label)
	q.MemberEpoch = int32(a.num("epoch", int64(s.gens[label])))
	q.InstanceID, q.RackID, q.ServerAssignor, q.SubscribedTopicRegex = a.opt("instance"), a.opt("rack"), a.opt("assignor"), a.opt("regex")
	if t, ok := a.kv["topics"]; ok {
		q.SubscribedTopicNames = append([]string{}, words(t)...)
	}
	q.RebalanceTimeoutMillis = -1
	if q.MemberEpoch == 0 {
		q.RebalanceTimeoutMillis, q.Topics = int32(a.num("rebalance", 60_000)), []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	if own, ok := a.kv["own"]; ok {
		q.Topics = s.owning(label, own)
	}
	if err := consumer.Validate(q, s.config.Consumer.Assignors); err != nil {
		s.waiter(label)(consumer.Refused(q.Version, err))
		return
	}
	s.step(func(st Step) Result {
		return s.core.ConsumerHeartbeat(st, q, classic.Client{ID: "client", Host: "/192.0.2.1"}, s.waiter(label))
	})
}

func (s *sim) owning(label, own string) []kmsg.ConsumerGroupHeartbeatRequestTopic {
	out := []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	switch own {
	case "none":
		return out
	case "all":
		for _, t := range s.has[label] {
			out = append(out, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
		}
		return out
	}
	for _, row := range strings.Split(own, ";") {
		name, ps, _ := strings.Cut(row, ":")
		t, _ := s.image.Topic(name)
		x := kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.ID}
		for _, p := range strings.Split(ps, "/") {
			n, err := strconv.Atoi(p)
			if err != nil {
				panic(err)
			}
			x.Partitions = append(x.Partitions, int32(n))
		}
		out = append(out, x)
	}
	return out
}

// beaten prints the answer to a heartbeat.
func (s *sim) beaten(label string, m *kmsg.ConsumerGroupHeartbeatResponse) {
	if m.ErrorCode != 0 {
		s.printf("%s: beat %s %s\n", label, errorName(m.ErrorCode), opt(m.ErrorMessage))
		return
	}
	s.gens[label] = max(m.MemberEpoch, 0)
	got := "as before"
	if m.Assignment != nil {
		rows := map[uuid.UUID][]string{}
		for _, t := range m.Assignment.Topics {
			rows[t.TopicID] = texts(t.Partitions)
		}
		s.has[label] = m.Assignment.Topics
		got = s.parts(rows)
	}
	s.printf("%s: beat ok epoch %d, every %d: %s\n", label, m.MemberEpoch, m.HeartbeatIntervalMillis, got)
}

func (s *sim) describeConsumers(id string) {
	d := s.core.DescribeConsumer(s.now0(), id)
	if d.ErrorCode != 0 {
		s.printf("%s %s\n", errorName(d.ErrorCode), opt(d.ErrorMessage))
		return
	}
	s.printf("%s epoch %d assignment epoch %d assignor %s\n", d.State, d.Epoch, d.AssignmentEpoch, d.AssignorName)
	slices.SortFunc(d.Members, func(a, b kmsg.ConsumerGroupDescribeResponseGroupMember) int {
		return strings.Compare(a.MemberID, b.MemberID)
	})
	show := func(tps []kmsg.AssignmentTopicPartition) string {
		rows := map[uuid.UUID][]string{}
		for _, t := range tps {
			rows[t.TopicID] = texts(t.Partitions)
		}
		return s.parts(rows)
	}
	for _, m := range d.Members {
		s.printf("  %s type %d epoch %d has %s, shall have %s\n", m.MemberID, m.MemberType, m.MemberEpoch, show(m.Assignment.TopicPartitions), show(m.TargetAssignment.TopicPartitions))
	}
}

// resolve carries out what a step wants to be looked up.
func (s *sim) resolve(q *consumer.Resolve) {
	found := consumer.ResolveIn(s.image, s.now, q.Regexes)
	s.printf("looked up %q\n", q.Regexes)
	s.step(func(st Step) Result { return s.core.RegexResolved(st, q.Group, found) })
}

// consumerCommand does what concerns consumer groups alone; false when it is another command.
func (s *sim) consumerCommand(a args, cmd string, word func(int) string) bool {
	switch cmd {
	case "topic":
		s.topic(word(0), int(a.num("partitions", 0)))
	case "beat":
		s.beat(a, word(0))
	case "describe-consumers":
		s.describeConsumers(word(0))
	case "settings":
		s.own = consumer.Settings{
			Session: time.Duration(a.num("session", 45_000)) * time.Millisecond, Heartbeat: time.Duration(a.num("heartbeat", 5_000)) * time.Millisecond,
			AssignmentInterval: time.Duration(a.num("interval", 0)) * time.Millisecond,
		}
		policy := a.get("policy", "both")
		s.config.Consumer.Upgrade, s.config.Consumer.Downgrade = policy == "both" || policy == "upgrade", policy == "both" || policy == "downgrade"
	case "member-fetch":
		q := kmsg.NewOffsetFetchRequestGroup()
		q.Group, q.MemberID, q.MemberEpoch = a.get("group", "g"), a.opt("id"), int32(a.num("epoch", -1))
		name := "ok"
		if err := s.state.MayFetch(&q); err != nil {
			name = err.Message
		}
		s.printf("%s\n", name)
	default:
		return false
	}
	return true
}

// dumpConsumers is all there is of the consumer groups in a state.
func (s *State) dumpConsumers() string {
	var b strings.Builder
	for id, g := range s.Consumers() {
		fmt.Fprintf(&b, "consumers %s %d %d %d %d\n", id, g.Epoch, g.MetadataHash, g.AssignmentEpoch, g.AssignmentMs)
		for _, m := range g.Members() {
			c := *m
			c.InstanceID, c.RackID, c.Regex, c.Assignor, c.Classic = nil, nil, nil, nil, nil
			fmt.Fprintf(&b, "  %+v instance %s regex %s assignor %s classic %v target %v\n", c, opt(m.InstanceID), opt(m.Regex), opt(m.Assignor), m.Classic != nil, g.Target(m.ID))
		}
	}
	return b.String()
}

// checkConsumers is check for the consumer groups.
func (s *sim) checkConsumers() error {
	for id, g := range s.state.Consumers() {
		if err := g.Valid(); err != nil {
			return err
		}
		if s.state.Group(id) != nil {
			return fmt.Errorf("group %s is of both kinds", id)
		}
		owner := map[image.PartitionID]string{}
		for _, m := range g.Members() {
			for _, owned := range []consumer.Owned{m.Assigned, m.Revoking} {
				for topic, ps := range owned {
					for p := range ps {
						tp := image.PartitionID{Topic: topic, Partition: p}
						if other := owner[tp]; other != "" {
							return fmt.Errorf("group %s: %v belongs to %s and %s", id, tp, other, m.ID)
						}
						owner[tp] = m.ID
					}
				}
			}
			if _, ok := s.core.soft.timers.Get(classic.Timer{Kind: classic.MemberSession, Group: id, Member: m.ID}); !ok {
				return fmt.Errorf("group %s: member %s has no session", id, m.ID)
			}
		}
	}
	return nil
}
