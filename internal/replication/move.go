package replication

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/checkpoint"
	"weir/internal/partition"
	"weir/internal/storage"
	"weir/internal/storage/dirs"
	"weir/internal/storage/producer"
	"weir/internal/uuid"
)

// A replica moves to another log directory (AlterReplicaLogDirs, KIP-113) by a
// copy in a `-future` directory there, which follows the present log while that
// goes on being used, retention included, and takes its place when it has
// caught up.

// moveChunk is how much is copied at a time.
const moveChunk = 1 << 20

// Move starts to move a replica into dir, or back: naming the present directory
// cancels a move. For a partition that is not here yet it notes where to create
// it. Errors are Kafka's: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, and
// INVALID_REPLICA_ASSIGNMENT for a cordoned directory.
func (m *Manager) Move(topic string, p int32, dir string) error {
	name := checkpoint.TopicPartition{Topic: topic, Partition: p}
	d := m.o.Dirs.ByPath(dir)
	if d == nil {
		return kerr.LogDirNotFound
	}
	if m.o.Dirs.ByID(d.ID) != d {
		return kerr.KafkaStorageError
	}
	if slices.Contains(m.o.Dirs.Cordoned(), d.ID) { // even where the replica lies already
		return kerr.InvalidReplicaAssignment
	}
	if m.isOffline(name) { // its log is in a directory that may come back: a second, empty one would be taken for it
		return kerr.KafkaStorageError
	}
	current, at := m.o.Dirs.Log(name)
	if current == nil {
		m.prefer(name, d.ID)
		return nil
	}
	if future, in := m.o.Dirs.FutureLog(name); future != nil && in != d {
		if err := m.o.Dirs.Delete(name, true); err != nil {
			return err
		}
	}
	if at == d {
		return nil
	}
	if _, _, err := m.o.Dirs.Create(name, current.TopicID(), d.ID, true); err != nil && !errors.Is(err, dirs.ErrExists) {
		return err
	}
	m.o.Logger.Info("moving a replica to another log directory", "partition", name.String(), "from", at.Path, "to", d.Path)
	poke(m.moves)
	return nil
}

func (m *Manager) isOffline(p checkpoint.TopicPartition) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, e := range m.replicas {
		if e.offline != nil && e.offline.Topic == p.Topic && e.offline.Partition == p.Partition {
			return true
		}
	}
	return false
}

// prefer notes the directory that a partition shall be created in.
func (m *Manager) prefer(p checkpoint.TopicPartition, dir uuid.UUID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.preferred == nil {
		m.preferred = map[checkpoint.TopicPartition]uuid.UUID{}
	}
	m.preferred[p] = dir
}

// preference takes what prefer has noted; it holds for one creation.
func (m *Manager) preference(p checkpoint.TopicPartition) (uuid.UUID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.preferred[p]
	delete(m.preferred, p)
	return d, ok
}

