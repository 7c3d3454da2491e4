package api

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/uuid"
	"weir/internal/wire"
)

// Metadata describes brokers and topics (API key 3), versions 0–13.
//
//	v0      no topics named: all topics
//	v1      null: all, empty: none; controller, racks, internal topics
//	v2      cluster id
//	v4      the client may forbid creating topics
//	v5      offline replicas; v7 leader epochs
//	v8–v10  authorized operations
//	v10     topic ids; v12 topics asked by id
//	v13     an error of the whole answer
//
// A missing topic is created when auto.create.topics.enable says so. Unlike
// Kafka, the answer waits a moment for the new topic's leaders, which saves the
// client a round of retries. It also waits a moment when a leader that it would name
// has just died: clients ask at once when a connection ends, and some not again for
// seconds (franz-go: five) when they are told of the leader that they know.
type Metadata struct {
	Images     Images
	Controller Controller
	ClusterID  string
	// AutoCreate is auto.create.topics.enable.
	AutoCreate bool
	// Created is the form of topics that are created so, and Internal that of
	// internal topics that clients may ask for first.
	Created  NewTopic
	Internal []InternalTopic
	// Gone tells whether this node has found a leader's process ended, before the
	// controller has given its partitions another leader.
	Gone func(*image.Broker) bool
	// Doubted tells whether it is worth to wait for another leader: this one has
	// ended, or closed its connections to this node, a moment ago. Nil: never.
	Doubted func(*image.Broker) bool
}

// NewTopic is what a broker's own configuration says of topics that it creates
// for clients (KafkaConfig.originals in DefaultAutoTopicCreationManager). With -1
// the active controller's num.partitions and default.replication.factor count.
type NewTopic struct {
	Partitions int32
	Replicas   int16
}

// createWait bounds how long an answer waits for topics it has created.
const createWait = 2 * time.Second

// Key is Metadata.
func (*Metadata) Key() kmsg.Key { return kmsg.Metadata }

// Handle answers from the image.
func (m *Metadata) Handle(ctx context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.MetadataRequest](r)
	res := responseTo[*kmsg.MetadataResponse](r)
	img := m.Images.Image()
	refused := m.create(ctx, req, img)
	if refused != nil {
		img = m.Images.Image()
	}
	img = settled(ctx, m.Images, m.Doubted, func(i *image.Image) iter.Seq[*image.Topic] { return topicsOf(i, req) })
	d := describing{img: img, listener: c.Conn.Listener(), version: req.Version, gone: m.Gone}
	d.cluster(res, m.ClusterID, req.IncludeClusterAuthorizedOperations)
	switch {
	case wantsAll(req):
		for t := range img.Topics() {
			res.Topics = append(res.Topics, d.topic(t))
		}
	default:
		for _, q := range asked(req.Topics) {
			res.Topics = append(res.Topics, d.asked(q, refused))
		}
	}
	for i := range res.Topics {
		res.Topics[i].AuthorizedOperations = authorized(req.IncludeTopicAuthorizedOperations && res.Topics[i].ErrorCode != kerr.UnknownTopicID.Code, topicOperations)
	}
	return reply(res)
}

// wantsAll tells whether a request is for every topic.
func wantsAll(req *kmsg.MetadataRequest) bool {
	return req.Topics == nil || req.Version == 0 && len(req.Topics) == 0
}

// topicsOf lists the topics of an image that a request asks for.
func topicsOf(img *image.Image, req *kmsg.MetadataRequest) iter.Seq[*image.Topic] {
	if wantsAll(req) {
		return img.Topics()
	}
	return func(yield func(*image.Topic) bool) {
		for _, q := range req.Topics {
			t, ok := img.TopicByID(uuid.UUID(q.TopicID))
			if q.Topic != nil && !ok {
				t, ok = img.Topic(*q.Topic)
			}
			if ok && !yield(t) {
				return
			}
		}
	}
}

// asked is what a request asks for: each topic once, and those named by id alone
// when there are such, as in Kafka.
func asked(topics []kmsg.MetadataRequestTopic) []*kmsg.MetadataRequestTopic {
	type key struct {
		id   uuid.UUID
		name string
	}
	byID := slices.ContainsFunc(topics, func(t kmsg.MetadataRequestTopic) bool { return t.TopicID != uuid.Zero })
	seen := make(map[key]struct{}, len(topics))
	out := make([]*kmsg.MetadataRequestTopic, 0, len(topics))
	for i := range topics {
		q := &topics[i]
		k := key{id: q.TopicID}
		if !byID && q.Topic != nil {
			k.name = *q.Topic
		}
		if _, again := seen[k]; again || byID && q.TopicID == uuid.Zero {
			continue
		}
		seen[k] = struct{}{}
		out = append(out, q)
	}
	return out
}

// create makes the missing topics, if it may, and waits for their leaders. It
// returns the controller's refusals by name, nil when nothing was missing.
func (m *Metadata) create(ctx context.Context, req *kmsg.MetadataRequest, img *image.Image) map[string]int16 {
	if !m.AutoCreate || (req.Version >= 4 && !req.AllowAutoTopicCreation) {
		return nil
	}
	want := kmsg.NewPtrCreateTopicsRequest()
	want.Version = want.MaxVersion()
	want.TimeoutMillis = int32(createWait.Milliseconds())
	for _, t := range req.Topics {
		if t.Topic == nil || *t.Topic == "" || t.TopicID != uuid.Zero {
			continue
		}
		if _, ok := img.Topic(*t.Topic); !ok && !slices.ContainsFunc(want.Topics, func(x kmsg.CreateTopicsRequestTopic) bool { return x.Topic == *t.Topic }) {
			want.Topics = append(want.Topics, m.created(*t.Topic, img))
		}
	}
	if len(want.Topics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, createWait)
	defer cancel()
	refused := map[string]int16{}
	res, err := m.Controller.Do(ctx, want)
	if err != nil {
		return refused // the topics stay unknown: the client asks again
	}
	for _, t := range res.(*kmsg.CreateTopicsResponse).Topics {
		if t.ErrorCode != 0 && t.ErrorCode != kerr.TopicAlreadyExists.Code {
			refused[t.Topic] = t.ErrorCode
		}
	}
	m.Images.WaitFor(ctx, func(i *image.Image) bool {
		for _, t := range want.Topics {
			if refused[t.Topic] == 0 && !led(i, t.Topic) {
				return false
			}
		}
		return true
	})
	return refused
}

