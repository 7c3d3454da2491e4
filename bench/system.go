package bench

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"weir/test/testnode"
)

// System is a cluster under test. Its methods fail the test when they cannot do what they say.
type System interface {
	Name() testnode.System
	// Launch starts the processes and does not wait; Ready waits until every broker is a member of the cluster.
	Launch(t testing.TB)
	Ready(t testing.TB)
	// Stop ends the processes in good order, Kill with kill -9. Both return when they are gone.
	Stop(t testing.TB)
	Kill(t testing.TB)
	// Bootstrap are the brokers' addresses.
	Bootstrap() []string
	// Pids are the running processes.
	Pids() []int
	// Holds is an error while some log directory holds something of the topic.
	Holds(topic string) error
}

// Properties are the keys of server.properties beyond those that every testnode has, the same for both systems. The
// topics of a finished measurement go at once, so that what they hold need not be written to the disk.
func Properties() map[string]string {
	return map[string]string{
		"log.segment.delete.delay.ms":     "100",
		"log.initial.task.delay.ms":       "500", // Apache Kafka deletes nothing in its first 30 s otherwise
		"num.partitions":                  "1",
		"auto.create.topics.enable":       "false",
		"group.coordinator.threads":       "1",
		"log.retention.check.interval.ms": "300000",
	}
}

// oneNode is a combined broker and controller.
type oneNode struct{ *testnode.Node }

// NewOneNode formats one combined node of a system, with props beyond Properties.
func NewOneNode(t testing.TB, s testnode.System, props map[string]string) System {
	all := Properties()
	maps.Copy(all, props)
	return oneNode{testnode.New(t, testnode.Options{System: s, Formatter: s, Props: all, Stock: true})}
}

func (n oneNode) Name() testnode.System { return n.Node.System() }
func (n oneNode) Launch(t testing.TB)   { n.Node.Launch(t) }
func (n oneNode) Bootstrap() []string   { return []string{n.Addr} }
func (n oneNode) Pids() []int           { return []int{n.PID()} }

func (n oneNode) Holds(topic string) error { return holds(n.Node, topic) }

// holds is an error while a log directory of the node holds something of the topic.
func holds(n *testnode.Node, topic string) error {
	for _, dir := range n.LogDirs {
		left, err := filepath.Glob(filepath.Join(dir, topic+"-*"))
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%s holds %d partitions of it", dir, len(left))
		}
	}
	return nil
}

// readyLimit is how long a start may take.
const readyLimit = 3 * time.Minute

func (n oneNode) Ready(t testing.TB) {
	t.Helper()
	poll(t, readyLimit, "the node answers", func() error { return answers(n.Addr, n.ID) })
}
