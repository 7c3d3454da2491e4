package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/test/testnode"
)

// TestTwoListeners: one listener speaks IPv4, the other IPv6. A client of either is told of no other address than that
// listener's, without brackets, and works through it (case K34).
func TestTwoListeners(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		l.Close()
	}
	n := testnode.New(t, testnode.Options{})
	six := net.JoinHostPort("::1", strconv.Itoa(testnode.FreePort(t)))
	n.SetProp(t, "listeners", "PLAINTEXT://"+n.Addr+",SIX://"+six+",CONTROLLER://"+n.Controller)
	n.SetProp(t, "listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT")
	n.Start(t)
	createTopic(t, n, "a", 3, nil)
	for _, addr := range []string{n.Addr, six} {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		own := func(what string, id int32, h string, p int32) {
			t.Helper()
			if id != n.ID || h != host || strconv.Itoa(int(p)) != port {
				t.Errorf("%s by %s: node %d at %q port %d", what, addr, id, h, p)
			}
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("a"), kgo.ConsumerGroup("g"+port), kgo.ConsumeTopics("a"),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		meta := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr("a")
		meta.Topics = append(meta.Topics, topic)
		m, err := meta.RequestWith(t.Context(), cl)
		if err != nil || len(m.Brokers) != 1 || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 3 {
			t.Fatalf("%+v: %v", m, err)
		}
		own("Metadata", m.Brokers[0].NodeID, m.Brokers[0].Host, m.Brokers[0].Port)
		for _, p := range m.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader != n.ID || len(p.Replicas) != 1 || p.Replicas[0] != n.ID {
				t.Errorf("by %s: %+v", addr, p)
			}
		}
		d, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(t.Context(), cl)
		if err != nil || len(d.Brokers) != 1 {
			t.Fatalf("%+v: %v", d, err)
		}
		own("DescribeCluster", d.Brokers[0].NodeID, d.Brokers[0].Host, d.Brokers[0].Port)
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord("by "+addr)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		limit, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for found := false; !found; { // through the group, whose coordinator is found by the same address
			got := cl.PollFetches(limit)
			if err := got.Err(); err != nil {
				t.Fatal(err)
			}
			got.EachRecord(func(r *kgo.Record) { found = found || string(r.Value) == "by "+addr })
		}
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKey, find.CoordinatorKeys = "g"+port, []string{"g" + port}
		f, err := find.RequestWith(t.Context(), cl)
		if err != nil || len(f.Coordinators) != 1 {
			t.Fatalf("%+v: %v", f, err)
		}
		own("FindCoordinator", f.Coordinators[0].NodeID, f.Coordinators[0].Host, f.Coordinators[0].Port)
	}
	n.Stop(t)
}

// TestListenerWhileRunning: a listener is added and removed by kafka-configs' request, and is there again after a restart.
func TestListenerWhileRunning(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, testnode.Options{})
	n.SetProp(t, "advertised.listeners", "PLAINTEXT://"+n.Addr) // what is advertised cannot be removed while the node runs
	n.Start(t)
	extra := net.JoinHostPort("127.0.0.1", strconv.Itoa(testnode.FreePort(t)))
	alter := func(op kadm.IncrementalOp, keys ...string) {
		t.Helper()
		values := map[string]string{
			"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
			"listeners":                      "PLAINTEXT://" + n.Addr + ",EXTRA://" + extra + ",CONTROLLER://" + n.Controller,
		}
		var changes []kadm.AlterConfig
		for _, k := range keys {
			v := values[k]
			changes = append(changes, kadm.AlterConfig{Op: op, Name: k, Value: &v})
		}
		res, err := n.Admin(t).AlterBrokerConfigs(t.Context(), changes, n.ID)
		if err != nil || res[0].Err != nil {
			t.Fatalf("%v: %+v, %v", keys, res, err)
		}
	}
	becomes := func(open bool) {
		t.Helper()
		testnode.Until(t, testnode.Patience, "the listener opens or closes", func() error {
			c, err := net.Dial("tcp", extra)
			if err == nil {
				c.Close()
			}
			if (err == nil) != open {
				return fmt.Errorf("open is to be %t, and %v", open, err)
			}
			return nil
		})
	}
	becomes(false)
	alter(kadm.SetConfig, "listener.security.protocol.map", "listeners")
	becomes(true)
	cl, err := kgo.NewClient(kgo.SeedBrokers(extra))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
	n.Restart(t)
	becomes(true)
	alter(kadm.DeleteConfig, "listeners")
	becomes(false)
	n.Restart(t)
	becomes(false)
}
