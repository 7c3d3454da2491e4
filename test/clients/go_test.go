package clients

import (
	"testing"

	"weir/test/testnode"
)

// TestSarama: sarama told that the broker is 0.10.2, with its synchronous and its asynchronous producer.
func TestSarama(t *testing.T) {
	together(t)
	oldClient(t, func(t *testing.T, n *testnode.Node) {
		startProgram(t, n, "sarama", "sarama", goClient(t, "sarama")).live(life{protocol: "range"})
	})
}

// TestLibrdkafkaOld: librdkafka 1.4 inside confluent-kafka-go, which carries it as a library to link with.
func TestLibrdkafkaOld(t *testing.T) {
	together(t)
	oldClient(t, func(t *testing.T, n *testnode.Node) {
		startProgram(t, n, "librdkafka", "librdkafka", goClient(t, "librdkafka")).live(life{protocol: "range"})
	})
}
