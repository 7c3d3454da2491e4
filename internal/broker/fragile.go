package broker

import (
	"encoding/json"
	"slices"

	"weir/internal/image"
)

// fragile warns of internal topics that one dead broker takes away, in a cluster where that need not be, and says what
// cures it (availability D3).
func (b *Broker) fragile() {
	img := b.quorum.Images().Image()
	brokers := available(img)
	for _, x := range internalTopics {
		t, ok := img.Topic(x.name)
		if !ok || len(brokers) < 2 {
			continue
		}
		plan := cure(t, brokers)
		if len(plan.Partitions) == 0 {
			continue
		}
		file, err := json.Marshal(plan)
		if err != nil {
			panic("BUG: " + err.Error()) // numbers and strings
		}
		b.logger.Warn("an internal topic has partitions with one replica: when its broker is down, those who need it stop; it raises the number by itself "+
			"unless its replication factor is set in the file or weir.internal.topics.auto.raise=false; by hand: kafka-reassign-partitions.sh --execute with this file",
			"topic", x.name, "partitions", len(plan.Partitions), "file", string(file))
	}
}

// available lists the brokers that replicas may be put on: those that run first.
func available(img *image.Image) []int32 {
	var active, others []int32
	for b := range img.Brokers() {
		if b.Active() {
			active = append(active, b.ID)
		} else {
			others = append(others, b.ID)
		}
	}
	return append(active, others...)
}

// reassignment is a file of kafka-reassign-partitions.sh.
type reassignment struct {
	Version    int     `json:"version"`
	Partitions []moved `json:"partitions"`
}

type moved struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas"`
}

// cure gives every partition of a topic that has one replica up to three, spread over the brokers.
func cure(t *image.Topic, brokers []int32) reassignment {
	plan := reassignment{Version: 1}
	for id, p := range t.Partitions() {
		if len(p.Replicas) != 1 {
			continue
		}
		m := moved{t.Name, id, slices.Clone(p.Replicas)}
		for i := 0; i < len(brokers) && len(m.Replicas) < 3; i++ {
			if b := brokers[(int(id)+i)%len(brokers)]; !slices.Contains(m.Replicas, b) {
				m.Replicas = append(m.Replicas, b)
			}
		}
		plan.Partitions = append(plan.Partitions, m)
	}
	return plan
}
