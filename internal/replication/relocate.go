package replication

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/follower"
	"weir/internal/partition"
)

// relocation finds a place within the leader's log for a partition whose own is
// outside of it (AbstractFetcherThread.fetchOffsetAndTruncate): where the leader's log
// ends, if that is before ours, as after an unclean election; else where it begins, if
// all that would come next here is gone there.
type relocation struct {
	action follower.Action
	part   *copied
	end    int64 // the leader's log end, -1 until it was told
}

// The leader is asked for its log's end first, then for its start, as ListOffsets
// calls them.
const (
	askEnd   int64 = -1
	askStart int64 = -2
)

// request asks the leader for its log's end, or its start once that is known.
func (x *relocation) request(f *fetcher) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(f.m.image.Load().Features().ListOffsetsVersion())
	req.ReplicaID = f.m.o.NodeID
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = x.part.replica.Topic()
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = x.part.replica.ID(), x.part.epoch, askEnd
	if x.end >= 0 {
		rp.Timestamp = askStart
	}
	t.Partitions = append(t.Partitions, rp)
	req.Topics = append(req.Topics, t)
	return req
}

// placed takes the answer about the first partition that is astray, or that there is
// none. It stays the first while there is more to ask.
func (f *fetcher) placed(res kmsg.Response, err error) {
	x := f.astray[0]
	var offset int64
	if err == nil {
		offset, err = offsetIn(res.(*kmsg.ListOffsetsResponse))
	}
	var at partition.Place
	var lost int64
	end := x.part.replica.Log().LogEnd()
	if err == nil {
		var more bool
		if at, lost, more, err = f.place(x, offset); more {
			return
		}
	}
	f.astray = f.astray[1:]
	f.done(x.action, x.part, at, err, cut{end, lost})
}

// place moves the log as what the leader told demands; more: it does not yet.
func (f *fetcher) place(x *relocation, told int64) (at partition.Place, lost int64, more bool, err error) {
	r, epoch := x.part.replica, x.part.epoch
	ours := r.Log().LogEnd()
	switch {
	case x.end < 0 && told < ours:
		f.m.o.Logger.Warn("this replica has more than its leader: truncating", "partition", r.String(), "leader", f.key.leader, "log end", ours, "to", told)
		at, lost, err = r.TruncateTo(epoch, told)
	case x.end < 0:
		x.end = told
		return at, 0, true, nil
	case told <= ours:
		at, lost, err = r.TruncateTo(epoch, ours) // nothing to cut: fetch on
	default:
		f.m.o.Logger.Info("the leader's log begins after the end of this replica's: starting anew there", "partition", r.String(), "leader", f.key.leader, "log end", ours, "start", told)
		at, lost, err = r.StartAt(epoch, told)
	}
	return at, lost, false, err
}

func offsetIn(res *kmsg.ListOffsetsResponse) (int64, error) {
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return 0, errors.New("the leader's answer to ListOffsets names another partition")
	}
	got := res.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}
