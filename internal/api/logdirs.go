package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/replication"
	"weir/internal/wire"
)

// LogDirs tells about the broker's log directories and moves replicas between
// them.
type LogDirs interface {
	DescribeDirs() []replication.LogDir
	// Move starts to move the replica of a partition into dir, or only notes
	// where it shall be created.
	Move(topic string, partition int32, dir string) error
}

// DescribeLogDirs lists logs by directory (API key 35), versions 0–5.
//
//	v2  flexible; v3 an error of the whole answer
//	v4  size and free space of the volume (KIP-827)
//	v5  cordoned directories (KIP-1066)
type DescribeLogDirs struct {
	Images Images
	Dirs   LogDirs
}

// Key is DescribeLogDirs.
func (*DescribeLogDirs) Key() kmsg.Key { return kmsg.DescribeLogDirs }

// Handle lists the asked partitions, or all.
func (h *DescribeLogDirs) Handle(_ context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.DescribeLogDirsRequest](r)
	res := responseTo[*kmsg.DescribeLogDirsResponse](r)
	told := h.Images.Image().Features().CordonedDirs() // below it a cordon of the file is kept, but not shown
	for _, d := range h.Dirs.DescribeDirs() {
		row := kmsg.NewDescribeLogDirsResponseDir()
		row.Dir, row.ErrorCode = d.Path, code(d.Err)
		row.TotalBytes, row.UsableBytes, row.IsCordoned = d.Total, d.Free, d.Cordoned && told
		topics := map[string]int{}
		for _, l := range d.Logs {
			if !askedLog(req, l) {
				continue
			}
			i, ok := topics[l.Topic]
			if !ok {
				i = len(row.Topics)
				topics[l.Topic] = i
				t := kmsg.NewDescribeLogDirsResponseDirTopic()
				t.Topic = l.Topic
				row.Topics = append(row.Topics, t)
			}
			p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			p.Partition, p.Size, p.OffsetLag, p.IsFuture = l.Partition, l.Size, l.Lag, l.Future
			row.Topics[i].Partitions = append(row.Topics[i].Partitions, p)
		}
		res.Dirs = append(res.Dirs, row)
	}
	return reply(res)
}

func askedLog(req *kmsg.DescribeLogDirsRequest, l replication.DirLog) bool {
	return req.Topics == nil || slices.ContainsFunc(req.Topics, func(t kmsg.DescribeLogDirsRequestTopic) bool {
		return t.Topic == l.Topic && slices.Contains(t.Partitions, l.Partition)
	})
}

// AlterReplicaLogDirs moves replicas between directories (API key 34), versions
// 0–2; v2 flexible.
type AlterReplicaLogDirs struct {
	Images Images
	Dirs   LogDirs
}

// Key is AlterReplicaLogDirs.
func (*AlterReplicaLogDirs) Key() kmsg.Key { return kmsg.AlterReplicaLogDirs }

// Handle starts each move; the answer does not wait for the copying.
func (h *AlterReplicaLogDirs) Handle(_ context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.AlterReplicaLogDirsRequest](r)
	res := responseTo[*kmsg.AlterReplicaLogDirsResponse](r)
	img := h.Images.Image()
	topics := map[string]int{}
	for _, d := range req.Dirs {
		for _, t := range d.Topics {
			i, ok := topics[t.Topic]
			if !ok {
				i = len(res.Topics)
				topics[t.Topic] = i
				row := kmsg.NewAlterReplicaLogDirsResponseTopic()
				row.Topic = t.Topic
				res.Topics = append(res.Topics, row)
			}
			for _, id := range t.Partitions {
				p := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				p.Partition, p.ErrorCode = id, code(h.move(img, t.Topic, id, d.Dir))
				res.Topics[i].Partitions = append(res.Topics[i].Partitions, p)
			}
		}
	}
	return reply(res)
}

func hasPartition(t *image.Topic, id int32) bool {
	_, ok := t.Partition(id)
	return ok
}

func (h *AlterReplicaLogDirs) move(img *image.Image, topic string, id int32, dir string) error {
	// Kafka remembers the wish for a replica that is not here yet, and says so.
	err := h.Dirs.Move(topic, id, dir)
	if t, ok := img.Topic(topic); err != nil || ok && hasPartition(t, id) {
		return err
	}
	return errUnknownPartition
}
