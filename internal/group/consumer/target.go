package consumer

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/group/assignor"
	"weir/internal/group/hashorder"
	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// change is what a request changes of a group: a member as it was, nil values of
// newMember when it was none, and as it will be.
type change struct{ was, is *Member }

// namesAfter counts the subscribers of each topic after a change.
func (g *Group) namesAfter(c change) *table[subscribers] {
	names := g.names
	for _, t := range c.was.Topics {
		names = addSubscribers(names, t, subscribers{byName: -1})
	}
	for _, t := range c.is.Topics {
		names = addSubscribers(names, t, subscribers{byName: 1})
	}
	if old := c.was.regex(); old != "" && old != c.is.regex() && g.patternCount(old) == 1 {
		names = g.withoutRegex(names, old)
	}
	return names
}

// withoutRegex takes the topics of a regular expression out of a count.
func (g *Group) withoutRegex(names *table[subscribers], regex string) *table[subscribers] {
	if r := g.resolved(regex); r != nil {
		for _, t := range r.Topics {
			names = addSubscribers(names, t, subscribers{byRegex: -1})
		}
	}
	return names
}

// patternsAfter counts the members with each regular expression after a change.
func (g *Group) patternsAfter(c change) *table[int] {
	patterns, old, now := g.patterns, c.was.regex(), c.is.regex()
	if old == now {
		return patterns
	}
	if old != "" {
		patterns = count(patterns, old, -1)
	}
	if now != "" {
		patterns = count(patterns, now, 1)
	}
	return patterns
}

func (g *Group) patternCount(regex string) int {
	n, _ := get(g.patterns, regex)
	return n
}

// homogeneous tells whether all members subscribe to the same topics.
func homogeneous(patterns *table[int], names *table[subscribers], members int) bool {
	if size(patterns) == 0 {
		for _, n := range all(names) {
			if n.byName != members {
				return false
			}
		}
		return true
	}
	for _, n := range all(patterns) {
		if n != members {
			return false // not all use this one
		}
		break
	}
	for _, n := range all(names) {
		if n.byRegex != 1 || n.byName > 0 {
			return false
		}
	}
	return true
}

// current is the group epoch after a change, and whether all members subscribe to
// the same topics, as far as that is needed: when a target is due.
func (g *Group) current(s *Step, soft *Soft, c change, bump bool) (epoch int32, same bool) {
	switch {
	case bump || soft.outdated(s, g):
		return g.refresh(s, soft, c, bump)
	case g.AssignmentEpoch < g.Epoch:
		return g.Epoch, homogeneous(g.patterns, g.names, g.Size())
	}
	return g.Epoch, false
}

func keys[V any](m *table[V]) []string {
	out := make([]string, 0, size(m))
	for k := range all(m) {
		out = append(out, k)
	}
	return out
}

// refresh looks at the topics of the group after a change, and bumps the group
// epoch if they or their subscribers are others.
func (g *Group) refresh(s *Step, soft *Soft, c change, bump bool) (epoch int32, same bool) {
	patterns := g.patternsAfter(c)
	names := g.namesAfter(c)
	members := g.Size()
	if g.Member(c.is.ID) == nil && g.staticMember(c.is.InstanceID) == nil {
		members++
	}
	hash := metadataHash(s.Image, keys(names))
	epoch = g.Epoch
	if bump || hash != g.MetadataHash {
		epoch++
		g.bump(s, epoch, hash)
		s.Rebalances++
	}
	soft.refreshed(s, epoch)
	if g.oldMetadata {
		s.write(Record{Kind: KindPartitionMetadata, Group: g.ID})
	}
	return epoch, homogeneous(patterns, names, members)
}

func (g *Group) bump(s *Step, epoch int32, hash int64) {
	v := records.NewConsumerGroupMetadataValue()
	v.Epoch, v.MetadataHash = epoch, hash
	s.write(Record{Kind: KindGroup, Group: g.ID, Value: &v})
	s.note("group %s: group epoch %d with metadata hash %d", g.ID, epoch, hash)
}

