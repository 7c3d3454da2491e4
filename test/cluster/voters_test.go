package cluster

import (
	"fmt"
	"strings"
	"testing"

	"weir/test/testnode"
)

// KIP-853: a controller with an empty log becomes a voter by itself
// (controller.quorum.auto.join.enable), the first one is removed by the tool's
// request, and the cluster goes on without it.
func TestVotersChange(t *testing.T) {
	t.Parallel()
	joins := testnode.Member{Roles: testnode.ControllerOnly, Props: map[string]string{"controller.quorum.auto.join.enable": "true"}}
	c := testnode.NewCluster(t, testnode.ClusterOptions{
		Members: []testnode.Member{{Roles: testnode.ControllerOnly, First: true}, joins, joins, {Roles: testnode.BrokerOnly}},
		Dynamic: true,
	})
	c.Start(t)
	testnode.Until(t, testnode.Patience, "three voters", func() error {
		s, err := c.Quorum()
		if err == nil && len(s.Voters) != 3 {
			err = fmt.Errorf("the voters are %v", s.Voters)
		}
		return err
	})
	makeTopic(t, c, "a", 1, 1)
	gone := c.Node(1)
	gone.Stop(t)
	c.WaitLeader(t, testnode.Patience, 1)
	if out := testnode.Tool(t, "", "kafka-metadata-quorum", "--bootstrap-server", c.Node(4).Addr, "remove-controller",
		"--controller-id", "1", "--controller-directory-id", gone.DirectoryID(t)); out.Code != 0 || !strings.Contains(out.Stdout, "Removed") {
		t.Fatalf("remove-controller: %+v", out)
	}
	if s := c.WaitLeader(t, testnode.Patience, 1); len(s.Voters) != 2 {
		t.Errorf("the voters are %v", s.Voters)
	}
	makeTopic(t, c, "b", 1, 1)
}