// runMoves copies, one partition after another, until ctx ends.
func (m *Manager) runMoves(ctx context.Context) error {
	for {
		for _, p := range m.futures() {
			copied, _ := m.o.Dirs.FutureLog(p)
			if err := m.move(ctx, p); err != nil && ctx.Err() == nil {
				m.moveFailed(p, copied, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.moves:
		}
	}
}

// moveFailed removes a copy that cannot be finished. One that is not there any
// more was given up on purpose: the move was cancelled, went elsewhere, or its
// topic was deleted.
func (m *Manager) moveFailed(p checkpoint.TopicPartition, copied *storage.Log, err error) {
	if now, _ := m.o.Dirs.FutureLog(p); now == nil || now != copied {
		m.o.Logger.Info("the move of a replica was cancelled", "partition", p.String(), "because", err)
		poke(m.moves) // to where it goes instead
		return
	}
	m.o.Logger.Error("moving a replica failed: its present log stays in use", "partition", p.String(), "err", err)
	if err := m.o.Dirs.Delete(p, true); err != nil {
		m.o.Logger.Error("cannot remove the failed copy", "partition", p.String(), "err", err)
	}
}

func (m *Manager) futures() (out []checkpoint.TopicPartition) {
	m.o.Dirs.Logs(func(p checkpoint.TopicPartition, _ *storage.Log, _ *dirs.Dir, future bool) bool {
		if future {
			out = append(out, p)
		}
		return true
	})
	return out
}

// find looks a replica up by name.
func (m *Manager) find(p checkpoint.TopicPartition) *partition.Replica {
	for _, r := range m.list() {
		if r.Topic() == p.Topic && r.ID() == p.Partition {
			return r
		}
	}
	return nil
}

// move copies one partition until the copy has taken the place of its log.
func (m *Manager) move(ctx context.Context, p checkpoint.TopicPartition) error {
	r := m.find(p)
	if r == nil {
		return nil // not placed yet: its turn comes when it is
	}
	buf := make([]byte, 0, moveChunk)
	for ctx.Err() == nil {
		future, d := m.o.Dirs.FutureLog(p)
		if future == nil {
			return nil // cancelled, or the topic was deleted
		}
		more, err := copyChunk(r.Log(), future, &buf)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		// The log that goes away may have been on the disk for long: the copy must not be less durable.
		if err := future.Flush(-1); err != nil {
			return err
		}
		swapped, err := r.SwapLog(func(old *storage.Log) (*storage.Log, error) {
			if done, err := finishCopy(old, future, &buf); !done || err != nil {
				return nil, err
			}
			return future, m.o.Dirs.Promote(p)
		})
		if err != nil {
			return err
		}
		if swapped {
			m.assign(key{r.TopicID(), r.ID()}, d.ID)
			return nil
		}
	}
	return context.Cause(ctx)
}

// lastChunks is how many chunks may be copied while producers wait.
const lastChunks = 4

// finishCopy makes the copy equal to its log while nothing can be appended; false
// when too much is missing for that. Under load a copy would else be behind again
// each time it has caught up.
func finishCopy(old, future *storage.Log, buf *[]byte) (done bool, err error) {
	for range lastChunks {
		more, err := copyChunk(old, future, buf)
		if err != nil {
			return false, err
		}
		if !more {
			break
		}
	}
	if future.LogEnd() != old.LogEnd() {
		return false, nil
	}
	if future.RecoveryPoint() < old.RecoveryPoint() { // producers that wait here wait for fsyncs anyway
		if err := future.Flush(-1); err != nil {
			return false, err
		}
	}
	future.SetHighWatermark(old.HighWatermark())
	_, err = future.SetLogStart(old.LogStart())
	return true, err
}

// agree cuts off what the copy holds of a history that its log has left since: a
// follower is truncated when its leader has another one (KIP-101). Both logs are
// compared by leader epochs, as the logs of a leader and a follower are.
func agree(from, to *storage.Log) error {
	for {
		epoch, known := to.LatestEpoch()
		if !known {
			return nil
		}
		theirs := from.EndOffsetForEpoch(epoch)
		if theirs.Epoch == partition.None { // all of theirs are older
			theirs.Epoch, _ = from.LatestEpoch()
			theirs.EndOffset = from.LogEnd()
		}
		cut := theirs.EndOffset
		if theirs.Epoch < epoch {
			if ours := to.EndOffsetForEpoch(theirs.Epoch); ours.EndOffset >= 0 {
				cut = min(cut, ours.EndOffset)
			}
		}
		if cut >= to.LogEnd() {
			return nil
		}
		if err := cutCopy(to, cut); err != nil {
			return err
		}
	}
}

// cutCopy cuts a copy at offset, or where the batch that holds it begins: else
// the records before offset in it would be missing.
func cutCopy(to *storage.Log, offset int64) error {
	got, err := to.Read(max(offset, to.LogStart()), 1, to.LogEnd(), true)
	if err != nil {
		return err
	}
	got.Release()
	_, err = to.Truncate(min(offset, got.FirstBatchOffset))
	return err
}

// copyChunk copies what follows the end of the copy. more is false when the copy
// has caught up.
func copyChunk(from, to *storage.Log, buf *[]byte) (more bool, err error) {
	if err := agree(from, to); err != nil {
		return false, err
	}
	start, end := from.LogStart(), from.LogEnd()
	at := to.LogEnd()
	if at > end { // it was truncated, and knows no leader epochs
		return true, cutCopy(to, end)
	}
	if at < start {
		if err := to.TruncateFullyAndStartAt(start); err != nil {
			return false, err
		}
		at = start
	}
	if at == end {
		return false, nil
	}
	cfg := from.Config()
	got, err := from.Read(at, min(moveChunk, int(cfg.SegmentBytes)), end, true)
	if gone := new(storage.OutOfRangeError); errors.As(err, &gone) && from.LogStart() > at {
		return true, nil // retention or DeleteRecords was faster
	}
	if err != nil {
		return false, err
	}
	defer got.Release()
	b := (*buf)[:0]
	for _, g := range got.Regions {
		if b, err = g.AppendTo(b); err != nil {
			return false, err
		}
	}
	*buf = b
	if len(b) > int(cfg.SegmentBytes) { // one batch from the days of larger segments
		c := *cfg
		c.SegmentBytes = int32(len(b))
		cfg = &c
	}
	if to.Config() != cfg { // the copy rolls as its topic asks
		to.SetConfig(cfg)
	}
	a, err := appendCopy(to, b)
	if early := new(storage.UnexpectedOffsetError); errors.As(err, &early) && early.First < at && to.LogStart() == at {
		// The log starts inside this batch, as it may after DeleteRecords: the copy begins with the whole of it (KAFKA-6975).
		if err := to.TruncateFullyAndStartAt(early.First); err != nil {
			return false, err
		}
		a, err = appendCopy(to, b)
	}
	if err == nil && a.LastOffset < at {
		err = fmt.Errorf("no whole batch at offset %d of %s", at, from.Dir())
	}
	return true, err
}

// appendCopy appends batches of the present log, which are believed whatever
// their epoch; one that the read cut off is left for the next time.
func appendCopy(to *storage.Log, b []byte) (storage.Appended, error) {
	return to.Append(b, storage.Append{LeaderEpoch: math.MaxInt32, Origin: producer.OriginReplication, TxnVersion: -1})
}
