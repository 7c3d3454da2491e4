package api

// Reading near by (KIP-392): a consumer that tells its rack is sent to an in-sync
// follower there, if the leader is elsewhere. It goes on reading from it until
// that follower cannot serve it any more, or it asks for metadata again.

// nearer finds the follower that a consumer should read from instead, as Kafka's
// RackAwareReplicaSelector does: any of the consumer's rack, the furthest first.
func (d *fetching) nearer(p *fetchPart) (broker int32, ok bool) {
	if !d.f.NearRacks || d.follower >= 0 || d.req.Version < 11 || d.req.Rack == "" || p.replica.CheckEpoch(p.leaderEpoch) != nil {
		return 0, false
	}
	in := func(id int32) bool {
		b, known := d.img.Broker(id)
		return known && b.Active() && b.Rack != nil && *b.Rack == d.req.Rack
	}
	if in(p.replica.Status().Leader) {
		return 0, false
	}
	for _, id := range p.replica.Holders(p.offset) {
		if in(id) {
			return id, true
		}
	}
	return 0, false
}

// send answers a partition with the follower to read from, and no records.
func (d *fetching) send(p *fetchPart, broker int32) {
	fp := d.result(p)
	o := p.replica.Log().Offsets()
	fp.HighWatermark, fp.LastStableOffset, fp.LogStartOffset = o.HighWatermark, o.LastStable, o.LogStart
	fp.PreferredReadReplica = broker
	d.urgent = true
}
