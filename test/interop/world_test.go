package interop

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// world is everything that a client can see of a node and that must be the same before and after the node's directory
// goes to the other system.
type world struct {
	Topics   map[string]topicView
	Configs  map[string]map[string]string // per resource ("broker", "brokers", "topic NAME"): key → value and source
	Features map[string]string
	Groups   map[string]groupView
}

type topicView struct {
	ID         string
	Partitions []partitionView
}

type partitionView struct {
	Replicas     []int32
	Dir          string // base name of the log directory
	Size         int64  // of the log, in bytes
	Start, End   int64
	MaxTimestamp string   // offset and timestamp that ListOffsets tells for -3
	Epochs       []string // what OffsetForLeaderEpoch tells for every epoch before the current one
	Producers    []string
	Records      []recordView

	LeaderEpoch int32 // grows; not compared
}

// recordView is a record as text, so that differences can be read.
type recordView struct {
	Offset    int64
	Key, Text string
}

// look reads everything from a node.
func look(t testing.TB, n *testnode.Node) *world {
	t.Helper()
	client := n.Client(t)
	defer client.Close()
	l := looker{t: t, n: n, client: client, adm: kadm.NewClient(client)}
	l.adm.SetTimeoutMillis(20_000)
	w := &world{Topics: map[string]topicView{}, Configs: map[string]map[string]string{}, Features: l.features()}
	topics := l.topics()
	ends, starts, latest := l.offsets(topics.Names())
	dirs := l.dirs()
	producers := l.producers(topics)
	records := l.records(starts, ends)
	for name, topic := range topics {
		v := topicView{ID: topic.ID.String()}
		for _, p := range topic.Partitions.Sorted() {
			at := tp{name, p.Partition}
			start, _ := starts.Lookup(name, p.Partition)
			end, _ := ends.Lookup(name, p.Partition)
			top, _ := latest.Lookup(name, p.Partition)
			v.Partitions = append(v.Partitions, partitionView{
				Replicas: p.Replicas, Dir: dirs[at].Dir, Size: dirs[at].Size,
				Start: start.Offset, End: end.Offset, MaxTimestamp: fmt.Sprintf("%d at %d", top.Offset, top.Timestamp),
				Producers: producers[at], Records: records[at], LeaderEpoch: p.LeaderEpoch,
			})
		}
		w.Topics[name] = v
	}
	l.epochs(w)
	l.configs(w, topics.Names())
	w.Groups = l.groups()
	return w
}

// tp names a partition.
type tp struct {
	topic     string
	partition int32
}

type looker struct {
	t      testing.TB
	n      *testnode.Node
	client *kgo.Client
	adm    *kadm.Client
}

func (l *looker) ctx() context.Context { return l.t.Context() }

func (l *looker) must(err error, what string) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
}

func (l *looker) topics() kadm.TopicDetails {
	l.t.Helper()
	l.n.WaitLeaders(l.t)
	topics, err := l.adm.ListTopicsWithInternal(l.ctx())
	l.must(err, "list topics")
	return topics
}

func (l *looker) features() map[string]string {
	l.t.Helper()
	res, err := kmsg.NewPtrApiVersionsRequest().RequestWith(l.ctx(), l.client)
	l.must(err, "ApiVersions")
	out := map[string]string{}
	for _, f := range res.FinalizedFeatures {
		out[f.Name] = fmt.Sprintf("%d-%d", f.MinVersionLevel, f.MaxVersionLevel)
	}
	return out
}

func (l *looker) offsets(names []string) (ends, starts, latest kadm.ListedOffsets) {
	l.t.Helper()
	var err error
	ends, err = l.adm.ListEndOffsets(l.ctx(), names...)
	l.must(firstError(err, ends), "end offsets")
	starts, err = l.adm.ListStartOffsets(l.ctx(), names...)
	l.must(firstError(err, starts), "start offsets")
	latest, err = l.adm.ListMaxTimestampOffsets(l.ctx(), names...)
	l.must(firstError(err, latest), "offsets of the highest timestamps")
	return ends, starts, latest
}

func firstError(err error, listed kadm.ListedOffsets) error {
	if err != nil {
		return err
	}
	return listed.Error()
}

// place is where a replica lies.
type place struct {
	Dir  string
	Size int64
}

func (l *looker) dirs() map[tp]place {
	l.t.Helper()
	described, err := l.adm.DescribeBrokerLogDirs(l.ctx(), l.n.ID, nil)
	l.must(err, "log dirs")
	out := map[tp]place{}
	for path, d := range described {
		l.must(d.Err, path)
		for topic, ps := range d.Topics {
			for p, v := range ps {
				if v.IsFuture {
					l.t.Fatalf("%s-%d is still on its way to %s", topic, p, path)
				}
				out[tp{topic, p}] = place{Dir: filepath.Base(path), Size: v.Size}
			}
		}
	}
	return out
}

