package replication

import (
	"context"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/storage"
	"weir/internal/storage/dirs"
	"weir/internal/uuid"
)

// assignTimeout bounds one AssignReplicasToDirs; what it did not settle is sent
// again.
const assignTimeout = 5 * time.Second

// assign notes that a replica stands in a directory which the controller does
// not know it to be in (KIP-858).
func (m *Manager) assign(k key, dir uuid.UUID) {
	m.assignments.Lock()
	defer m.assignments.Unlock()
	if m.assignments.dirs == nil {
		m.assignments.dirs = map[key]uuid.UUID{}
	}
	m.assignments.dirs[k] = dir
	poke(m.assigned)
}

// runAssignments tells the controller of directories until ctx ends. What it
// does not take is sent again, after pauses that grow.
func (m *Manager) runAssignments(ctx context.Context) error {
	const first, last = 50 * time.Millisecond, 10 * time.Second
	pause := first
	for {
		if m.sendAssignments(ctx) {
			pause = first
			select {
			case <-m.assigned:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		clock.Sleep(ctx, m.o.Clock, pause)
		if ctx.Err() != nil {
			return nil
		}
		pause = min(2*pause, last)
	}
}

// sendAssignments tells the controller, and forgets what it has taken; false
// when something is left to be sent again.
func (m *Manager) sendAssignments(ctx context.Context) bool {
	m.assignments.Lock()
	pending := m.assignments.dirs
	m.assignments.dirs = nil
	m.assignments.Unlock()
	if len(pending) == 0 {
		return true
	}
	epoch := m.o.Epoch()
	if epoch < 0 || !m.image.Load().Features().Directories() {
		m.assignAgain(pending) // not registered, or the cluster does not keep directories yet
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, assignTimeout)
	defer cancel()
	r, err := m.o.Controller.Do(ctx, assignRequest(m.o.NodeID, epoch, pending))
	if err != nil {
		m.o.Logger.Warn("cannot tell the controller the directories of replicas: trying again", "replicas", len(pending), "err", err)
		m.assignAgain(pending)
		return false
	}
	res := r.(*kmsg.AssignReplicasToDirsResponse)
	if res.ErrorCode != 0 {
		m.o.Logger.Warn("the controller refused the directories of replicas: trying again", "replicas", len(pending), "err", kerr.ErrorForCode(res.ErrorCode))
		m.assignAgain(pending)
		return false
	}
	for _, d := range res.Directories {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 { // the partition went, or moved away, meanwhile
					m.o.Logger.Warn("the controller refused the directory of a replica", "topic", uuid.UUID(t.TopicID), "partition", p.Partition,
						"directory", uuid.UUID(d.ID), "err", kerr.ErrorForCode(p.ErrorCode))
				}
			}
		}
	}
	return true
}

// assignAgain gives back what was not taken, unless a replica has moved on meanwhile.
func (m *Manager) assignAgain(pending map[key]uuid.UUID) {
	m.assignments.Lock()
	defer m.assignments.Unlock()
	maps.Copy(pending, m.assignments.dirs)
	m.assignments.dirs = pending
}

func assignRequest(node int32, epoch int64, pending map[key]uuid.UUID) *kmsg.AssignReplicasToDirsRequest {
	byDir := map[uuid.UUID]map[uuid.UUID][]int32{}
	for k, d := range pending {
		if byDir[d] == nil {
			byDir[d] = map[uuid.UUID][]int32{}
		}
		byDir[d][k.topic] = append(byDir[d][k.topic], k.partition)
	}
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	req.BrokerID, req.BrokerEpoch = node, epoch
	for d, topics := range byDir {
		rd := kmsg.NewAssignReplicasToDirsRequestDirectory()
		rd.ID = d
		for id, parts := range topics {
			rt := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
			rt.TopicID = id
			for _, p := range parts {
				rp := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
				rp.Partition = p
				rt.Partitions = append(rt.Partitions, rp)
			}
			rd.Topics = append(rd.Topics, rt)
		}
		req.Directories = append(req.Directories, rd)
	}
	return req
}

// DirOffline takes the replicas of a directory that has failed offline. It is
// storage/dirs' Offline.
func (m *Manager) DirOffline(d *dirs.Dir, logs []*storage.Log, err error) {
	gone := make(map[*storage.Log]bool, len(logs))
	for _, l := range logs {
		gone[l] = true
	}
	for _, r := range m.list() {
		if gone[r.Log()] {
			m.fail(r, &dirs.OfflineError{Dir: d.Path, Err: err})
		}
	}
}
