package api

import (
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/image"
)

// Node is what the handlers of one node are wired to.
type Node struct {
	NodeID     int32
	ClusterID  string
	Images     Images
	Replicas   Replicas
	Controller Controller
	Configs    Configs
	// Here is the controller of this node alone, and Raft its replica of the
	// metadata log: for controller listeners, nil without the controller role.
	Here      Controller
	Raft      Raft
	Quorum    Quorum
	Leader    func() int32 // of the quorum, -1 when unknown
	LogDirs   LogDirs
	Epoch     func() int64 // registered broker epoch
	Supported []image.FeatureRange
	KRaft     func() int16 // level of kraft.version
	Clock     clock.Clock
	Buffers   *batch.Pool
	Logger    *slog.Logger
	Loggers   Loggers // whose levels clients may change

	Groups Groups
	Txns   Transactions
	IDs    *ProducerIDs
	// How __consumer_offsets and __transaction_state are created.
	GroupTopic, TxnTopic InternalTopic
	Markers              *Markers
	// TxnBackoff and TxnBackoffMax, see Verification.
	TxnBackoff, TxnBackoffMax time.Duration

	Gone, Doubted    func(*image.Broker) bool // see Metadata
	Throttle         Throttle                 // of leaders, see Fetch
	Starts           Starts                   // see Fetch
	NearRacks        bool                     // replica.selector.class
	AutoCreateTopics bool                     // auto.create.topics.enable
	CreatedTopics    NewTopic                 // see Metadata
	FetchMaxBytes    int                      // fetch.max.bytes
	SessionSlots     int                      // max.incremental.fetch.session.cache.slots
	MaxPartitions    int32                    // max.request.partition.size.limit
}

// BrokerTable is what the listeners for clients serve.
func (n *Node) BrokerTable() *Table {
	versions := &ApiVersions{Images: n.Images, Supported: n.Supported, KRaft: n.KRaft}
	handlers := []Handler{
		versions,
		&Produce{
			Images: n.Images, Replicas: n.Replicas, Clock: n.Clock,
			Verification: Verification{Txns: n.Txns, Configs: n.Configs, Backoff: n.TxnBackoff, BackoffMax: n.TxnBackoffMax, Clock: n.Clock},
		},
		&Fetch{
			Images: n.Images, Replicas: n.Replicas, Sessions: NewSessions(n.Clock, n.SessionSlots),
			Clock: n.Clock, Buffers: n.Buffers, MaxBytes: n.FetchMaxBytes, NearRacks: n.NearRacks, Throttle: n.Throttle, Starts: n.Starts,
		},
		&ListOffsets{Images: n.Images, Replicas: n.Replicas},
		&Metadata{
			Images: n.Images, Controller: n.Controller, ClusterID: n.ClusterID, Gone: n.Gone, Doubted: n.Doubted,
			AutoCreate: n.AutoCreateTopics, Created: n.CreatedTopics, Internal: []InternalTopic{n.GroupTopic, n.TxnTopic},
		},
		&DescribeTopicPartitions{Images: n.Images, MaxPartitions: n.MaxPartitions},
		&OffsetForLeaderEpoch{Images: n.Images, Replicas: n.Replicas},
		&DeleteRecords{Images: n.Images, Replicas: n.Replicas, Clock: n.Clock},
		&DescribeProducers{Images: n.Images, Replicas: n.Replicas},
		&DescribeConfigs{Images: n.Images, Configs: n.Configs, NodeID: n.NodeID, Loggers: n.Loggers},
		&ListConfigResources{Images: n.Images},
		&DescribeCluster{Images: n.Images, ClusterID: n.ClusterID, Leader: n.Leader},
		&DescribeLogDirs{Images: n.Images, Dirs: n.LogDirs},
		&AlterReplicaLogDirs{Images: n.Images, Dirs: n.LogDirs},
	}
	for _, k := range []kmsg.Key{kmsg.AlterConfigs, kmsg.IncrementalAlterConfigs} {
		handlers = append(handlers, &AlterConfigs{
			Forward: Forward{API: k, Controller: n.Controller, Images: n.Images}, NodeID: n.NodeID, Configs: n.Configs, Loggers: n.Loggers,
		})
	}
	handlers = append(handlers, n.groups()...)
	handlers = append(handlers, n.transactions()...)
	handlers = append(handlers, n.consumers()...)
	handlers = append(handlers, &Forward{API: kmsg.DescribeQuorum, Controller: n.Controller})
	return n.table(versions, append(handlers, n.administration(n.Controller)...))
}

// groups is what members of groups use.
func (n *Node) groups() []Handler {
	return []Handler{
		&FindCoordinator{
			Images: n.Images, Controller: n.Controller, Logger: n.Logger,
			Groups: NewCoordinated(n.Groups, n.GroupTopic), Txns: NewCoordinated(n.Txns, n.TxnTopic),
		},
		&JoinGroup{n.Groups},
		&SyncGroup{n.Groups},
		&Heartbeat{n.Groups},
		&LeaveGroup{n.Groups},
		&OffsetCommit{n.Images, n.Groups},
		&OffsetFetch{n.Images, n.Groups},
		&OffsetDelete{n.Images, n.Groups},
		&DescribeGroups{n.Groups},
		&ListGroups{n.Groups},
		&DeleteGroups{n.Groups},
	}
}

// transactions is what transactional producers use, and those who look after them.
func (n *Node) transactions() []Handler {
	return []Handler{
		&InitProducerID{n.IDs, n.Txns},
		&AddPartitionsToTxn{n.Images, n.Txns},
		&AddOffsetsToTxn{n.Txns, n.Groups},
		&EndTxn{n.Txns},
		&TxnOffsetCommit{n.Images, n.Groups, n.Configs},
		&WriteTxnMarkers{n.Markers},
		&DescribeTransactions{n.Txns},
		&ListTransactions{n.Txns},
	}
}

func (n *Node) table(versions *ApiVersions, handlers []Handler) *Table {
	t := NewTable(n.Logger, handlers...)
	versions.Bind(t)
	return t
}

// administration is what both kinds of listener serve, of the given controller.
func (n *Node) administration(c Controller) []Handler {
	forward := func(k kmsg.Key) Handler { return &Forward{API: k, Controller: c} }
	return []Handler{
		&Forward{API: kmsg.CreateTopics, Controller: c, Images: n.Images, Settled: topicsCreated},
		&Forward{API: kmsg.DeleteTopics, Controller: c, Images: n.Images, Settled: topicsDeleted},
		&Forward{API: kmsg.CreatePartitions, Controller: c, Images: n.Images, Settled: partitionsCreated},
		forward(kmsg.UpdateFeatures),
		forward(kmsg.ElectLeaders),
		forward(kmsg.AlterPartitionAssignments),
		forward(kmsg.ListPartitionReassignments),
		forward(kmsg.UnregisterBroker),
		forward(kmsg.AddRaftVoter),
		forward(kmsg.RemoveRaftVoter),
		&ACLs{API: kmsg.DescribeACLs},
		&ACLs{API: kmsg.CreateACLs},
		&ACLs{API: kmsg.DeleteACLs},
	}
}
