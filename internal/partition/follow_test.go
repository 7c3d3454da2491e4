package partition

import (
	"errors"
	"fmt"
	"testing"

	"weir/internal/batch"
	"weir/internal/config"
	"weir/internal/isr"
	"weir/internal/storage"
)

// copyOnce fetches once from leader into e, as a fetcher does, and tells what was done.
func (e *env) copyOnce(t *testing.T, leader *env, epoch int32, at Place) (Place, string) {
	t.Helper()
	read, err := leader.Read(ReadRequest{
		Offset: at.Offset, MaxBytes: 1 << 20, MinOne: true, Isolation: ReadLogEnd, CurrentLeaderEpoch: epoch, LastFetchedEpoch: at.LastEpoch,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer read.Release()
	if read.Diverging != nil {
		at, _, err := e.TruncateToLeader(epoch, *read.Diverging)
		if err != nil {
			t.Fatal(err)
		}
		return at, fmt.Sprintf("truncated to %d", at.Offset)
	}
	leader.Fetched(isr.Fetch{Follower: 2, LeaderEpoch: read.LeaderEpoch, BrokerEpoch: -1, Offset: at.Offset, LogStart: at.LogStart, Now: leader.clock.Now()})
	var raw []byte
	for _, r := range read.Regions {
		if raw, err = r.AppendTo(raw); err != nil {
			t.Fatal(err)
		}
	}
	at, err = e.AppendAsFollower(FollowerAppend{Records: raw, LeaderEpoch: epoch, HighWatermark: leader.Log().HighWatermark(), LogStart: leader.Log().LogStart()})
	if err != nil {
		t.Fatal(err)
	}
	return at, fmt.Sprintf("end %d hw %d", at.Offset, e.Log().HighWatermark())
}

// values are the records of a log, as text.
func (e *env) values(t *testing.T) string {
	t.Helper()
	out := ""
	var buf batch.Buffers
	for at := e.Log().LogStart(); at < e.Log().LogEnd(); {
		res, err := e.Log().Read(at, 1, e.Log().LogEnd(), true)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := res.Regions[0].AppendTo(nil)
		res.Release()
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := batch.Next(raw)
		if err != nil {
			t.Fatal(err)
		}
		at = b.NextOffset()
		for r, err := range b.Records(&buf) {
			if err != nil {
				t.Fatal(err)
			}
			out += string(r.Value)
		}
	}
	return out
}

func TestFollowerCopies(t *testing.T) {
	leader, f := newReplica(t, nil), newReplica(t, func(c *config.Topic) { c.SegmentBytes = 200 })
	leader.lead(4, 1, 2)
	f.Follow(1, 4, 1)
	for _, v := range []string{"a", "b", "c", "d", "e", "f"} {
		leader.produce(t, AcksLeader, v)
	}
	at, err := f.StartFollowing(4)
	if err != nil {
		t.Fatal(err)
	}
	// Two batches fill a segment of 200 bytes: the six arrive as several appends.
	at, did := f.copyOnce(t, leader, 4, at)
	if did != "end 6 hw 0" || at.LastEpoch != 4 || f.Log().NumSegments() < 3 {
		t.Fatalf("%s, last epoch %d, %d segments", did, at.LastEpoch, f.Log().NumSegments())
	}
	// The next fetch tells the leader, and brings its high watermark.
	if _, did = f.copyOnce(t, leader, 4, at); did != "end 6 hw 6" || leader.Log().HighWatermark() != 6 {
		t.Fatalf("%s, the leader's high watermark %d", did, leader.Log().HighWatermark())
	}
	if got := f.values(t); got != "abcdef" {
		t.Fatal(got)
	}
	if _, err := leader.DeleteRecords(4); err != nil {
		t.Fatal(err)
	}
	if at, _ = f.copyOnce(t, leader, 4, at); at.LogStart != 4 {
		t.Fatalf("log start %d", at.LogStart)
	}
}

func TestFollowerTakesNothingOfAnotherEpoch(t *testing.T) {
	f := newReplica(t, nil)
	f.Follow(1, 4, 1)
	f.Follow(3, 5, 2)
	b := oneBatch("x")
	var moved *EpochError
	if _, err := f.AppendAsFollower(FollowerAppend{Records: b, LeaderEpoch: 4}); !errors.As(err, &moved) {
		t.Fatalf("append of leader epoch 4: %v", err)
	}
	if _, _, err := f.TruncateTo(4, 0); !errors.As(err, &moved) {
		t.Fatalf("truncation of leader epoch 4: %v", err)
	}
	f.lead(6, 1)
	if _, err := f.AppendAsFollower(FollowerAppend{Records: b, LeaderEpoch: 6}); !errors.As(err, &moved) {
		t.Fatalf("append to a leader: %v", err)
	}
	f.Follow(3, 7, 3)
	f.Retire(errors.New("the topic was deleted"))
	if _, err := f.AppendAsFollower(FollowerAppend{Records: b, LeaderEpoch: 7}); !errors.As(err, &moved) {
		t.Fatalf("append to what has retired: %v", err)
	}
}

// TestDivergedLogsMeet is the old leader's return: it has records that nobody else
// got, of an epoch that the new leader knows shorter, or not at all.
func TestDivergedLogsMeet(t *testing.T) {
	for _, c := range []struct {
		name      string
		old, new  []string // "epoch:records" in order
		truncated []string
		want      string
	}{
		{"a longer tail", []string{"1:ab", "1:cd"}, []string{"1:ab", "2:xy"}, []string{"truncated to 2"}, "abxy"},
		{"an epoch that the leader never saw", []string{"1:ab", "3:cd"}, []string{"1:ab", "2:xy", "4:z"}, []string{"truncated to 2"}, "abxyz"},
		{"epochs in turn", []string{"1:a", "3:b", "5:c"}, []string{"1:a", "2:x", "4:y", "6:z"}, []string{"truncated to 2", "truncated to 1"}, "axyz"},
		{"nothing in common", []string{"3:ab"}, []string{"1:xy", "4:z"}, []string{"truncated to 0"}, "xyz"},
	} {
		t.Run(c.name, func(t *testing.T) {
			leader, f := newReplica(t, nil), newReplica(t, nil)
			write := func(e *env, list []string) {
				for i, s := range list {
					var epoch int32
					var values string
					if _, err := fmt.Sscanf(s, "%d:%s", &epoch, &values); err != nil {
						t.Fatal(err)
					}
					e.Lead(isr.Assignment{Replicas: []int32{1}, ISR: []int32{1}, LeaderEpoch: epoch, PartitionEpoch: int32(i)}, e.clock.Now())
					for _, v := range values {
						e.produce(t, AcksLeader, string(v))
					}
				}
			}
			write(leader, c.new)
			write(f, c.old)
			leader.Lead(isr.Assignment{Replicas: []int32{1, 2}, ISR: []int32{1}, LeaderEpoch: 9, PartitionEpoch: 90}, leader.clock.Now())
			f.Follow(1, 9, 90)
			at, err := f.StartFollowing(9)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; ; i++ {
				var did string
				at, did = f.copyOnce(t, leader, 9, at)
				if i >= len(c.truncated) {
					break
				}
				if did != c.truncated[i] {
					t.Fatalf("step %d: %s, want %s", i, did, c.truncated[i])
				}
			}
			if got := f.values(t); got != c.want {
				t.Fatalf("%q, want %q", got, c.want)
			}
		})
	}
}

// A truncation below what this replica knew to be committed says how much went.
func TestLossIsCounted(t *testing.T) {
	f := newReplica(t, nil)
	f.lead(1, 1)
	for _, v := range []string{"a", "b", "c"} {
		f.produce(t, AcksAll, v)
	}
	f.Follow(2, 2, 5)
	at, lost, err := f.TruncateToLeader(2, storage.EpochEnd{Epoch: 1, EndOffset: 1})
	if err != nil || lost != 2 || at.Offset != 1 {
		t.Fatalf("%+v, lost %d, %v", at, lost, err)
	}
}

// TestFollowerDiskFails: the owner is told of a failed disk with no lock held, so that it
// may retire the replica at once.
func TestFollowerDiskFails(t *testing.T) {
	e := newReplica(t, nil)
	e.Follow(1, 3, 0)
	b := batch.NewBuilder(batch.Options{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, LeaderEpoch: 3})
	b.Append(1, nil, []byte("v"), nil)
	if _, err := e.AppendAsFollower(FollowerAppend{Records: b.Build(), LeaderEpoch: 3}); err != nil {
		t.Fatal(err)
	}
	told := 0
	e.Replica.failed = func(r *Replica, err error) {
		told++
		r.Retire(err)
	}
	gone := errors.New("the disk is gone")
	_, err := e.following(3, func(*storage.Log) error { return &storage.DiskError{Dir: "/d", Op: "write", Err: gone} })
	if !errors.Is(err, gone) || told != 1 || e.Status().Leader != None {
		t.Fatalf("%v, told %d times, leader %d", err, told, e.Status().Leader)
	}
}
