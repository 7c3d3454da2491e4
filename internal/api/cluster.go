package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/uuid"
)

// Images gives the cluster as committed and seen by this node.
type Images interface {
	Image() *image.Image
	// WaitFor returns the first image that satisfies ok, or the present one when ctx ends.
	WaitFor(ctx context.Context, ok func(*image.Image) bool) *image.Image
}

// Replicas finds the replicas that this broker hosts. Errors are
// *replication.NotHostedError and *replication.OfflineError.
type Replicas interface {
	Replica(topic uuid.UUID, partition int32) (*partition.Replica, error)
}

// Controller carries a request to the active controller, on this node or
// another one, on behalf of the caller. An error means that no answer came: see
// errors.go.
type Controller interface {
	Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// find resolves a partition that a client named, by name or by id, to the
// replica that serves it.
func find(img *image.Image, rs Replicas, t *image.Topic, p int32) (*partition.Replica, error) {
	if _, ok := t.Partition(p); !ok {
		return nil, errUnknownPartition
	}
	return rs.Replica(t.ID, p)
}

// endpoints lists where the named brokers listen, for answers that tell a
// client where to go (KIP-951).
func endpoints(img *image.Image, listener string, ids map[int32]struct{}, add func(b *image.Broker, e image.Endpoint)) {
	for id := range ids {
		if b, ok := img.Broker(id); ok {
			if e, ok := b.Endpoint(listener); ok {
				add(b, e)
			}
		}
	}
}
