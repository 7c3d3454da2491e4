package api

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/uuid"
	"weir/internal/wire"
)

// Kinds of coordinators, as FindCoordinator numbers them.
const (
	groupCoordinator int8 = 0
	txnCoordinator   int8 = 1
	shareCoordinator int8 = 2
)

// FindCoordinator tells which broker coordinates a group (API key 10), versions 0–6.
//
//	v1  the kind of coordinator, and an error message
//	v4  several keys at once (KIP-699)
//	v6  share coordinators (KIP-932)
//
// The topic that a coordinator keeps its state in is created by the first request;
// until it has leaders the answer is COORDINATOR_NOT_AVAILABLE.
//
// Not implemented: share coordinators are refused with INVALID_REQUEST.
type FindCoordinator struct {
	Images       Images
	Controller   Controller
	Groups, Txns Coordinated
	Logger       *slog.Logger
}

// Coordinated is one kind of coordinator.
type Coordinated struct {
	// Keys tells which partition of the topic a key belongs to.
	Keys interface{ Partition(id string) int32 }
	// Topic is how the coordinator's topic is created.
	Topic InternalTopic
	// creating: a request to the controller is on its way.
	creating *atomic.Bool
}

// NewCoordinated makes a kind of coordinator.
func NewCoordinated(keys interface{ Partition(id string) int32 }, topic InternalTopic) Coordinated {
	return Coordinated{Keys: keys, Topic: topic, creating: new(atomic.Bool)}
}

// InternalTopic is how an internal topic is created.
type InternalTopic struct {
	Name       string
	Partitions int32
	// Replicas is the replication factor of the configuration file, 0 when it has
	// none: then min(3, live brokers).
	Replicas int16
	Configs  map[string]string
}

// defaultReplicas is how many replicas an internal topic should have.
const defaultReplicas = 3

// Key is FindCoordinator.
func (*FindCoordinator) Key() kmsg.Key { return kmsg.FindCoordinator }

// Handle looks each key up.
func (h *FindCoordinator) Handle(_ context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.FindCoordinatorRequest](r)
	res := responseTo[*kmsg.FindCoordinatorResponse](r)
	if req.Version >= 4 {
		for _, key := range req.CoordinatorKeys {
			res.Coordinators = append(res.Coordinators, h.find(key, req, c.Conn.Listener()))
		}
		return reply(res)
	}
	f := h.find(req.CoordinatorKey, req, c.Conn.Listener())
	res.NodeID, res.Host, res.Port, res.ErrorCode, res.ErrorMessage = f.NodeID, f.Host, f.Port, f.ErrorCode, f.ErrorMessage
	if req.Version >= 1 && res.ErrorCode == 0 {
		none := "NONE" // Kafka's text for no error, which it tells here
		res.ErrorMessage = &none
	}
	return reply(res)
}

func (h *FindCoordinator) find(key string, req *kmsg.FindCoordinatorRequest, listener string) kmsg.FindCoordinatorResponseCoordinator {
	f := kmsg.NewFindCoordinatorResponseCoordinator()
	none := ""
	f.Key, f.NodeID, f.Port, f.ErrorMessage = key, -1, -1, &none
	fail := func(err *kerr.Error, text string) kmsg.FindCoordinatorResponseCoordinator {
		f.ErrorCode, f.ErrorMessage = err.Code, &text
		return f
	}
	// From v4 on some errors are told by their code alone.
	notAvailable, share := "", ""
	if req.Version < 4 {
		notAvailable, share = kerr.CoordinatorNotAvailable.Description, kerr.InvalidRequest.Description
	}
	of := h.Groups
	switch kind := req.CoordinatorType; {
	case kind == groupCoordinator:
	case kind == txnCoordinator:
		of = h.Txns
	case kind == shareCoordinator && req.Version >= 6 && sharePartition(key):
		return fail(kerr.InvalidRequest, "This server does not serve share groups yet.")
	case kind == shareCoordinator:
		return fail(kerr.InvalidRequest, share)
	default:
		return fail(kerr.InvalidRequest, kerr.InvalidRequest.Description)
	}
	img := h.Images.Image()
	t, ok := img.Topic(of.Topic.Name)
	if !ok {
		h.create(of, img)
		return fail(kerr.CoordinatorNotAvailable, notAvailable)
	}
	p, ok := t.Partition(of.Keys.Partition(key))
	if !ok {
		return fail(kerr.CoordinatorNotAvailable, notAvailable)
	}
	b, ok := img.Broker(p.Leader)
	if !ok || b.Fenced {
		return fail(kerr.CoordinatorNotAvailable, notAvailable)
	}
	e, ok := b.Endpoint(listener)
	if !ok {
		return fail(kerr.CoordinatorNotAvailable, notAvailable)
	}
	f.NodeID, f.Host, f.Port = b.ID, e.Host, int32(e.Port)
	return f
}

// sharePartition tells a share coordinator's key, "group:topic id:partition": a
// group's id may have colons itself.
func sharePartition(key string) bool {
	rest, partition, ok := cutLast(key, ":")
	group, topic, more := cutLast(rest, ":")
	if _, err := strconv.ParseInt(partition, 10, 32); !ok || !more || group == "" || err != nil {
		return false
	}
	_, err := uuid.Parse(topic)
	return err == nil
}

// cutLast cuts s around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// create asks the controller for the topic. The client asks again, and is not
// made to wait here: it may name several keys.
func (h *FindCoordinator) create(of Coordinated, img *image.Image) {
	if !of.creating.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer of.creating.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), internalTopicWait)
		defer cancel()
		res, err := h.Controller.Do(ctx, of.Topic.request(img))
		if err != nil {
			h.Logger.Warn("an internal topic could not be created: it is tried again when a client asks", "topic", of.Topic.Name, "err", err)
			return
		}
		for _, t := range res.(*kmsg.CreateTopicsResponse).Topics {
			if t.ErrorCode != 0 && t.ErrorCode != kerr.TopicAlreadyExists.Code {
				text := ""
				if t.ErrorMessage != nil {
					text = *t.ErrorMessage
				}
				h.Logger.Warn("an internal topic could not be created: it is tried again when a client asks", "topic", of.Topic.Name, "err", kerr.ErrorForCode(t.ErrorCode), "message", text)
			}
		}
		h.Images.WaitFor(ctx, func(i *image.Image) bool { _, ok := i.Topic(of.Topic.Name); return ok })
	}()
}

// internalTopicWait bounds one attempt to create an internal topic.
const internalTopicWait = 10 * time.Second

func (t *InternalTopic) request(img *image.Image) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = req.MaxVersion()
	req.TimeoutMillis = int32(internalTopicWait.Milliseconds())
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = t.Name, t.Partitions, t.Replicas
	if t.Replicas == 0 {
		for b := range img.Brokers() {
			if b.Active() && one.ReplicationFactor < defaultReplicas {
				one.ReplicationFactor++
			}
		}
		one.ReplicationFactor = max(one.ReplicationFactor, 1)
	}
	for k, v := range t.Configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, &v
		one.Configs = append(one.Configs, c)
	}
	req.Topics = append(req.Topics, one)
	return req
}
