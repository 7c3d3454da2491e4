package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/partition"
	"weir/internal/storage"
	"weir/internal/wire"
)

// ListOffsets finds offsets by time (API key 2), versions 0–11.
//
//	v0   a list of segment starts, newest first, then the log end
//	v1   one offset, by the first record at or after the time
//	v2   isolation level
//	v4   leader epochs (KIP-320)
//	v7   -3: the record with the largest timestamp (KIP-734)
//	v8   -4: earliest local (KIP-405)
//	v9   -5: latest tiered (KIP-1005)
//	v10  timeout
//	v11  -6: earliest pending upload (KIP-1023)
//
// Without tiered storage -4 is the log start offset and -5 is answered with -1,
// as Kafka does.
type ListOffsets struct {
	Images   Images
	Replicas Replicas
}

// The negative timestamps.
const (
	tsLatest                int64 = -1
	tsEarliest              int64 = -2
	tsMax                   int64 = -3
	tsEarliestLocal         int64 = -4
	tsLatestTiered          int64 = -5
	tsEarliestPendingUpload int64 = -6
)

// specialSince is the first version that knows each of them.
func specialSince(ts int64) (int16, bool) {
	switch ts {
	case tsLatest, tsEarliest:
		return 0, true
	case tsMax:
		return 7, true
	case tsEarliestLocal:
		return 8, true
	case tsLatestTiered:
		return 9, true
	case tsEarliestPendingUpload:
		return 11, true
	}
	return 0, ts >= 0
}

// Key is ListOffsets.
func (*ListOffsets) Key() kmsg.Key { return kmsg.ListOffsets }

// Handle answers each partition on its own.
func (l *ListOffsets) Handle(_ context.Context, _ *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.ListOffsetsRequest](r)
	res := responseTo[*kmsg.ListOffsetsResponse](r)
	twice := duplicateOffsets(req)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			q := &t.Partitions[j]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = q.Partition
			rp.Offset, rp.Timestamp, rp.LeaderEpoch = -1, -1, -1
			var err error
			if told, dup := twice[partKey{topic: t.Topic, partition: q.Partition}]; !dup {
				err = l.one(req, t.Topic, q, &rp)
			} else if told {
				continue // one row for all
			} else {
				twice[partKey{topic: t.Topic, partition: q.Partition}] = true
				err = kerr.InvalidRequest
			}
			rp.ErrorCode = code(err)
			if req.Version == 0 && rp.OldStyleOffsets == nil {
				rp.OldStyleOffsets = []int64{}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		if len(rt.Partitions) > 0 || len(t.Partitions) == 0 {
			res.Topics = append(res.Topics, rt)
		}
	}
	return reply(res)
}

// duplicateOffsets lists partitions that a request names more than once (K18);
// the value is for the caller, to note that it has told so.
func duplicateOffsets(req *kmsg.ListOffsetsRequest) map[partKey]bool {
	seen, twice := map[partKey]struct{}{}, map[partKey]bool{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			k := partKey{topic: t.Topic, partition: p.Partition}
			if _, ok := seen[k]; ok && req.Version > 0 {
				twice[k] = false
			}
			seen[k] = struct{}{}
		}
	}
	return twice
}

func (l *ListOffsets) one(req *kmsg.ListOffsetsRequest, topic string, q *kmsg.ListOffsetsRequestTopicPartition, rp *kmsg.ListOffsetsResponseTopicPartition) error {
	if since, known := specialSince(q.Timestamp); !known || req.Version < since {
		return kerr.UnsupportedVersion
	}
	img := l.Images.Image()
	t, ok := img.Topic(topic)
	if !ok {
		return errUnknownPartition
	}
	replica, err := find(img, l.Replicas, t, q.Partition)
	if err != nil {
		return err
	}
	if req.Version == 0 {
		if err := replica.CheckEpoch(partition.None); err != nil {
			return err
		}
		rp.OldStyleOffsets, err = oldStyle(replica, q.Timestamp, int(q.MaxNumOffsets))
		return err
	}
	found, ok, err := lookup(req, replica, q)
	if err != nil || !ok {
		return oldClientCode(req.Version, err)
	}
	rp.Offset, rp.Timestamp, rp.LeaderEpoch = found.Offset, found.Timestamp, found.LeaderEpoch
	return nil
}

// oldClientCode replaces errors that clients before v5 do not know.
func oldClientCode(version int16, err error) error {
	var notYet *partition.OffsetNotAvailableError
	if version < 5 && errors.As(err, &notYet) {
		return kerr.LeaderNotAvailable
	}
	return err
}

func lookup(req *kmsg.ListOffsetsRequest, r *partition.Replica, q *kmsg.ListOffsetsRequestTopicPartition) (storage.TimestampOffset, bool, error) {
	isolation := partition.ReadUncommitted
	switch {
	case req.ReplicaID != -1:
		isolation = partition.ReadLogEnd
	case req.IsolationLevel == 1:
		isolation = partition.ReadCommitted
	}
	at := func(off int64, err error) (storage.TimestampOffset, bool, error) {
		t := storage.TimestampOffset{Timestamp: -1, Offset: off, LeaderEpoch: -1}
		if err == nil {
			if e, ok := r.Log().EpochAt(off); ok {
				t.LeaderEpoch = e
			}
		}
		return t, true, err
	}
	switch q.Timestamp {
	case tsLatest:
		off, err := r.Latest(q.CurrentLeaderEpoch, isolation)
		t, ok, err := at(off, err)
		if err == nil && isolation == partition.ReadUncommitted {
			t.LeaderEpoch = r.Status().LeaderEpoch
		}
		return t, ok, err
	case tsEarliest, tsEarliestLocal:
		return at(r.Log().LogStart(), r.CheckEpoch(q.CurrentLeaderEpoch))
	case tsLatestTiered, tsEarliestPendingUpload:
		return storage.TimestampOffset{}, false, r.CheckEpoch(q.CurrentLeaderEpoch)
	case tsMax:
		return r.MaxTimestamp(q.CurrentLeaderEpoch, isolation)
	}
	return r.OffsetForTimestamp(q.Timestamp, q.CurrentLeaderEpoch, isolation)
}

// oldStyle answers v0: segment starts, newest first.
func oldStyle(r *partition.Replica, ts int64, n int) ([]int64, error) {
	if n < 1 {
		return []int64{}, nil
	}
	switch ts {
	case tsEarliest:
		return []int64{r.Log().LogStart()}, nil
	case tsLatest:
		return r.OffsetsBefore(1<<63-1, n)
	}
	return r.OffsetsBefore(ts, n)
}
