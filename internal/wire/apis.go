package wire

import (
	"iter"
	"math"
)

// Range is the versions of an API, both ends included.
type Range struct{ Min, Max int16 }

// Listeners says on which kinds of listener Apache Kafka serves an API.
type Listeners uint8

// The two kinds of listener: a broker's for clients and other brokers, and a controller's.
const (
	OnBroker     Listeners = 1 << 0
	OnController Listeners = 1 << 1
	onBoth                 = OnBroker | OnController
)

// API is one line of the table of APIs. What a node advertises is the part of the table it has handlers for, which is
// package api's matter.
type API struct {
	Key       int16
	Name      string // Kafka's name, as kafka-broker-api-versions prints it
	Versions  Range  // from the oldest ever to the newest Apache Kafka 4.3.1 serves with unstable versions off
	flexible  int16  // first flexible version (KIP-482)
	Listeners Listeners
	Comment   string
}

const (
	apiVersionsKey = 18
	produceKey     = 0
	// never stands in the flexible column of APIs without a flexible version.
	never = math.MaxInt16
)

// apis is ordered by key. LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6) and ControlledShutdown (7) went with
// ZooKeeper and do not exist here. The highest versions were read from a running Apache Kafka 4.3.1. It is filled here
// and never changed.
var apis = [...]API{
	{0, "Produce", Range{0, 13}, 9, OnBroker, "v0–v2 message sets, v3 record batches, v13 topic ids; 4.x serves from v3 but lists v0 for old librdkafka"},
	{1, "Fetch", Range{0, 18}, 12, onBoth, "v0–v3 message sets, v4 batches, v7 sessions, v13 topic ids, v18 follower high watermark; 4.x serves from v4"},
	{2, "ListOffsets", Range{0, 11}, 6, OnBroker, "v0 lists several offsets; 4.x serves from v1"},
	{3, "Metadata", Range{0, 13}, 9, OnBroker, "v10 topic ids, v12 ask by topic id, v13 top-level error"},
	{8, "OffsetCommit", Range{0, 10}, 8, OnBroker, "v0 kept offsets in ZooKeeper; 4.x serves from v2; v10 topic ids"},
	{9, "OffsetFetch", Range{0, 10}, 6, OnBroker, "v0 read ZooKeeper; 4.x serves from v1; v8 several groups, v10 topic ids"},
	{10, "FindCoordinator", Range{0, 6}, 3, OnBroker, "v1 transaction coordinators, v4 several keys, v6 share coordinators"},
	{11, "JoinGroup", Range{0, 9}, 6, OnBroker, "v4 two-step join, v5 static members"},
	{12, "Heartbeat", Range{0, 4}, 4, OnBroker, ""},
	{13, "LeaveGroup", Range{0, 5}, 4, OnBroker, "v3 several members, v5 reason"},
	{14, "SyncGroup", Range{0, 5}, 4, OnBroker, ""},
	{15, "DescribeGroups", Range{0, 6}, 5, OnBroker, "v6 GROUP_ID_NOT_FOUND"},
	{16, "ListGroups", Range{0, 5}, 3, OnBroker, "v4 state filter, v5 type filter"},
	{17, "SaslHandshake", Range{0, 1}, never, onBoth, "v0: raw SASL tokens follow, v1: SaslAuthenticate follows"},
	{18, "ApiVersions", Range{0, 4}, 3, onBoth, "the answer's header never has tagged fields; an unknown version is answered in the v0 shape"},
	{19, "CreateTopics", Range{0, 7}, 5, onBoth, "4.x serves from v2"},
	{20, "DeleteTopics", Range{0, 6}, 4, onBoth, "4.x serves from v1; v6 topic ids"},
	{21, "DeleteRecords", Range{0, 2}, 2, OnBroker, ""},
	{22, "InitProducerId", Range{0, 5}, 2, OnBroker, "v6 (KIP-939) is unstable in 4.3.1 and not served"},
	{23, "OffsetForLeaderEpoch", Range{0, 4}, 4, OnBroker, "4.x serves from v2; v3 replica id"},
	{24, "AddPartitionsToTxn", Range{0, 5}, 3, OnBroker, "v4 batched form between brokers, v5 transactions v2"},
	{25, "AddOffsetsToTxn", Range{0, 4}, 3, OnBroker, ""},
	{26, "EndTxn", Range{0, 5}, 3, OnBroker, "v5 answers the bumped epoch (KIP-890)"},
	{27, "WriteTxnMarkers", Range{0, 2}, 1, OnBroker, "4.x serves from v1; v2 transaction version"},
	{28, "TxnOffsetCommit", Range{0, 5}, 3, OnBroker, "v6 is unstable in 4.3.1 and not served"},
	{29, "DescribeAcls", Range{0, 3}, 2, onBoth, "4.x serves from v1"},
	{30, "CreateAcls", Range{0, 3}, 2, onBoth, "4.x serves from v1"},
	{31, "DeleteAcls", Range{0, 3}, 2, onBoth, "4.x serves from v1"},
	{32, "DescribeConfigs", Range{0, 4}, 4, onBoth, "4.x serves from v1"},
	{33, "AlterConfigs", Range{0, 2}, 2, onBoth, "deprecated by IncrementalAlterConfigs, still served"},
	{34, "AlterReplicaLogDirs", Range{0, 2}, 2, OnBroker, "4.x serves from v1"},
	{35, "DescribeLogDirs", Range{0, 5}, 2, OnBroker, "4.x serves from v1; v4 volume sizes, v5 cordoned directories"},
	{36, "SaslAuthenticate", Range{0, 2}, 2, onBoth, "v1 session lifetime"},
	{37, "CreatePartitions", Range{0, 3}, 2, onBoth, ""},
	{38, "CreateDelegationToken", Range{0, 3}, 2, onBoth, "4.x serves from v1"},
	{39, "RenewDelegationToken", Range{0, 2}, 2, onBoth, "4.x serves from v1"},
	{40, "ExpireDelegationToken", Range{0, 2}, 2, onBoth, "4.x serves from v1"},
	{41, "DescribeDelegationToken", Range{0, 3}, 2, onBoth, "4.x serves from v1"},
	{42, "DeleteGroups", Range{0, 2}, 2, OnBroker, "v3 is unstable in 4.3.1 and not served"},
	{43, "ElectLeaders", Range{0, 2}, 2, onBoth, "v1 unclean elections"},
	{44, "IncrementalAlterConfigs", Range{0, 1}, 1, onBoth, ""},
	{45, "AlterPartitionReassignments", Range{0, 1}, 0, onBoth, "v1 allows refusing a change of the replication factor"},
	{46, "ListPartitionReassignments", Range{0, 0}, 0, onBoth, ""},
	{47, "OffsetDelete", Range{0, 0}, never, OnBroker, ""},
	{48, "DescribeClientQuotas", Range{0, 1}, 1, OnBroker, ""},
	{49, "AlterClientQuotas", Range{0, 1}, 1, onBoth, ""},
	{50, "DescribeUserScramCredentials", Range{0, 0}, 0, onBoth, ""},
	{51, "AlterUserScramCredentials", Range{0, 0}, 0, onBoth, ""},
	{52, "Vote", Range{0, 2}, 0, OnController, "v1 directory ids, v2 pre-vote"},
	{53, "BeginQuorumEpoch", Range{0, 1}, 1, OnController, ""},
	{54, "EndQuorumEpoch", Range{0, 1}, 1, OnController, ""},
	{55, "DescribeQuorum", Range{0, 2}, 0, onBoth, "v2 directory ids and endpoints"},
	{56, "AlterPartition", Range{2, 3}, 0, OnController, "v0 and v1 went with ZooKeeper"},
	{57, "UpdateFeatures", Range{0, 2}, 0, onBoth, "v1 upgrade types and dry run"},
	{58, "Envelope", Range{0, 0}, 0, OnController, "a request that a broker forwards for its client"},
	{59, "FetchSnapshot", Range{0, 1}, 0, OnController, ""},
	{60, "DescribeCluster", Range{0, 2}, 0, onBoth, "v1 controllers, v2 fenced brokers"},
	{61, "DescribeProducers", Range{0, 0}, 0, OnBroker, ""},
	{62, "BrokerRegistration", Range{0, 4}, 0, OnController, "v3 previous broker epoch, v4 cordoned directories"},
	{63, "BrokerHeartbeat", Range{0, 2}, 0, OnController, "v1 offline directories, v2 cordoned directories"},
	{64, "UnregisterBroker", Range{0, 0}, 0, onBoth, ""},
	{65, "DescribeTransactions", Range{0, 0}, 0, OnBroker, ""},
	{66, "ListTransactions", Range{0, 2}, 0, OnBroker, ""},
	{67, "AllocateProducerIds", Range{0, 0}, 0, OnController, ""},
	{68, "ConsumerGroupHeartbeat", Range{0, 1}, 0, OnBroker, "v1 regular expressions"},
	{69, "ConsumerGroupDescribe", Range{0, 1}, 0, OnBroker, ""},
	{70, "ControllerRegistration", Range{0, 0}, 0, OnController, ""},
	{71, "GetTelemetrySubscriptions", Range{0, 0}, 0, OnBroker, "listed only while a telemetry receiver is configured"},
	{72, "PushTelemetry", Range{0, 0}, 0, OnBroker, "listed only while a telemetry receiver is configured"},
	{73, "AssignReplicasToDirs", Range{0, 0}, 0, OnController, ""},
	{74, "ListConfigResources", Range{0, 1}, 0, OnBroker, "v0 was ListClientMetricsResources"},
	{75, "DescribeTopicPartitions", Range{0, 0}, 0, OnBroker, ""},
	{76, "ShareGroupHeartbeat", Range{0, 1}, 0, OnBroker, "v0 was early access in 4.0"},
	{77, "ShareGroupDescribe", Range{0, 1}, 0, OnBroker, "v0 was early access in 4.0"},
	{78, "ShareFetch", Range{0, 2}, 0, OnBroker, "v0 was early access in 4.0"},
	{79, "ShareAcknowledge", Range{0, 2}, 0, OnBroker, "v0 was early access in 4.0"},
	{80, "AddRaftVoter", Range{0, 1}, 0, onBoth, ""},
	{81, "RemoveRaftVoter", Range{0, 0}, 0, onBoth, ""},
	{82, "UpdateRaftVoter", Range{0, 0}, 0, OnController, ""},
	{83, "InitializeShareGroupState", Range{0, 0}, 0, OnBroker, ""},
	{84, "ReadShareGroupState", Range{0, 0}, 0, OnBroker, ""},
	{85, "WriteShareGroupState", Range{0, 1}, 0, OnBroker, ""},
	{86, "DeleteShareGroupState", Range{0, 0}, 0, OnBroker, ""},
	{87, "ReadShareGroupStateSummary", Range{0, 1}, 0, OnBroker, ""},
	{88, "StreamsGroupHeartbeat", Range{0, 0}, 0, OnBroker, "v1 is unstable in 4.3.1 and not served"},
	{89, "StreamsGroupDescribe", Range{0, 0}, 0, OnBroker, "v1 is unstable in 4.3.1 and not served"},
	{90, "DescribeShareGroupOffsets", Range{0, 1}, 0, OnBroker, ""},
	{91, "AlterShareGroupOffsets", Range{0, 0}, 0, OnBroker, ""},
	{92, "DeleteShareGroupOffsets", Range{0, 0}, 0, OnBroker, ""},
}

