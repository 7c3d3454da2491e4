package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"weir/test/testnode"
)

// TestFullDiskOfTheNextLeader: a controller whose disk is full, for its vote or for the records of its epoch, does not stop and
// does not lead; the others do, also when they ask it first. With room it follows again.
func TestFullDiskOfTheNextLeader(t *testing.T) {
	t.Parallel()
	c := testnode.NewCluster(t, testnode.ClusterOptions{
		Members: append(testnode.Nodes(3, testnode.Member{Roles: testnode.ControllerOnly}), testnode.Member{Roles: testnode.BrokerOnly}),
		Dynamic: true, Faulty: true,
	})
	c.Start(t)
	makeTopic(t, c, "before", 1, 1)
	admin := kadm.NewClient(c.Node(4).Client(t, kgo.RequestRetries(0)))
	for round, rule := range []string{"write quorum-state.tmp ENOSPC", "write *.log ENOSPC"} {
		old := c.WaitLeader(t, testnode.Patience, -1)
		full := c.Node(old.Leader%3 + 1)
		full.Faults(t, rule)
		topics := []string{"full-a" + strconv.Itoa(round), "full-b" + strconv.Itoa(round)}
		makeTopic(t, c, topics[0], 1, 1) // it hears of the rule while it works
		c.Node(old.Leader).Restart(t)
		fresh := c.WaitLeader(t, testnode.Patience, -1)
		testnode.Until(t, testnode.Patience, "another one leads", func() error {
			var err error
			if fresh, err = c.Quorum(); err != nil || fresh.Epoch > old.Epoch && fresh.Leader != full.ID {
				return err
			}
			// It may lead until it has something to write.
			_, err = admin.CreateTopic(t.Context(), 1, 1, nil, fmt.Sprintf("asked-%d-%d", round, time.Now().UnixNano()))
			return fmt.Errorf("node %d leads in epoch %d; creation of a topic: %w", fresh.Leader, fresh.Epoch, err)
		})
		makeTopic(t, c, topics[1], 1, 1)
		if !full.Running() {
			t.Fatalf("node %d has stopped: %s", full.ID, full.LogTail(5))
		}
		testnode.Until(t, testnode.Patience, "it says why", func() error {
			if !strings.Contains(full.LogText(t), "no space for the metadata log") {
				return errors.New("nothing in its log")
			}
			return nil
		})
		full.Faults(t)
		testnode.Until(t, testnode.Patience, "it catches up", func() error {
			s, err := c.Quorum()
			if err != nil {
				return err
			}
			if end := s.Voters[full.ID]; end < fresh.HighWatermark {
				return fmt.Errorf("its log ends at %d, committed is %d", end, s.HighWatermark)
			}
			return nil
		})
		knows(t, c.Node(4), topics...)
	}
}
