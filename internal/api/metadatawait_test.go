package api

import (
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/wire"
)

// An answer that would name a leader which has just died waits for another one, for as long as there is hope.
func TestMetadataWaitsForAnotherLeader(t *testing.T) {
	for name, x := range map[string]struct {
		elected time.Duration // when another leader is there; 0: never
		doubt   time.Duration // how long the leader is doubted
		topic   string        // that is asked for; "": all
		after   time.Duration
		leader  int32
	}{
		"elected":       {50 * time.Millisecond, time.Second, "t", 50 * time.Millisecond, 2},
		"all topics":    {50 * time.Millisecond, time.Second, "", 50 * time.Millisecond, 2},
		"not elected":   {0, 500 * time.Millisecond, "t", 500 * time.Millisecond, 1},
		"not doubted":   {50 * time.Millisecond, 0, "t", 0, 1},
		"another topic": {50 * time.Millisecond, time.Second, "other", 0, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, 1, 2)
				for id := range int32(2) {
					b := records.NewRegisterBrokerRecord()
					b.BrokerID, b.Fenced, b.EndPoints = id+1, false, []records.RegisterBrokerRecordEndPoint{{Host: "h", Port: 1}}
					r.change(records.Versioned{Record: &b})
				}
				began := time.Now()
				m := &Metadata{Images: r.images, Doubted: func(b *image.Broker) bool { return b.ID == 1 && time.Since(began) < x.doubt }}
				if x.elected > 0 {
					time.AfterFunc(x.elected, func() {
						c := records.NewPartitionChangeRecord()
						c.TopicID, c.PartitionID, c.Leader = rigTopic, 0, 2
						r.change(records.Versioned{Record: &c})
					})
				}
				req := kmsg.NewPtrMetadataRequest()
				req.Version = 12
				if x.topic != "" {
					req.Topics = []kmsg.MetadataRequestTopic{{Topic: &x.topic}}
				}
				res := m.Handle(t.Context(), r.call(), req).(wire.Message).Response.(*kmsg.MetadataResponse)
				if took := time.Since(began); took < x.after || took > x.after+doubtLook {
					t.Errorf("answered after %v, want %v", took, x.after)
				}
				got := int32(-1)
				if p := res.Topics[0].Partitions; len(p) > 0 {
					got = p[0].Leader
				}
				if got != x.leader {
					t.Errorf("leader %d, want %d", got, x.leader)
				}
				time.Sleep(x.elected) // the timer ends within the bubble
			})
		})
	}
}

// While a leader is doubted, the topics are looked at once for each image.
func TestDoubtLooksAtTopicsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, 1, 2)
		r.register(1, 2)
		began, looks := time.Now(), 0
		topics := func(i *image.Image) iter.Seq[*image.Topic] { looks++; return i.Topics() }
		time.AfterFunc(300*time.Millisecond, func() { r.register(3) })
		img := settled(t.Context(), r.images, func(b *image.Broker) bool { return b.ID == 1 && time.Since(began) < time.Second }, topics)
		if took := time.Since(began); took < time.Second || took > time.Second+doubtLook || looks != 2 || img != r.images.Image() {
			t.Errorf("after %v, looked %d times", took, looks)
		}
	})
}
