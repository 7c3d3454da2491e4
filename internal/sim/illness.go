package sim

import (
	"fmt"
	"strings"
)

// illness says what keeps the cluster from being well.
func (w *World) illness() string {
	var out []string
	for _, n := range w.nodes {
		if !n.up {
			out = append(out, fmt.Sprintf("node %d is down", n.id))
			continue
		}
		out = append(out, fmt.Sprintf("node %d: quorum leader %v, image %d, registered %t as %d, fenced %t", n.id, n.q.Leader(), n.q.Images().Image().Provenance.Offset, n.member.registered, n.member.epoch, n.member.fenced))
	}
	for _, p := range w.producers {
		if len(p.open) > 0 {
			out = append(out, fmt.Sprintf("producer %d of %s has %d batches open, from sequence %d, sent %t to %d: %v", p.index, p.part.name, len(p.open), p.open[0].seq, p.open[0].sent, p.to, p.err))
		}
	}
	for _, t := range w.check.parts {
		line := fmt.Sprintf("%s: committed to %d", t.name, t.end())
		if t.newest != nil {
			line += fmt.Sprintf(", leader %d in %d, ISR %v, ELR %v, last %v", t.newest.Leader, t.newest.LeaderEpoch, t.newest.ISR, t.newest.ELR, t.newest.LastKnownELR)
			for _, id := range t.newest.Replicas {
				n := w.node(id)
				if !n.up {
					continue
				}
				r, err := n.replicas.Replica(t.id.Topic, t.id.Partition)
				if err != nil {
					line += fmt.Sprintf("; %d: %v", id, err)
					continue
				}
				o := r.Log().Offsets()
				line += fmt.Sprintf("; %d: leading %t in %d, HW %d, end %d", id, r.Status().Leading, r.Status().LeaderEpoch, o.HighWatermark, o.LogEnd)
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n  ")
}
