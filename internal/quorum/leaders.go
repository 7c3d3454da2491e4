package quorum

import (
	"fmt"

	"weir/internal/image"
)

// tellLeaders logs why partitions have other leaders than before, a line for each
// reason: the active controller of all partitions, another node of those that it
// leads now. Why a broker was fenced is told by the controller that did it.
func (n *Node) tellLeaders(img *image.Image, d *image.Delta) {
	type sum struct {
		partitions, here int
		one              string
	}
	var order []string
	sums := map[string]*sum{}
	for _, c := range d.LeaderChanges(img) {
		s := sums[c.Because]
		if s == nil {
			s = &sum{one: fmt.Sprintf("%s-%d", c.Topic, c.Partition)}
			sums[c.Because] = s
			order = append(order, c.Because)
		}
		s.partitions++
		if c.To == n.o.NodeID {
			if s.here == 0 {
				s.one = fmt.Sprintf("%s-%d", c.Topic, c.Partition)
			}
			s.here++
		}
	}
	active := n.Active()
	for _, why := range order {
		if s := sums[why]; active || s.here > 0 {
			n.o.Logger.Info("leaders changed", "because", why, "partitions", s.partitions, "led here", s.here, "one of them", s.one)
		}
	}
}
