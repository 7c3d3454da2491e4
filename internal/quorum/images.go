package quorum

import (
	"context"
	"sync"
	"sync/atomic"

	"weir/internal/image"
	"weir/internal/records"
)

// Subscriber follows the cluster image. Apply is called from one goroutine, in
// order, before readers see the image: when a topic appears in Images, its
// replicas here are open.
type Subscriber interface {
	Apply(img *image.Image, d *image.Delta)
}

// Images is the cluster as this node has applied it. It is safe for use by many
// goroutines.
type Images struct {
	current   atomic.Pointer[image.Image]
	committed func() int64 // the offset below which the metadata log is committed, -1 while unknown

	mu      sync.Mutex
	changed chan struct{} // closed at the next publish; nil while nobody waits
}

func newImages(committed func() int64) *Images {
	i := &Images{committed: committed}
	i.current.Store(image.New())
	return i
}

// Image is the newest image.
func (i *Images) Image() *image.Image { return i.current.Load() }

// Current tells whether img holds everything that this node knows to be
// committed. False while it does not know: the images of a node that starts are
// the past, as it is read from the log.
func (i *Images) Current(img *image.Image) bool {
	end := i.committed()
	return end >= 0 && img.Provenance.Offset >= end-1
}

// WaitFor returns the first image that satisfies ok, or the present one when ctx
// ends before.
func (i *Images) WaitFor(ctx context.Context, ok func(*image.Image) bool) *image.Image {
	for {
		i.mu.Lock()
		img := i.current.Load()
		if ok(img) {
			i.mu.Unlock()
			return img
		}
		if i.changed == nil {
			i.changed = make(chan struct{})
		}
		c := i.changed
		i.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
			return i.current.Load()
		}
	}
}

func (i *Images) publish(img *image.Image) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.current.Store(img)
	if i.changed != nil {
		close(i.changed)
		i.changed = nil
	}
}

// committed is what the metadata log told: a batch, or a snapshot's content.
type committed struct {
	snapshot bool
	records  []records.Versioned
	prov     image.Provenance
	bytes    int
}

// feed queues what is committed for the goroutine that applies it, because the
// metadata log must not wait while logs are opened.
type feed struct {
	mu    sync.Mutex
	queue []committed
	wake  chan struct{}
}

func (f *feed) put(c committed) {
	f.mu.Lock()
	f.queue = append(f.queue, c)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *feed) take() []committed {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queue
	f.queue = nil
	return q
}
