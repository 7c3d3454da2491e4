package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// AssignReplicasToDirs notes in which log directory a broker keeps its replicas (KIP-858). A replica put on a directory that is not
// online loses its place in the ISR.
func (c *Core) AssignReplicasToDirs(s Step, req *kmsg.AssignReplicasToDirsRequest) Result {
	resp := kmsg.NewPtrAssignReplicasToDirsResponse()
	resp.Version = req.Version
	err := checkEpoch(s.Image, req.BrokerID, req.BrokerEpoch)
	if !s.Image.Features().Directories() {
		err = refuse(kerr.UnsupportedVersion, "Directory assignment is not supported yet.")
	}
	if err != nil {
		resp.ErrorCode = err.Code
		return Result{Response: resp, Err: err}
	}
	b, _ := s.Image.Broker(req.BrokerID)
	var recs []records.Versioned
	var offline []image.PartitionID
	for _, rd := range req.Directories {
		out := kmsg.NewAssignReplicasToDirsResponseDirectory()
		out.ID = rd.ID
		for _, rt := range rd.Topics {
			ot := kmsg.NewAssignReplicasToDirsResponseDirectoryTopic()
			ot.TopicID = rt.TopicID
			for _, rp := range rt.Partitions {
				op := kmsg.NewAssignReplicasToDirsResponseDirectoryTopicPartition()
				id := image.PartitionID{Topic: rt.TopicID, Partition: rp.Partition}
				var v []records.Versioned
				v, op.ErrorCode = c.assignDir(s.Image, id, b, rd.ID)
				op.Partition = rp.Partition
				recs = append(recs, v...)
				if op.ErrorCode == 0 && !b.HasOnlineDir(rd.ID) && !slices.Contains(offline, id) {
					offline = append(offline, id)
				}
				ot.Partitions = append(ot.Partitions, op)
			}
			out.Topics = append(out.Topics, ot)
		}
		resp.Directories = append(resp.Directories, out)
	}
	recs = append(recs, c.leaderUpdates(s.Image, brokerChange{remove: b.ID, add: nobody, unclean: nobody}, offline)...)
	return Result{Records: recs, Response: resp}
}

func (c *Core) assignDir(img *image.Image, id image.PartitionID, b *image.Broker, dir uuid.UUID) ([]records.Versioned, int16) {
	t, ok := img.TopicByID(id.Topic)
	if !ok {
		return nil, kerr.UnknownTopicID.Code
	}
	p, ok := t.Partition(id.Partition)
	if !ok {
		return nil, kerr.UnknownTopicOrPartition.Code
	}
	if !slices.Contains(p.Replicas, b.ID) {
		return nil, kerr.NotLeaderForPartition.Code
	}
	ch := c.newChange(img, t, id.Partition, p)
	if c.uncleanEnabled(img, t.Name) {
		ch.election = electUnclean
	}
	ch.forgetsLeader = replacedDisk(p, b, dir)
	ch.dirs[b.ID] = dir
	if v, ok := ch.build(); ok {
		return []records.Versioned{v}, 0
	}
	return nil, 0
}

// replacedDisk tells whether the last leader of a partition without an ISR has begun anew, with an empty log, in place of a directory
// that it no longer has. Elected because it led last, it would make the other replicas truncate what only they still have
// (availability promise C6); so it is no longer the one to wait for. Apache Kafka elects it. Where there is no other replica
// nothing is left to be saved.
func replacedDisk(p *image.Partition, b *image.Broker, dir uuid.UUID) bool {
	old := p.Directory(b.ID)
	return len(p.Replicas) > 1 && len(p.ISR) == 0 && slices.Equal(p.LastKnownELR, []int32{b.ID}) &&
		old != dir && !old.Reserved() && !b.HasOnlineDir(old) && b.HasOnlineDir(dir)
}