// created is the topic that a name stands for.
func (m *Metadata) created(name string, img *image.Image) kmsg.CreateTopicsRequestTopic {
	for i := range m.Internal {
		if name == m.Internal[i].Name {
			return m.Internal[i].request(img).Topics[0]
		}
	}
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, m.Created.Partitions, m.Created.Replicas
	return t
}

// led tells whether a topic exists and all its partitions have leaders.
func led(i *image.Image, name string) bool {
	t, ok := i.Topic(name)
	if !ok {
		return false
	}
	for _, p := range t.Partitions() {
		if p.Leader == partition.None {
			return false
		}
	}
	return true
}

// describing is one answer being made from one image.
type describing struct {
	img      *image.Image
	listener string
	version  int16
	gone     func(*image.Broker) bool // see Metadata.Gone; may be nil
}

// cluster fills in brokers, controller and cluster id.
func (d *describing) cluster(res *kmsg.MetadataResponse, clusterID string, operations bool) {
	res.ControllerID = -1
	for b := range d.img.Brokers() {
		if e, ok := b.Endpoint(d.listener); ok && !b.Fenced {
			n := kmsg.NewMetadataResponseBroker()
			n.NodeID, n.Host, n.Port, n.Rack = b.ID, e.Host, int32(e.Port), b.Rack
			res.Brokers = append(res.Brokers, n)
			if res.ControllerID < 0 {
				// Clients send admin requests there; any broker forwards them (KIP-500).
				res.ControllerID = b.ID
			}
		}
	}
	res.ClusterID = &clusterID
	res.AuthorizedOperations = authorized(operations, clusterOperations)
}

// asked describes a topic named by the client, or says why not.
func (d *describing) asked(q *kmsg.MetadataRequestTopic, refused map[string]int16) kmsg.MetadataResponseTopic {
	if q.TopicID != uuid.Zero {
		if t, ok := d.img.TopicByID(uuid.UUID(q.TopicID)); ok {
			return d.topic(t)
		}
		r := kmsg.NewMetadataResponseTopic()
		r.TopicID, r.ErrorCode = q.TopicID, kerr.UnknownTopicID.Code
		return r
	}
	name := ""
	if q.Topic != nil {
		name = *q.Topic
	}
	if t, ok := d.img.Topic(name); ok {
		return d.topic(t)
	}
	r := kmsg.NewMetadataResponseTopic()
	r.Topic, r.IsInternal = &name, internal(name)
	switch {
	case refused[name] != 0:
		r.ErrorCode = refused[name]
	case !validTopicName(name):
		r.ErrorCode = kerr.InvalidTopicException.Code
	default:
		r.ErrorCode = kerr.UnknownTopicOrPartition.Code
	}
	return r
}

func (d *describing) topic(t *image.Topic) kmsg.MetadataResponseTopic {
	r := kmsg.NewMetadataResponseTopic()
	r.Topic, r.TopicID, r.IsInternal = &t.Name, t.ID, internal(t.Name)
	r.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.NumPartitions())
	for id, p := range t.Partitions() {
		r.Partitions = append(r.Partitions, d.partition(id, p))
	}
	return r
}

func (d *describing) partition(id int32, p *image.Partition) kmsg.MetadataResponseTopicPartition {
	r := kmsg.NewMetadataResponseTopicPartition()
	r.Partition, r.Leader, r.LeaderEpoch = id, p.Leader, p.LeaderEpoch
	r.Replicas, r.ISR = p.Replicas, p.ISR
	r.OfflineReplicas = d.offline(p)
	if d.version == 0 {
		// v0 clients do not know brokers that are down (ErrorUnavailableEndpoints).
		r.Replicas, r.ISR = d.alive(p.Replicas), d.alive(p.ISR)
	}
	switch b, ok := d.img.Broker(p.Leader); {
	case p.Leader == partition.None, !ok, b.Fenced, d.gone != nil && d.gone(b):
		r.ErrorCode = kerr.LeaderNotAvailable.Code
		r.Leader = partition.None
	default:
		if _, reachable := b.Endpoint(d.listener); !reachable {
			r.ErrorCode, r.Leader = kerr.ListenerNotFound.Code, partition.None
			if d.version < 6 {
				r.ErrorCode = kerr.LeaderNotAvailable.Code
			}
		}
	}
	return r
}

func (d *describing) alive(ids []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int32) bool {
		b, ok := d.img.Broker(id)
		return !ok || b.Fenced
	})
}

// offline lists replicas on brokers that are down or on directories that failed.
func (d *describing) offline(p *image.Partition) []int32 {
	out := []int32{}
	for _, id := range p.Replicas {
		if b, ok := d.img.Broker(id); !ok || b.Fenced || !b.HasOnlineDir(p.Directory(id)) {
			out = append(out, id)
		}
	}
	return out
}
