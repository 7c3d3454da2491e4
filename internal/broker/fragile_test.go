package broker

import (
	"encoding/json"
	"testing"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// TestCure: partitions with one replica get up to three, spread over the brokers; others are left alone.
func TestCure(t *testing.T) {
	d := image.NewDelta(image.New())
	replay := func(r records.Metadata) {
		t.Helper()
		if err := d.Replay(records.Versioned{Record: r}); err != nil {
			t.Fatal(err)
		}
	}
	topic := uuid.UUID{15: 9}
	replay(&records.TopicRecord{Name: "__consumer_offsets", TopicID: topic})
	for id, replicas := range [][]int32{{1}, {2}, {2, 3}, {4}} {
		r := records.NewPartitionRecord()
		r.PartitionID, r.TopicID, r.Replicas, r.ISR, r.Leader, r.LeaderEpoch, r.PartitionEpoch = int32(id), topic, replicas, replicas, replicas[0], 0, 0
		r.Directories = make([]uuid.UUID, len(replicas))
		replay(&r)
	}
	x, ok := d.Apply(image.Provenance{}).Topic("__consumer_offsets")
	if !ok {
		t.Fatal("no topic")
	}
	for _, c := range []struct {
		brokers []int32
		want    string
	}{
		{[]int32{1, 2}, `[{"topic":"__consumer_offsets","partition":0,"replicas":[1,2]},{"topic":"__consumer_offsets","partition":1,"replicas":[2,1]},{"topic":"__consumer_offsets","partition":3,"replicas":[4,2,1]}]`},
		{[]int32{1, 2, 3, 4}, `[{"topic":"__consumer_offsets","partition":0,"replicas":[1,2,3]},{"topic":"__consumer_offsets","partition":1,"replicas":[2,3,4]},{"topic":"__consumer_offsets","partition":3,"replicas":[4,1,2]}]`},
	} {
		got, err := json.Marshal(cure(x, c.brokers))
		if err != nil || string(got) != `{"version":1,"partitions":`+c.want+`}` {
			t.Errorf("%v: %s, %v", c.brokers, got, err)
		}
	}
}