func (l *looker) producers(topics kadm.TopicDetails) map[tp][]string {
	l.t.Helper()
	described, err := l.adm.DescribeProducers(l.ctx(), topics.TopicsSet())
	l.must(err, "describe producers")
	out := map[tp][]string{}
	for name, topic := range described {
		for p, part := range topic.Partitions {
			l.must(part.Err, name)
			for _, a := range part.ActiveProducers {
				out[tp{name, p}] = append(out[tp{name, p}], fmt.Sprintf("id %d epoch %d sequence %d time %d", a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp))
			}
			slices.Sort(out[tp{name, p}])
		}
	}
	return out
}

// records reads every partition from its start to its end.
func (l *looker) records(starts, ends kadm.ListedOffsets) map[tp][]recordView {
	l.t.Helper()
	from, missing := map[string]map[int32]kgo.Offset{}, map[tp]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(end.Topic, end.Partition)
		if end.Offset > start.Offset {
			missing[tp{end.Topic, end.Partition}] = end.Offset
			if from[end.Topic] == nil {
				from[end.Topic] = map[int32]kgo.Offset{}
			}
			from[end.Topic][end.Partition] = kgo.NewOffset().At(start.Offset)
		}
	})
	out := map[tp][]recordView{}
	if len(missing) == 0 {
		return out
	}
	consumer := l.n.Client(l.t, kgo.ConsumePartitions(from), kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(l.ctx(), 60*time.Second)
	defer cancel()
	for len(missing) > 0 {
		fetches := consumer.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			l.t.Fatalf("reading %s-%d: %v; still missing: %v", e.Topic, e.Partition, e.Err, missing)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at := tp{r.Topic, r.Partition}
			out[at] = append(out[at], recordView{r.Offset, text(r.Key), describe(r)})
			if r.Offset >= missing[at]-1 {
				delete(missing, at)
			}
		})
	}
	return out
}

// describe writes a record so that every difference shows. It ends with content.
func describe(r *kgo.Record) string {
	return fmt.Sprintf("leader epoch %d, time %d type %d, codec %d, producer %d/%d, %s", r.LeaderEpoch, r.Timestamp.UnixMilli(), r.Attrs.TimestampType(),
		r.Attrs.CompressionType(), r.ProducerID, r.ProducerEpoch, content(r))
}

// content is what the producer alone decides.
func content(r *kgo.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s = %s", text(r.Key), text(r.Value))
	for _, h := range r.Headers {
		fmt.Fprintf(&b, ", header %q: %s", h.Key, text(h.Value))
	}
	return b.String()
}

func text(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 64:
		sum := sha256.Sum256(b)
		return fmt.Sprintf("%q… (%d bytes, sha256 %x)", b[:16], len(b), sum[:8])
	}
	return fmt.Sprintf("%q", b)
}

// epochs asks for the end of every leader epoch before the current one.
func (l *looker) epochs(w *world) {
	l.t.Helper()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	for name, topic := range w.Topics {
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = name
		for p, v := range topic.Partitions {
			for e := range v.LeaderEpoch {
				rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
				rp.Partition, rp.LeaderEpoch, rp.CurrentLeaderEpoch = int32(p), e, -1
				// One request asks once for a partition, so the epochs of one partition go into as many topics.
				one := rt
				one.Partitions = []kmsg.OffsetForLeaderEpochRequestTopicPartition{rp}
				req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{one}
				res, err := req.RequestWith(l.ctx(), l.client)
				l.must(err, "OffsetForLeaderEpoch")
				got := res.Topics[0].Partitions[0]
				l.must(kerr.ErrorForCode(got.ErrorCode), "OffsetForLeaderEpoch "+name)
				topic.Partitions[p].Epochs = append(topic.Partitions[p].Epochs, fmt.Sprintf("%d: %d ends at %d", e, got.LeaderEpoch, got.EndOffset))
			}
		}
	}
}

func (l *looker) configs(w *world, names []string) {
	l.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	ask := func(kind kmsg.ConfigResourceType, name string) {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, name
		req.Resources = append(req.Resources, r)
	}
	for _, name := range names {
		ask(kmsg.ConfigResourceTypeTopic, name)
	}
	ask(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(l.n.ID)))
	ask(kmsg.ConfigResourceTypeBroker, "")
	res, err := req.RequestWith(l.ctx(), l.client)
	l.must(err, "DescribeConfigs")
	for _, r := range res.Resources {
		resource := strings.ToLower(r.ResourceType.String()) + " " + r.ResourceName
		l.must(kerr.ErrorForCode(r.ErrorCode), resource)
		w.Configs[resource] = map[string]string{}
		for _, c := range r.Configs {
			w.Configs[resource][c.Name] = configText(c)
		}
	}
}

