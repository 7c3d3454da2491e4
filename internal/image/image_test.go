package image

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"weir/internal/records"
	"weir/internal/uuid"
)

// story writes random but valid records.
type story struct {
	r *rand.Rand
	n int
}

func (s *story) id() uuid.UUID {
	var u uuid.UUID
	for i := range u {
		u[i] = byte(s.r.Uint32())
	}
	return u
}

func (s *story) some(n int) []int32 {
	p := s.r.Perm(5)
	out := make([]int32, 0, n)
	for _, x := range p[:n] {
		out = append(out, int32(x+1))
	}
	return out
}

// next returns a record that can follow the image.
func (s *story) next(i *Image) records.Versioned {
	v := i.Features().PartitionVersion()
	switch k := s.r.IntN(14); {
	case k == 0 || i.NumTopics() == 0:
		s.n++
		r := records.NewTopicRecord()
		r.Name, r.TopicID = fmt.Sprintf("t%d", s.n), s.id()
		return records.Versioned{Record: &r}
	case k <= 3:
		t := s.topic(i)
		p := &Partition{Replicas: s.some(3), ISR: s.some(2), Leader: 1, LeaderEpoch: 3, PartitionEpoch: 4}
		p.Directories = []uuid.UUID{s.id(), s.id(), s.id()}
		return p.Record(PartitionID{t.ID, int32(t.NumPartitions())}, i.Features())
	case k <= 8:
		t := s.topic(i)
		if t.NumPartitions() == 0 {
			break
		}
		r := records.NewPartitionChangeRecord()
		r.TopicID, r.PartitionID = t.ID, int32(s.r.IntN(t.NumPartitions()))
		if s.r.IntN(2) == 0 {
			r.Leader = int32(s.r.IntN(5)) - 1
		}
		if s.r.IntN(3) == 0 {
			r.ISR = append([]int32{}, s.some(s.r.IntN(3))...)
		}
		if s.r.IntN(4) == 0 {
			r.Replicas = s.some(3)
			r.AddingReplicas = append([]int32{}, s.some(s.r.IntN(2))...)
		}
		if v >= 2 && s.r.IntN(4) == 0 {
			r.EligibleLeaderReplicas, r.LastKnownELR = append([]int32{}, s.some(s.r.IntN(2))...), append([]int32{}, s.some(s.r.IntN(2))...)
		}
		return records.Versioned{Record: &r, Version: v}
	case k == 9:
		r := records.NewRemoveTopicRecord()
		r.TopicID = s.topic(i).ID
		return records.Versioned{Record: &r}
	case k == 10:
		var value *string
		if s.r.IntN(3) > 0 {
			value = ptr(fmt.Sprint(s.r.IntN(9)))
		}
		return ConfigRecord(Resource{ResourceTopic, s.topic(i).Name}, []string{"a", "b"}[s.r.IntN(2)], value)
	case k == 11:
		b := &Broker{ID: int32(s.r.IntN(5) + 1), Epoch: int64(s.n), Incarnation: s.id(), Fenced: true, Dirs: []uuid.UUID{s.id()}}
		b.Endpoints = []Endpoint{{"PLAINTEXT", "h", 9092, 0}}
		return b.Record(i.Features())
	case k == 12:
		r := records.NewClearElrRecord()
		return records.Versioned{Record: &r}
	}
	r := records.NewProducerIdsRecord()
	r.NextProducerID = int64(s.r.IntN(100000))
	return records.Versioned{Record: &r}
}

func (s *story) topic(i *Image) *Topic {
	all := slices.Collect(i.Topics())
	return all[s.r.IntN(len(all))]
}

func feature(name string, level int16) records.Versioned {
	r := records.NewFeatureLevelRecord()
	r.Name, r.FeatureLevel = name, level
	return records.Versioned{Record: &r}
}

func replayAll(t testing.TB, d *Delta, vs ...records.Versioned) {
	t.Helper()
	for _, v := range vs {
		if err := d.Replay(v); err != nil {
			t.Fatal(err)
		}
	}
}

