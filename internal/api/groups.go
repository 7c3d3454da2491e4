package api

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/image"
	"weir/internal/uuid"
)

// Members are the groups' members, at the coordinator.
type Members interface {
	Join(ctx context.Context, q *kmsg.JoinGroupRequest, from classic.Client) kmsg.Response
	Sync(ctx context.Context, q *kmsg.SyncGroupRequest) kmsg.Response
	Heartbeat(ctx context.Context, q *kmsg.HeartbeatRequest) kmsg.Response
	Leave(ctx context.Context, q *kmsg.LeaveGroupRequest) kmsg.Response
}

// Offsets are the committed offsets, at the coordinator.
type Offsets interface {
	Commit(ctx context.Context, q *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse
	Fetch(ctx context.Context, q *kmsg.OffsetFetchRequestGroup, stable bool) (kmsg.OffsetFetchResponseGroup, *kerr.Error)
	DeleteOffsets(ctx context.Context, q *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse
}

// Registry is the groups themselves, at the coordinator.
type Registry interface {
	Describe(ctx context.Context, id string, version int16) kmsg.DescribeGroupsResponseGroup
	List(ctx context.Context, states, types []string) ([]kmsg.ListGroupsResponseGroup, *kerr.Error)
	Delete(ctx context.Context, id string) *kerr.Error
}

// Groups is the whole coordinator of groups.
type Groups interface {
	Members
	Consumers
	Offsets
	Registry
	TxnCommit(ctx context.Context, q *kmsg.TxnOffsetCommitRequest, verify bool) *kmsg.TxnOffsetCommitResponse
	// Partition is the partition of __consumer_offsets that a group belongs to.
	Partition(id string) int32
}

// member is who sent a request, as a group tells of it.
func member(c *Call) classic.Client {
	host := c.Conn.RemoteAddr().String()
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return classic.Client{ID: c.ClientID(), Host: "/" + host} // as Java prints an address without a name
}

const groupOperations int32 = opRead | opDelete | opDescribe | opDescribeConfigs | opAlterConfigs

// named finds the topic of a request by id (when the version has ids) or by name,
// and fills in the other. What does not exist gives the error of its rows.
func named(img *image.Image, byID bool, name *string, id *[16]byte) (*image.Topic, *kerr.Error) {
	if byID {
		t, ok := img.TopicByID(uuid.UUID(*id))
		if !ok {
			return nil, kerr.UnknownTopicID
		}
		*name = t.Name
		return t, nil
	}
	t, ok := img.Topic(*name)
	if !ok {
		return nil, kerr.UnknownTopicOrPartition
	}
	*id = t.ID
	return t, nil
}

// partitionError is the error of a partition's row: the topic's, or that it has
// no such partition.
func partitionError(t *image.Topic, err *kerr.Error, p int32) *kerr.Error {
	if err == nil {
		if _, ok := t.Partition(p); !ok {
			return kerr.UnknownTopicOrPartition
		}
	}
	return err
}