func configText(c kmsg.DescribeConfigsResponseResourceConfig) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%v, %v", orNull(c.Value), c.Source, c.ConfigType)
	if c.ReadOnly {
		b.WriteString(", read-only")
	}
	if c.IsSensitive {
		b.WriteString(", sensitive")
	}
	for _, s := range c.ConfigSynonyms {
		fmt.Fprintf(&b, "; %s %s=%s", s.Source, s.Name, orNull(s.Value))
	}
	return b.String() + ")"
}

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// same fails the test with the first differences between two worlds.
func same(t testing.TB, what string, before, after *world) {
	t.Helper()
	var out []string
	diff := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	compareKeys(diff, "topic", before.Topics, after.Topics)
	compareKeys(diff, "configs of", before.Configs, after.Configs)
	compareMaps(diff, "feature", before.Features, after.Features)
	compareKeys(diff, "group", before.Groups, after.Groups)
	for name, a := range before.Groups {
		if b, ok := after.Groups[name]; ok && fmt.Sprint(a) != fmt.Sprint(b) {
			diff("group %s: %+v, then %+v", name, a, b)
		}
	}
	for resource, a := range before.Configs {
		compareMaps(diff, resource+" config", a, after.Configs[resource])
	}
	for name, a := range before.Topics {
		b := after.Topics[name]
		if a.ID != b.ID || len(a.Partitions) != len(b.Partitions) {
			diff("topic %s: id %s with %d partitions, then %s with %d", name, a.ID, len(a.Partitions), b.ID, len(b.Partitions))
			continue
		}
		for p := range a.Partitions {
			x, y := a.Partitions[p], b.Partitions[p]
			if strings.Contains(before.Configs["topic "+name]["cleanup.policy"], "compact") {
				x.Producers, y.Producers = withoutTimes(x.Producers), withoutTimes(y.Producers)
			}
			comparePartitions(diff, fmt.Sprintf("%s-%d", name, p), x, y)
		}
	}
	if len(out) > 0 {
		slices.Sort(out)
		more := ""
		if len(out) > 40 {
			more, out = fmt.Sprintf("\n… and %d more", len(out)-40), out[:40]
		}
		t.Errorf("%s: not what it was before:\n%s%s", what, strings.Join(out, "\n"), more)
	}
}

// withoutTimes leaves out when producers wrote last. The batch that stands for a producer in a cleaned log has the time of the
// records left in it, and a recovery knows no other.
func withoutTimes(producers []string) []string {
	var out []string
	for _, p := range producers {
		out = append(out, p[:strings.Index(p, " time ")])
	}
	return out
}

func compareKeys[V any](diff func(string, ...any), what string, a, b map[string]V) {
	for k := range a {
		if _, ok := b[k]; !ok {
			diff("%s %s has gone", what, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			diff("%s %s is new", what, k)
		}
	}
}

func compareMaps(diff func(string, ...any), what string, a, b map[string]string) {
	compareKeys(diff, what, a, b)
	for k, v := range a {
		if w, ok := b[k]; ok && v != w {
			diff("%s %s: %s, then %s", what, k, v, w)
		}
	}
}

func comparePartitions(diff func(string, ...any), name string, a, b partitionView) {
	if b.LeaderEpoch < a.LeaderEpoch {
		diff("%s: leader epoch %d, then %d", name, a.LeaderEpoch, b.LeaderEpoch)
	}
	b.Epochs = b.Epochs[:min(len(a.Epochs), len(b.Epochs))] // epochs that were current before are old ones now
	for i := range a.Records {
		if i >= len(b.Records) || a.Records[i] != b.Records[i] {
			then := "nothing"
			if i < len(b.Records) {
				then = fmt.Sprint(b.Records[i])
			}
			diff("%s: record %v, then %s", name, a.Records[i], then)
			break
		}
	}
	if len(b.Records) > len(a.Records) {
		diff("%s: %d records, then %d", name, len(a.Records), len(b.Records))
	}
	a.Records, b.Records, a.LeaderEpoch, b.LeaderEpoch = nil, nil, 0, 0
	if x, y := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b); x != y {
		diff("%s: %s, then %s", name, x, y)
	}
}

// count is how many records a world holds.
func (w *world) count() int {
	n := 0
	for _, topic := range w.Topics {
		for _, p := range topic.Partitions {
			n += len(p.Records)
		}
	}
	return n
}
