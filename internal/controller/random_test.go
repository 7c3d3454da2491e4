package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/uuid"
)

// TestRandomLife lets brokers come, go and die at random on several metadata versions, with topics, ISR changes and failovers, and
// checks after every step what must hold of any partition. The seed names the failing run.
func TestRandomLife(t *testing.T) {
	for seed := range uint64(60) {
		level := []struct {
			metadata int16
			elr      bool
		}{{30, true}, {30, false}, {17, false}, {7, false}}[seed%4]
		l := &life{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 5)), e: newEnv(level.metadata, level.elr)}
		l.e.apply(l.e.core.Activate(l.e.step()))
		for range 300 {
			l.step()
			l.check()
		}
	}
}

type life struct {
	t      *testing.T
	seed   uint64
	r      *rand.Rand
	e      *env
	topics int
	births int
}

func (l *life) broker() int32 { return int32(l.r.IntN(4) + 1) }

func (l *life) step() {
	e := l.e
	e.out.Reset()
	switch l.r.IntN(12) {
	case 0:
		l.register()
	case 1, 2, 3:
		l.heartbeats()
	case 4:
		e.nowMs += int64(l.r.IntN(4000))
		e.apply(e.core.Tick(e.step()))
	case 5:
		l.topics++
		req := createRequest(fmt.Sprintf("t%d", l.topics), int32(l.r.IntN(3)+1))
		req.Topics[0].ReplicationFactor = int16(l.r.IntN(3) + 1)
		if l.r.IntN(3) == 0 {
			req = createRequest(fmt.Sprintf("t%d", l.topics), 1, keyUnclean, "true", keyMinISR, "2")
		}
		e.apply(e.core.CreateTopics(e.step(), req))
	case 6, 7:
		l.alterISR()
	case 8:
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType = int8(l.r.IntN(2))
		e.apply(e.core.ElectLeaders(e.step(), req))
	case 9:
		if b, ok := e.img.Broker(l.broker()); ok {
			e.apply(e.core.FenceDead(e.step(), []BrokerRef{{b.ID, b.Epoch}}))
		}
	case 10:
		if l.r.IntN(4) == 0 {
			e.core.Deactivate()
			e.apply(e.core.Activate(e.step()))
		}
	case 11:
		if l.r.IntN(4) == 0 {
			req := kmsg.NewPtrUnregisterBrokerRequest()
			req.BrokerID = l.broker()
			e.apply(e.core.UnregisterBroker(e.step(), req))
		}
	}
}

func (l *life) register() {
	e := l.e
	l.births++
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version, req.BrokerID, req.ClusterID, req.PreviousBrokerEpoch = 4, l.broker(), "c", -1
	req.IncarnationID = uuid.UUID{13: byte(l.births >> 8), 14: byte(req.BrokerID), 15: byte(l.births)}
	if b, ok := e.img.Broker(req.BrokerID); ok && l.r.IntN(2) == 0 {
		req.PreviousBrokerEpoch = b.Epoch
	}
	for n := range l.r.IntN(2) + 1 {
		req.LogDirs = append(req.LogDirs, dir(int(req.BrokerID), n+1))
	}
	for _, f := range supported() {
		x := kmsg.NewBrokerRegistrationRequestFeature()
		x.Name, x.MinSupportedVersion, x.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, x)
	}
	e.apply(e.core.RegisterBroker(e.step(), req))
}

func (l *life) heartbeats() {
	e := l.e
	for id := int32(1); id <= 4; id++ {
		b, ok := e.img.Broker(id)
		if !ok || l.r.IntN(3) == 0 {
			continue
		}
		req := kmsg.NewPtrBrokerHeartbeatRequest()
		req.Version, req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = 2, id, b.Epoch, e.offset-1-int64(l.r.IntN(3))
		req.WantShutdown, req.WantFence = l.r.IntN(8) == 0, l.r.IntN(15) == 0
		if len(b.Dirs) > 1 && l.r.IntN(10) == 0 {
			req.OfflineLogDirs = append(req.OfflineLogDirs, b.Dirs[0])
		}
		e.apply(e.core.Heartbeat(e.step(), req))
	}
}

// alterISR lets a leader ask for some replicas, eligible or not.
func (l *life) alterISR() {
	for id := range l.e.img.PartitionsOn(l.broker()) {
		p := l.e.img.Partition(id)
		b, ok := l.e.img.Broker(p.Leader)
		if !ok || l.r.IntN(2) == 0 {
			continue
		}
		req := kmsg.NewPtrAlterPartitionRequest()
		req.Version, req.BrokerID, req.BrokerEpoch = 3, b.ID, b.Epoch
		rp := kmsg.NewAlterPartitionRequestTopicPartition()
		rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = id.Partition, p.LeaderEpoch, p.PartitionEpoch
		for _, r := range p.Replicas {
			if r == p.Leader || l.r.IntN(2) == 0 {
				m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
				m.BrokerID, m.BrokerEpoch = r, -1
				rp.NewEpochISR = append(rp.NewEpochISR, m)
			}
		}
		rt := kmsg.NewAlterPartitionRequestTopic()
		rt.TopicID, rt.Partitions = id.Topic, []kmsg.AlterPartitionRequestTopicPartition{rp}
		req.Topics = append(req.Topics, rt)
		l.e.apply(l.e.core.AlterPartition(l.e.step(), req))
		return
	}
}

func (l *life) check() {
	img := l.e.img
	for topic := range img.Topics() {
		for i, p := range topic.Partitions() {
			fail := func(what string) {
				l.t.Fatalf("seed %d offset %d: %s-%d %s: %+v\nlast step:\n%s", l.seed, l.e.offset, topic.Name, i, what, *p, l.e.out.String())
			}
			if p.Leader != image.NoLeader {
				b, ok := img.Broker(p.Leader)
				switch {
				case !slices.Contains(p.ISR, p.Leader):
					fail("is led by a replica that is not in sync")
				case !ok || b.Fenced:
					fail("is led by a fenced broker")
				}
			}
			for _, b := range p.ISR {
				if !slices.Contains(p.Replicas, b) {
					fail("has an ISR member that is no replica")
				}
				if slices.Contains(p.ELR, b) {
					fail("has a member of both ISR and ELR")
				}
				if r, ok := img.Broker(b); img.Features().ELR() && (!ok || r.Fenced) {
					fail("has a fenced ISR member")
				}
			}
			if !containsAll(p.Replicas, p.ELR) || !img.Features().ELR() && len(p.ELR)+len(p.LastKnownELR) > 0 {
				fail("has an ELR that it must not have")
			}
			if img.Features().ELR() && len(p.ISR) == 0 && p.Leader != image.NoLeader {
				fail("has a leader without an ISR")
			}
		}
	}
}