// throughBytes writes and reads a record as the log does.
func throughBytes(t testing.TB, v records.Versioned) records.Versioned {
	t.Helper()
	out, err := records.ParseMetadata(records.AppendMetadata(nil, v))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRandomStories(t *testing.T) {
	for seed := range uint64(20) {
		s := &story{r: rand.New(rand.NewPCG(seed, 1))}
		img := New()
		d := NewDelta(img)
		replayAll(t, d, feature(FeatureMetadata, 30), feature(FeatureELR, 1))
		img = d.Apply(Provenance{Offset: 1})
		var old []*Image
		var oldRecords [][][]byte
		for step := range 40 {
			d := NewDelta(img)
			for range s.r.IntN(12) {
				v := s.next(d.Image())
				replayAll(t, d, throughBytes(t, v))
			}
			img = d.Apply(Provenance{Offset: int64(step)})
			if why := img.checkIndex(); why != "" {
				t.Fatalf("seed %d step %d: %s", seed, step, why)
			}
			if step%10 == 0 {
				old, oldRecords = append(old, img), append(oldRecords, dump(img))
			}
		}
		rebuilt := NewDelta(New())
		for v := range img.Records {
			replayAll(t, rebuilt, throughBytes(t, v))
		}
		if got := rebuilt.Apply(img.Provenance); !got.Equal(img) {
			t.Fatalf("seed %d: a snapshot does not rebuild its image", seed)
		}
		for i, o := range old {
			if !slices.EqualFunc(dump(o), oldRecords[i], slices.Equal) {
				t.Fatalf("seed %d: an old image changed", seed)
			}
		}
	}
}

func dump(i *Image) [][]byte {
	var out [][]byte
	for v := range i.Records {
		out = append(out, records.AppendMetadata(nil, v))
	}
	return out
}

func TestMergeRules(t *testing.T) {
	base := &Partition{Replicas: []int32{1, 2}, Directories: make([]uuid.UUID, 2), ISR: []int32{1, 2}, Leader: 1, LeaderEpoch: 5, PartitionEpoch: 9}
	change := func(set func(*records.PartitionChangeRecord)) *Partition {
		r := records.NewPartitionChangeRecord()
		set(&r)
		p, err := base.Merge(&r)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	same := change(func(r *records.PartitionChangeRecord) { r.Leader = 1 })
	if same.LeaderEpoch != 6 || same.PartitionEpoch != 10 {
		t.Errorf("naming the present leader raises both epochs: got %d and %d", same.LeaderEpoch, same.PartitionEpoch)
	}
	shrunk := change(func(r *records.PartitionChangeRecord) { r.ISR = []int32{1} })
	if shrunk.LeaderEpoch != 5 || shrunk.PartitionEpoch != 10 || shrunk.Leader != 1 {
		t.Errorf("an ISR change keeps the leader epoch: %+v", shrunk)
	}
	grown := change(func(r *records.PartitionChangeRecord) { r.Replicas = []int32{1, 2, 3} })
	if len(grown.Directories) != 3 {
		t.Errorf("migrating directories grow with the replicas: %v", grown.Directories)
	}
	if !slices.Equal(base.ISR, []int32{1, 2}) || base.PartitionEpoch != 9 {
		t.Error("Merge wrote to its receiver")
	}
}

func TestReplayRefuses(t *testing.T) {
	d := NewDelta(New())
	fence := records.NewFenceBrokerRecord()
	fence.ID = 1
	remove := records.NewRemoveTopicRecord()
	change := records.NewPartitionChangeRecord()
	end := records.NewEndTransactionRecord()
	for _, rec := range []records.Metadata{&fence, &remove, &change, &end} {
		if err := d.Replay(records.Versioned{Record: rec}); err == nil {
			t.Errorf("%T was accepted by an empty image", rec)
		}
	}
	if !d.IsEmpty() {
		t.Error("a refused record left a change")
	}
}

func TestKeptRecords(t *testing.T) {
	acl := records.NewAccessControlEntryRecord()
	acl.ID, acl.Principal = uuid.MetadataTopic, "User:a"
	gone := records.NewRemoveAccessControlEntryRecord()
	gone.ID = acl.ID
	unknown := &records.Unknown{Key: 999, Version: 3, Body: []byte{1, 2, 3}}
	quota := func(value float64, remove bool, names ...string) records.Versioned {
		r := records.NewClientQuotaRecord()
		r.Key, r.Value, r.Remove = "k", value, remove
		for _, n := range names {
			r.Entity = append(r.Entity, records.ClientQuotaRecordEntity{EntityType: n})
		}
		return records.Versioned{Record: &r}
	}
	d := NewDelta(New())
	replayAll(t, d, records.Versioned{Record: &acl}, records.Versioned{Record: unknown, Version: 3},
		quota(1, false, "user", "client-id"), quota(2, false, "client-id", "user"), quota(3, false, "user"), quota(0, true, "user"))
	img := d.Apply(Provenance{})
	if got := len(dump(img)); got != 3 {
		t.Fatalf("%d records are kept, want the ACL, one quota and the unknown one", got)
	}
	again := NewDelta(New())
	for v := range img.Records {
		replayAll(t, again, throughBytes(t, v))
	}
	if !again.Apply(Provenance{}).Equal(img) {
		t.Error("kept records do not survive a snapshot")
	}
	d = NewDelta(img)
	replayAll(t, d, records.Versioned{Record: &gone})
	if got := len(dump(d.Image())); got != 2 {
		t.Errorf("a removed ACL is kept: %d records", got)
	}
}

func TestTransactions(t *testing.T) {
	topic := func(name string, id byte) records.Versioned {
		r := records.NewTopicRecord()
		r.Name, r.TopicID = name, uuid.UUID{id}
		return records.Versioned{Record: &r}
	}
	begin, end, abort := records.NewBeginTransactionRecord(), records.NewEndTransactionRecord(), records.NewAbortTransactionRecord()
	b, e, a := records.Versioned{Record: &begin}, records.Versioned{Record: &end}, records.Versioned{Record: &abort}
	l := NewLoader(New())
	feed := func(offset int64, vs ...records.Versioned) {
		t.Helper()
		if err := l.Replay(vs, Provenance{Offset: offset}); err != nil {
			t.Fatal(err)
		}
	}
	feed(1, topic("first", 1), b, topic("second", 2))
	if _, _, ok := l.Publish(); ok {
		t.Fatal("an open transaction was published")
	}
	feed(3, topic("third", 3), e)
	img, delta, ok := l.Publish()
	if !ok || img.NumTopics() != 3 || len(delta.ChangedTopics()) != 3 || img.Offset != 3 {
		t.Fatalf("after the end: ok %v, %d topics, offset %d", ok, img.NumTopics(), img.Offset)
	}
	feed(5, topic("before", 4), b, topic("lost", 5))
	feed(6, a)
	img, delta, ok = l.Publish()
	if _, lost := img.Topic("lost"); !ok || lost || img.NumTopics() != 4 || len(delta.ChangedTopics()) != 1 {
		t.Fatalf("after an abort: ok %v, lost %v, %d topics, changed %v", ok, lost, img.NumTopics(), delta.ChangedTopics())
	}
	if why := img.checkIndex(); why != "" {
		t.Fatal(why)
	}
}

func TestLoadSnapshotSaysWhatDiffers(t *testing.T) {
	img := manyPartitions(t, 3, 2)
	other := NewDelta(img)
	remove := records.NewRemoveTopicRecord()
	first, _ := img.Topic("t0000")
	remove.TopicID = first.ID
	change := records.NewPartitionChangeRecord()
	second, _ := img.Topic("t0001")
	change.TopicID, change.PartitionID, change.Leader = second.ID, 1, 2
	replayAll(t, other, records.Versioned{Record: &remove}, records.Versioned{Record: &change, Version: 2})
	target := other.Apply(Provenance{Offset: 77})

	l := NewLoader(img)
	if err := l.LoadSnapshot(target.Records, target.Provenance); err != nil {
		t.Fatal(err)
	}
	got, delta, ok := l.Publish()
	if !ok || !got.Equal(target) || got.Offset != 77 {
		t.Fatal("the snapshot was not taken over")
	}
	if d := delta.DeletedTopics(); len(d) != 1 || d[0].Name != "t0000" {
		t.Errorf("deleted: %v", d)
	}
	if c := delta.ChangedTopics(); len(c) != 1 || !slices.Equal(delta.ChangedPartitions(c[0]), []int32{1}) {
		t.Errorf("changed: %v", c)
	}
}

func manyPartitions(t testing.TB, topics, partitions int) *Image {
	d := NewDelta(New())
	replayAll(t, d, feature(FeatureMetadata, 30), feature(FeatureELR, 1))
	r := rand.New(rand.NewPCG(1, 2))
	for n := range topics {
		rec := records.NewTopicRecord()
		rec.Name = fmt.Sprintf("t%04d", n)
		for i := range rec.TopicID {
			rec.TopicID[i] = byte(r.Uint32())
		}
		replayAll(t, d, records.Versioned{Record: &rec})
		for p := range partitions {
			part := &Partition{Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}, Leader: 1, Directories: make([]uuid.UUID, 3)}
			replayAll(t, d, part.Record(PartitionID{rec.TopicID, int32(p)}, d.next.features))
		}
	}
	return d.Apply(Provenance{Offset: 1})
}

// BenchmarkChange is one partition's change in a cluster of 10,000 partitions, delta and apply included.
func BenchmarkChange(b *testing.B) {
	img := manyPartitions(b, 1000, 10)
	topic, _ := img.Topic("t0500")
	r := records.NewPartitionChangeRecord()
	r.TopicID, r.PartitionID = topic.ID, 3
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		r.Leader = int32(n%3) + 1
		d := NewDelta(img)
		if err := d.Replay(records.Versioned{Record: &r, Version: 2}); err != nil {
			b.Fatal(err)
		}
		img = d.Apply(Provenance{Offset: int64(n)})
	}
}

// BenchmarkDelta10000 changes the leader of each of 10,000 partitions in one delta, as when a broker dies.
func BenchmarkDelta10000(b *testing.B) {
	img := manyPartitions(b, 1000, 10)
	var vs []records.Versioned
	for id := range img.PartitionsOn(1) {
		r := records.NewPartitionChangeRecord()
		r.TopicID, r.PartitionID, r.Leader, r.ISR = id.Topic, id.Partition, 2, []int32{2, 3}
		vs = append(vs, records.Versioned{Record: &r, Version: 2})
	}
	if len(vs) != 10000 {
		b.Fatal(len(vs))
	}
	b.ReportAllocs()
	for b.Loop() {
		d := NewDelta(img)
		replayAll(b, d, vs...)
		d.Apply(Provenance{})
	}
}
