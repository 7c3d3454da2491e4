package quorum

import (
	"context"
	"sync"

	"weir/internal/kraft"
	"weir/internal/vfs"
)

// Answer hands a request of another replica or a tool to the log and waits for
// the answer. The body is nil when ctx ended before, or the log was closed. For a
// fetch the caller releases the regions.
func (n *Node) Answer(ctx context.Context, from int32, body kraft.RequestBody) (kraft.ResponseBody, []vfs.Region) {
	var a struct {
		sync.Mutex
		body    kraft.ResponseBody
		regions []vfs.Region
		left    bool // nobody waits any more
	}
	done := make(chan struct{})
	n.o.Log.Request(from, body, func(r kraft.ResponseBody, regions []vfs.Region) {
		a.Lock()
		defer a.Unlock()
		if a.left {
			release(regions)
			return
		}
		a.body, a.regions = r, regions
		close(done)
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
	a.Lock()
	defer a.Unlock()
	a.left = true
	if ctx.Err() != nil && a.body == nil {
		return nil, nil
	}
	return a.body, a.regions
}

func release(regions []vfs.Region) {
	for i := range regions {
		regions[i].Release()
	}
}

// Learn takes down where a node of the quorum says that it listens.
func (n *Node) Learn(id int32, endpoints []kraft.Endpoint) { n.o.Book.Learn(id, endpoints) }

// Endpoint is where a node of the quorum listens, by the name of a controller listener.
func (n *Node) Endpoint(id int32, listener string) (kraft.Endpoint, bool) {
	return n.o.Book.Endpoint(id, listener)
}
