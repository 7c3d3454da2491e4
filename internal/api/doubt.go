package api

import (
	"context"
	"iter"
	"slices"
	"time"

	"weir/internal/image"
)

// doubtLook is how often it is looked whether a leader is still doubted: that ends
// by a new image, by what this node finds out, or in time.
const doubtLook = 5 * time.Millisecond

// settled returns an image in which no partition of the topics has a leader that is
// doubted, as soon as there is one, and the present one when the doubt has ended
// otherwise. Nil for doubted: nobody is. The topics of an image are looked at once.
func settled(ctx context.Context, images Images, doubted func(*image.Broker) bool, topics func(*image.Image) iter.Seq[*image.Topic]) *image.Image {
	img := images.Image()
	for doubted != nil {
		leaders := doubtedLeaders(img, doubted, topics)
		old := img
		for img == old && ctx.Err() == nil && slices.ContainsFunc(leaders, doubted) {
			look, cancel := context.WithTimeout(ctx, doubtLook)
			img = images.WaitFor(look, func(i *image.Image) bool { return i != old })
			cancel()
		}
		if img == old {
			break
		}
	}
	return img
}

// doubtedLeaders lists the brokers that are doubted and lead a partition of the
// topics; nil mostly, and then the topics are not looked at.
func doubtedLeaders(img *image.Image, doubted func(*image.Broker) bool, topics func(*image.Image) iter.Seq[*image.Topic]) []*image.Broker {
	left := map[int32]*image.Broker{} // without a partition so far
	for b := range img.Brokers() {
		if !b.Fenced && doubted(b) {
			left[b.ID] = b
		}
	}
	if len(left) == 0 {
		return nil
	}
	var out []*image.Broker
	for t := range topics(img) {
		for _, p := range t.Partitions() {
			if b := left[p.Leader]; b != nil {
				out = append(out, b)
				delete(left, p.Leader)
			}
		}
		if len(left) == 0 {
			break
		}
	}
	return out
}
