package api

import (
	"context"
	"iter"
	"time"

	"weir/internal/image"
)

// doubtLook is how often it is looked whether a leader is still doubted: that ends
// by a new image, by what this node finds out, or in time.
const doubtLook = 5 * time.Millisecond

// settled returns an image in which no partition of the topics has a leader that is
// doubted, as soon as there is one, and the present one when the doubt has ended
// otherwise. Nil for doubted: nobody is.
func settled(ctx context.Context, images Images, doubted func(*image.Broker) bool, topics func(*image.Image) iter.Seq[*image.Topic]) *image.Image {
	img := images.Image()
	for doubted != nil && ctx.Err() == nil && ledBy(doubtedOf(img, doubted), topics(img)) {
		look, cancel := context.WithTimeout(ctx, doubtLook)
		old := img
		img = images.WaitFor(look, func(i *image.Image) bool { return i != old })
		cancel()
	}
	return img
}

// doubtedOf lists the brokers that are doubted; nil mostly.
func doubtedOf(img *image.Image, doubted func(*image.Broker) bool) map[int32]bool {
	var out map[int32]bool
	for b := range img.Brokers() {
		if !b.Fenced && doubted(b) {
			if out == nil {
				out = map[int32]bool{}
			}
			out[b.ID] = true
		}
	}
	return out
}

// ledBy tells whether some partition is led by one of the brokers.
func ledBy(brokers map[int32]bool, topics iter.Seq[*image.Topic]) bool {
	if len(brokers) == 0 {
		return false
	}
	for t := range topics {
		for _, p := range t.Partitions() {
			if brokers[p.Leader] {
				return true
			}
		}
	}
	return false
}
