package api

import "github.com/twmb/franz-go/pkg/kmsg"

// ControllerTable is what the controller listeners serve. Only the active
// controller decides; the others answer NOT_CONTROLLER and forward nothing, as in
// Kafka.
func (n *Node) ControllerTable() *Table {
	versions, envelope := &ApiVersions{Images: n.Images, Supported: n.Supported, KRaft: n.KRaft}, &Envelope{}
	handlers := []Handler{
		versions,
		envelope,
		&DescribeCluster{Images: n.Images, ClusterID: n.ClusterID, Leader: n.Leader, Controllers: true},
		&DescribeConfigs{Images: n.Images, Configs: n.Configs, NodeID: n.NodeID, Loggers: n.Loggers},
		&DescribeQuorum{Quorum: n.Quorum},
		&MetadataFetch{Raft: n.Raft, ClusterID: n.ClusterID},
	}
	for _, k := range []kmsg.Key{kmsg.Vote, kmsg.BeginQuorumEpoch, kmsg.EndQuorumEpoch, kmsg.FetchSnapshot} {
		handlers = append(handlers, &QuorumRequest{API: k, Raft: n.Raft, ClusterID: n.ClusterID})
	}
	for _, k := range []kmsg.Key{kmsg.AlterConfigs, kmsg.IncrementalAlterConfigs} {
		handlers = append(handlers, &AlterConfigs{Forward: Forward{API: k, Controller: n.Here}, NodeID: n.NodeID, Loggers: n.Loggers})
	}
	for _, k := range []kmsg.Key{
		// What brokers and other controllers ask for themselves.
		kmsg.BrokerRegistration, kmsg.BrokerHeartbeat, kmsg.AlterPartition, kmsg.AllocateProducerIDs,
		kmsg.AssignReplicasToDirs, kmsg.ControllerRegistration,
		kmsg.UpdateRaftVoter,
	} {
		handlers = append(handlers, &Forward{API: k, Controller: n.Here})
	}
	t := n.table(versions, append(handlers, n.administration(n.Here)...))
	envelope.Bind(t)
	return t
}