// retarget computes the target assignment for a group epoch, if that is due, and
// returns that of the changed member.
func (g *Group) retarget(s *Step, epoch int32, c change, same bool) (target, *Error) {
	if g.AssignmentEpoch >= epoch || !g.mayAssign(s) {
		return target{g.AssignmentEpoch, g.targetOf(c.is)}, nil
	}
	ms, removed := g.specs(s, c)
	name := g.preferredAfter(c)
	if name == "" {
		name = s.Config.Assignors[0]
	}
	taken := map[image.PartitionID]bool{}
	for _, a := range all(g.targets) {
		for _, t := range a {
			for _, p := range t.Partitions {
				taken[image.PartitionID{Topic: t.Topic, Partition: p}] = true
			}
		}
	}
	result, err := assignor.Assign(name, &assignor.Group{
		Members: assignor.Members(ms, g.Member(c.is.ID) == nil, removed), Homogeneous: same,
		Taken:      func(id uuid.UUID, p int32) bool { return taken[image.PartitionID{Topic: id, Partition: p}] },
		Partitions: func(id uuid.UUID) int32 { return numPartitions(s.Image, id) },
	})
	if err != nil {
		text := refuse(kerr.UnknownServerError, "Failed to compute a new target assignment for epoch %d: %v", epoch, err)
		s.note("group %s: %s", g.ID, text.Text)
		return target{}, text
	}
	s.note("group %s: computed a new target assignment for epoch %d with %q", g.ID, epoch, name)
	for i := range ms {
		old, had := get(g.targets, ms[i].ID)
		if now := result[ms[i].ID]; !had || !now.Equal(old) {
			s.write(targetRecord(g.ID, ms[i].ID, now))
		}
	}
	s.write(g.targetEpochRecord(epoch, s.Now.UnixMilli()))
	return target{epoch, result[c.is.ID]}, nil
}

func (g *Group) targetEpochRecord(epoch int32, timestampMs int64) Record {
	v := records.NewConsumerGroupTargetAssignmentMetadataValue()
	v.AssignmentEpoch, v.AssignmentTimestamp = epoch, timestampMs
	return Record{Kind: KindTarget, Group: g.ID, Value: &v}
}

// mayAssign tells whether enough time has passed since the last target assignment.
func (g *Group) mayAssign(s *Step) bool {
	every := s.Settings.AssignmentInterval.Milliseconds()
	return g.AssignmentMs == 0 || every == 0 || s.Now.UnixMilli() >= g.AssignmentMs+every
}

func numPartitions(img *image.Image, id uuid.UUID) int32 {
	t, ok := img.TopicByID(id)
	if !ok {
		return 0
	}
	return int32(t.NumPartitions())
}

// specs lists the members for an assignor: those of the group with the change, in
// the order that assignor.Members wants.
func (g *Group) specs(s *Step, c change) (ms []assignor.Member, removed int) {
	var gone string
	had := g.Target(c.is.ID)
	if before := g.staticMember(c.is.InstanceID); before != nil && before.ID != c.is.ID {
		gone, had, removed = before.ID, g.Target(before.ID), 1
	}
	add := func(m *Member, had assignor.Assignment) {
		topics := g.subscribedIDs(s, m)
		ms = append(ms, assignor.Member{ID: m.ID, InstanceID: m.InstanceID, Topics: topics, Had: had})
	}
	known := false
	for id, m := range all(g.members) {
		switch id {
		case gone:
		case c.is.ID:
			add(c.is, had)
			known = true
		default:
			add(m, g.Target(id))
		}
	}
	if !known {
		add(c.is, had)
	}
	return ms, removed
}

// subscribedIDs lists the existing topics to which a member subscribes.
func (g *Group) subscribedIDs(s *Step, m *Member) []uuid.UUID {
	names := slices.Clone(m.Topics)
	if r := g.resolved(m.regex()); r != nil {
		names = unique(append(names, r.Topics...))
	}
	ids := make([]uuid.UUID, 0, len(names))
	for _, n := range assignor.Names(names) {
		if t, ok := s.Image.Topic(n); ok {
			ids = append(ids, t.ID)
		}
	}
	return assignor.Topics(ids, len(names))
}

// preferredAfter is the assignor that most members prefer after a change, "" when
// none has a preference.
func (g *Group) preferredAfter(c change) string {
	n := map[string]int{}
	for name, k := range all(g.assignors) {
		n[name] = k
	}
	if c.was.Assignor != nil {
		n[*c.was.Assignor]--
	}
	if c.is.Assignor != nil {
		n[*c.is.Assignor]++
	}
	maps.DeleteFunc(n, func(_ string, k int) bool { return k <= 0 })
	return most(hashorder.Map(slices.Sorted(maps.Keys(n)), 0, hashorder.String), n)
}

// preferred is the assignor that most members prefer, "" when none has a preference.
func (g *Group) preferred() string {
	n := map[string]int{}
	for name, k := range all(g.assignors) {
		n[name] = k
	}
	return most(hashorder.Timeline(slices.Sorted(maps.Keys(n)), hashorder.String), n)
}

// most is the first of the names that count most.
func most(names []string, n map[string]int) string {
	best := ""
	for _, name := range names {
		if best == "" || n[name] > n[best] {
			best = name
		}
	}
	return best
}
