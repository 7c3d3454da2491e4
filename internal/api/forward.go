package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/wire"
)

// Forward serves an API of the controller, in all its versions. The active controller decides: the
// request goes there as it is, and its answer comes back.
//
//	CreateTopics             v1 an error message, validate only; v4 -1 asks for the default partitions and replicas; v5 partitions, replicas and configurations in the answer; v7 topic ids
//	DeleteTopics             v5 an error message; v6 topics by id (KIP-516)
//	CreatePartitions         v2 flexible
//	AlterConfigs             v2 flexible
//	IncrementalAlterConfigs  v1 flexible
//	UpdateFeatures           v1 upgrade types and validate only (KIP-584); v2 one error for all features
//	AlterPartitionReassignments  v1 may forbid another replication factor (KIP-860)
//	ListPartitionReassignments   v0 all of them, or those of some partitions
//	ElectLeaders             v1 unclean elections (KIP-460); v2 flexible
//	DescribeQuorum           v1 times of the last fetch (KIP-836); v2 directory ids and the voters' addresses (KIP-853)
//	AddRaftVoter             v1 may be answered before the commit (KIP-853)
//	RemoveRaftVoter          v0 a voter becomes an observer (KIP-853)
//	UpdateRaftVoter          v0 a voter's addresses and levels; below kraft.version 1 remembered for the upgrade
//	AlterPartition           v3 broker epochs of the ISR (KIP-903)
//	AllocateProducerIds      v0 a block of producer ids (KIP-730)
//	AssignReplicasToDirs     v0 where replicas lie (KIP-858)
//	BrokerRegistration       v1 migration from ZooKeeper, refused; v2 directories; v3 the epoch of a clean shutdown (KIP-966); v4 cordoned directories
//	BrokerHeartbeat          v1 offline directories (KIP-858); v2 cordoned directories (KIP-1066)
//	ControllerRegistration   v0 where a controller listens (KIP-919)
//	UnregisterBroker         v0 also of a broker that lives (KIP-500): it is out until its next registration
type Forward struct {
	API        kmsg.Key
	Controller Controller
	// Settled, when set, tells whether this node's image shows what the answer
	// says, so that the client's next request finds it (pain P23).
	Settled func(req kmsg.Request, res kmsg.Response, img *image.Image) bool
	Images  Images
}

// settleWait bounds the wait for this node's image: the change is committed
// whether or not it shows here yet.
const settleWait = time.Second

// forwardTimeout bounds requests that carry no timeout of their own
// (request.timeout.ms).
const forwardTimeout = 30 * time.Second

// Key is the API it was made for.
func (f *Forward) Key() kmsg.Key { return f.API }

// Handle asks the controller.
func (f *Forward) Handle(ctx context.Context, _ *Call, req kmsg.Request) wire.Response {
	return reply(f.ask(ctx, req))
}

// ask carries the request to the controller. A controller that does not answer
// is an error in every row.
func (f *Forward) ask(ctx context.Context, req kmsg.Request) kmsg.Response {
	asked, cancel := context.WithTimeout(ctx, timeoutOf(req))
	defer cancel()
	res, err := f.Controller.Do(asked, req)
	if err != nil {
		return errorResponse(req, err)
	}
	if f.Settled != nil {
		wait, cancel := context.WithTimeout(ctx, settleWait)
		defer cancel()
		f.Images.WaitFor(wait, func(img *image.Image) bool { return f.Settled(req, res, img) })
	}
	return res
}

func timeoutOf(req kmsg.Request) time.Duration {
	if t, ok := req.(kmsg.TimeoutRequest); ok && t.Timeout() > 0 {
		return time.Duration(t.Timeout()) * time.Millisecond
	}
	return forwardTimeout
}

// topicsCreated tells whether every topic that the answer says was created has
// leaders here.
func topicsCreated(_ kmsg.Request, r kmsg.Response, img *image.Image) bool {
	for _, t := range r.(*kmsg.CreateTopicsResponse).Topics {
		if t.ErrorCode == 0 && t.TopicID != [16]byte{} && !led(img, t.Topic) {
			return false
		}
	}
	return true
}

// topicsDeleted tells whether every topic that the answer says is gone is.
func topicsDeleted(_ kmsg.Request, r kmsg.Response, img *image.Image) bool {
	for _, t := range r.(*kmsg.DeleteTopicsResponse).Topics {
		if t.ErrorCode == 0 && t.Topic != nil {
			if left, ok := img.Topic(*t.Topic); ok && (t.TopicID == [16]byte{} || left.ID == t.TopicID) {
				return false
			}
		}
	}
	return true
}

// partitionsCreated tells whether the new partitions have leaders here.
func partitionsCreated(q kmsg.Request, r kmsg.Response, img *image.Image) bool {
	req := q.(*kmsg.CreatePartitionsRequest)
	if req.ValidateOnly {
		return true
	}
	for _, t := range r.(*kmsg.CreatePartitionsResponse).Topics {
		if t.ErrorCode != 0 {
			continue
		}
		for _, asked := range req.Topics {
			if topic, ok := img.Topic(t.Topic); asked.Topic == t.Topic && ok && (topic.NumPartitions() < int(asked.Count) || !led(img, t.Topic)) {
				return false
			}
		}
	}
	return true
}
