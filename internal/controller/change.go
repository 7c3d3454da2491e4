package controller

import (
	"slices"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// election says how hard a change tries to find a leader.
type election int8

const (
	electOnline    election = iota // keep the leader if it is fine, else any eligible replica
	electPreferred                 // the first replica if it is eligible
	electUnclean                   // like electOnline, and if nobody is eligible, any live replica: data may be lost
)

// change works out one PartitionChangeRecord (Kafka's PartitionChangeBuilder). Set the targets, then call build.
type change struct {
	p          *image.Partition
	id         image.PartitionID
	features   image.Features
	minISR     int
	acceptable func(broker int32) bool
	defaultDir func(broker int32) uuid.UUID
	election   election

	isr, replicas, adding, removing, elr []int32
	dirs                                 map[int32]uuid.UUID
	recovering                           bool
	forgetsLeader                        bool    // the last known leader has lost its disk
	unclean                              []int32 // brokers that came back without a clean shutdown: they leave the ELR
}

func (c *Core) newChange(img *image.Image, t *image.Topic, partition int32, p *image.Partition) *change {
	ch := &change{
		p: p, id: image.PartitionID{Topic: t.ID, Partition: partition}, features: img.Features(), minISR: c.minISR(img, t),
		acceptable: func(b int32) bool { return acceptable(img, p, b) },
		defaultDir: func(b int32) uuid.UUID { return defaultDir(img, b) },
		isr:        p.ISR, replicas: p.Replicas, adding: p.Adding, removing: p.Removing, elr: p.ELR, recovering: p.Recovering,
		dirs: map[int32]uuid.UUID{},
	}
	for i, b := range p.Replicas {
		ch.dirs[b] = p.Directories[i]
	}
	return ch
}

// build returns the record; ok is false when nothing changes.
func (ch *change) build() (v records.Versioned, ok bool) {
	r := records.NewPartitionChangeRecord()
	r.PartitionID, r.TopicID = ch.id.Partition, ch.id.Topic
	ch.completeReassignment()
	ch.populateELR()
	ch.elect(&r)
	ch.bumpForRemovedReplica(&r)
	ch.recordELR(&r)
	if r.ISR == nil && (len(ch.isr) > 0 || ch.features.ELR()) && !slices.Equal(ch.isr, ch.p.ISR) {
		r.ISR = list(ch.isr)
	}
	ch.bumpForShrunkISR(&r)
	ch.recordLastLeader(&r)
	ch.recordAssignment(&r)
	if ch.recovering != ch.p.Recovering {
		r.LeaderRecoveryState = 0
		if ch.recovering {
			r.LeaderRecoveryState = 1
		}
	}
	if isNoOp(&r) {
		return v, false
	}
	return records.Versioned{Record: &r, Version: ch.features.PartitionVersion()}, true
}

func isNoOp(r *records.PartitionChangeRecord) bool {
	return r.ISR == nil && r.EligibleLeaderReplicas == nil && r.LastKnownELR == nil && r.Leader == image.NoLeaderChange && r.Replicas == nil &&
		r.RemovingReplicas == nil && r.AddingReplicas == nil && r.LeaderRecoveryState == -1 && r.Directories == nil
}

// completeReassignment drops the replicas being removed once all being added are in sync and enough others are.
func (ch *change) completeReassignment() {
	if len(ch.adding)+len(ch.removing) == 0 {
		return
	}
	isr, replicas := without(ch.isr, ch.removing...), without(ch.replicas, ch.removing...)
	if len(ch.removing) > 0 && (len(isr) == 0 || len(replicas) == 0) {
		return
	}
	if !containsAll(isr, ch.adding) || len(ch.adding) < len(ch.removing) && !containsAll(isr, replicas) {
		return
	}
	ch.isr, ch.replicas, ch.adding, ch.removing = isr, replicas, nil, nil
}

// populateELR keeps as eligible whoever was in sync or eligible, is not in sync now and did not lose its disk cache (KIP-966). Once
// enough replicas are in sync nobody else is needed.
func (ch *change) populateELR() {
	if !ch.features.ELR() {
		return
	}
	if len(ch.isr) >= ch.minISR {
		ch.elr = nil
		return
	}
	elr := without(union(ch.elr, ch.p.ISR), ch.isr...)
	ch.elr = without(elr, ch.unclean...)
}

func (ch *change) valid(broker int32) bool {
	inSync := slices.Contains(ch.isr, broker) || len(ch.isr) == 0 && slices.Contains(ch.elr, broker)
	return inSync && ch.acceptable(broker)
}

// findLeader returns the broker to lead and whether that is an unclean choice; NoLeader when there is none.
func (ch *change) findLeader() (leader int32, unclean bool) {
	if ch.election == electPreferred && ch.valid(ch.replicas[0]) {
		return ch.replicas[0], false
	}
	if ch.valid(ch.p.Leader) {
		return ch.p.Leader, false
	}
	if i := slices.IndexFunc(ch.replicas, ch.valid); i >= 0 {
		return ch.replicas[i], false
	}
	if ch.canElectLastKnown() {
		return ch.p.LastKnownELR[0], true
	}
	if ch.election == electUnclean {
		if i := slices.IndexFunc(ch.replicas, ch.acceptable); i >= 0 {
			return ch.replicas[i], true
		}
	}
	return image.NoLeader, false
}

// canElectLastKnown: everybody who might have known better is gone for good, and the last leader is back. It may have lost its
// unsynced tail, therefore it starts in recovery.
func (ch *change) canElectLastKnown() bool {
	return !ch.forgetsLeader && ch.features.ELR() && len(ch.elr) == 0 && len(ch.isr) == 0 && len(ch.p.LastKnownELR) == 1 && ch.acceptable(ch.p.LastKnownELR[0])
}

func (ch *change) elect(r *records.PartitionChangeRecord) {
	leader, unclean := ch.findLeader()
	if leader == ch.p.Leader {
		return
	}
	r.Leader = leader
	if slices.Contains(ch.elr, leader) {
		ch.isr = []int32{leader}
		ch.elr = without(ch.elr, leader)
	}
	if unclean {
		r.ISR = []int32{leader}
		if !ch.p.Recovering {
			r.LeaderRecoveryState = 1
		}
	}
}

// bumpForRemovedReplica raises the leader epoch when a replica leaves, so that it cannot go on fetching unnoticed.
func (ch *change) bumpForRemovedReplica(r *records.PartitionChangeRecord) {
	if r.Leader == image.NoLeaderChange && !containsAll(ch.replicas, ch.p.Replicas) {
		r.Leader = ch.p.Leader
	}
}

// bumpForShrunkISR does so when the ISR shrinks, below metadata.version 3.6-IV0.
func (ch *change) bumpForShrunkISR(r *records.PartitionChangeRecord) {
	if ch.features.EpochBumpOnISRShrink() && r.Leader == image.NoLeaderChange && r.ISR != nil && !containsAll(r.ISR, ch.p.ISR) {
		r.Leader = ch.p.Leader
	}
}

// recordELR writes the eligible leaders if they changed. An unclean election or a cluster without the feature forgets them.
func (ch *change) recordELR(r *records.PartitionChangeRecord) {
	if r.ISR != nil || !ch.features.ELR() {
		ch.elr = nil
	}
	if !slices.Equal(ch.elr, ch.p.ELR) {
		r.EligibleLeaderReplicas = list(ch.elr)
	}
}

// recordLastLeader remembers the leader when it is lost, and forgets it when there is a new one.
func (ch *change) recordLastLeader(r *records.PartitionChangeRecord) {
	if !ch.features.ELR() {
		return
	}
	if r.Leader == image.NoLeader && len(ch.p.LastKnownELR) == 0 {
		r.LastKnownELR = []int32{ch.p.Leader}
	}
	if (r.Leader >= 0 || ch.forgetsLeader) && len(ch.p.LastKnownELR) > 0 {
		r.LastKnownELR = []int32{}
	}
}

func (ch *change) recordAssignment(r *records.PartitionChangeRecord) {
	if len(ch.replicas) > 0 && ch.features.Directories() {
		dirs := make([]uuid.UUID, len(ch.replicas))
		for i, b := range ch.replicas {
			d, ok := ch.dirs[b]
			if !ok {
				d = ch.defaultDir(b)
			}
			dirs[i] = d
		}
		if !slices.Equal(dirs, ch.p.Directories) {
			r.Directories = dirs
		}
	}
	if len(ch.replicas) > 0 && !slices.Equal(ch.replicas, ch.p.Replicas) {
		r.Replicas = list(ch.replicas)
	}
	if !slices.Equal(ch.removing, ch.p.Removing) {
		r.RemovingReplicas = list(ch.removing)
	}
	if !slices.Equal(ch.adding, ch.p.Adding) {
		r.AddingReplicas = list(ch.adding)
	}
}

// list copies; never nil, because nil means "unchanged" in a change record.
func list(v []int32) []int32 { return append([]int32{}, v...) }

func without(v []int32, drop ...int32) []int32 {
	var out []int32
	for _, x := range v {
		if !slices.Contains(drop, x) {
			out = append(out, x)
		}
	}
	return out
}

// union returns the members of both, ascending.
func union(a, b []int32) []int32 {
	out := append(slices.Clone(a), b...)
	slices.Sort(out)
	return slices.Compact(out)
}

func containsAll(v, want []int32) bool {
	for _, x := range want {
		if !slices.Contains(v, x) {
			return false
		}
	}
	return true
}
