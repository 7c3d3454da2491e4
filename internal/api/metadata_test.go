package api

import (
	"testing"

	"weir/internal/image"
)

// Topics that clients make by asking for them have the form that the broker's own
// file tells; what it does not tell is left to the controller. The one of groups
// keeps its own.
func TestCreatedTopics(t *testing.T) {
	m := &Metadata{
		Created:  NewTopic{Partitions: 5, Replicas: -1},
		Internal: []InternalTopic{{Name: "__consumer_offsets", Partitions: 50, Replicas: 2, Configs: map[string]string{"cleanup.policy": "compact"}}},
	}
	if got := m.created("a", image.New()); got.Topic != "a" || got.NumPartitions != 5 || got.ReplicationFactor != -1 || len(got.Configs) != 0 {
		t.Errorf("%+v", got)
	}
	got := m.created("__consumer_offsets", image.New())
	if got.NumPartitions != 50 || got.ReplicationFactor != 2 || len(got.Configs) != 1 || got.Configs[0].Name != "cleanup.policy" {
		t.Errorf("%+v", got)
	}
}
