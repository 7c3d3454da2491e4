package clients

import (
	"testing"

	"weir/test/testnode"
)

// TestKafkaJS: kafkajs on Node.js.
func TestKafkaJS(t *testing.T) {
	together(t)
	bothSystems(t, func(t *testing.T, n *testnode.Node) {
		startProgram(t, n, "js", "js", node(t, "kafkajs.js", "kafkajs", "2.2.4")).live(life{protocol: "RoundRobinAssigner"})
	})
}