// removedAPIs is how many keys are missing between Metadata (3) and OffsetCommit (8), the table's only gap.
const removedAPIs = 4

func lookup(key int16) *API {
	i := int(key)
	if i >= 8 {
		i -= removedAPIs
	} else if i > 3 {
		return nil
	}
	if i < 0 || i >= len(apis) {
		return nil
	}
	return &apis[i]
}

// Lookup finds an API by its key.
func Lookup(key int16) (API, bool) {
	if api := lookup(key); api != nil {
		return *api, true
	}
	return API{}, false
}

// APIs lists the table in the order of keys.
func APIs() iter.Seq[API] {
	return func(yield func(API) bool) {
		for i := range apis {
			if !yield(apis[i]) {
				return
			}
		}
	}
}

// Supported is the versions of an API that exist here, whether or not a handler is registered for them.
func Supported(key int16) (Range, bool) {
	if api := lookup(key); api != nil {
		return api.Versions, true
	}
	return Range{}, false
}

// SupportedOn is Supported for one kind of listener.
func SupportedOn(kind Listeners, key int16) (Range, bool) {
	if api := lookup(key); api != nil && api.Listeners&kind != 0 {
		return api.Versions, true
	}
	return Range{}, false
}

// Name is Kafka's name of an API, or "Unknown" for a key outside the table.
func Name(key int16) string {
	if api := lookup(key); api != nil {
		return api.Name
	}
	return "Unknown"
}

// CarriesRecords reports whether requests of this API hold records, so that only socket.request.max.bytes limits their
// size. Requests of all other APIs are small lists of names and numbers.
func CarriesRecords(key int16) bool { return key == produceKey }
