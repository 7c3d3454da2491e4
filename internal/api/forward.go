package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/wire"
)

// Forward serves an API that the active controller decides: the request goes
// there as it is, and the controller's answer comes back. It serves the versions
// of CreateTopics (19), DeleteTopics (20), CreatePartitions (37), AlterConfigs
// (33), IncrementalAlterConfigs (44), UpdateFeatures (57), ElectLeaders (43),
// AlterPartition (56), AllocateProducerIds (67), BrokerRegistration (62),
// BrokerHeartbeat (63), UnregisterBroker (64), AssignReplicasToDirs (73),
// ControllerRegistration (70), AlterPartitionReassignments (45) and
// ListPartitionReassignments (46); see controller_*.go for what each changed.
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
	asked, cancel := context.WithTimeout(ctx, timeoutOf(req))
	defer cancel()
	res, err := f.Controller.Do(asked, req)
	if err != nil {
		return reply(errorResponse(req, err))
	}
	if f.Settled != nil {
		wait, cancel := context.WithTimeout(ctx, settleWait)
		defer cancel()
		f.Images.WaitFor(wait, func(img *image.Image) bool { return f.Settled(req, res, img) })
	}
	return reply(res)
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
