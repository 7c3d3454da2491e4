package controller

import (
	"io"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// Rand is the dice that a step may throw: new topic ids and the order of equally good brokers.
type Rand interface {
	io.Reader
	Shuffle(n int, swap func(i, j int))
}

// ConfigRules knows the configuration keys. It is implemented over package config by whoever builds the Core.
type ConfigRules interface {
	// Validate checks all values that a resource will have after a change. An error's text goes to the client with
	// INVALID_CONFIG, or INVALID_REQUEST when it is a *config.Invalid that says so.
	Validate(res image.Resource, values map[string]string) error
	// Default returns the static value or the default of a key, "" when it has none.
	Default(res image.Resource, key string) string
	// DescribeTopic returns every setting of a topic by name, with its source, given the dynamic values of this node, the
	// cluster-wide ones and the topic's own.
	DescribeTopic(node, cluster, topic map[string]string) []kmsg.CreateTopicsResponseTopicConfig
}

// CreateTopicPolicy is Kafka's create.topic.policy.class.name.
type CreateTopicPolicy interface {
	// ValidateCreate refuses a topic by returning an error, which answers POLICY_VIOLATION. With manual assignments partitions and
	// replication factor are -1 and assignments holds the replicas; otherwise assignments is nil.
	ValidateCreate(topic string, partitions int32, replicationFactor int16, assignments map[int32][]int32, configs map[string]string) error
}

// Options configures a Core. Intervals are in milliseconds; an interval of 0 or less turns that duty off.
type Options struct {
	NodeID    int32
	ClusterID string

	// BrokerHere says that the broker with this node id runs in this process. It holds the lock of its directories, so an earlier
	// incarnation cannot be alive.
	BrokerHere bool

	SessionTimeoutMs       int64 // broker.session.timeout.ms
	NoOpIntervalMs         int64 // metadata.max.idle.interval.ms
	UncleanIntervalMs      int64 // unclean.leader.election.interval.ms: how often leaderless partitions are looked at
	RebalanceIntervalMs    int64 // leader.imbalance.check.interval.seconds; off unless auto.leader.rebalance.enable
	RebalanceAfterReturnMs int64 // how long after a broker is in sync again it gets its leaders back; needs RebalanceIntervalMs > 0

	DefaultPartitions        int32 // num.partitions
	DefaultReplicationFactor int16 // default.replication.factor
	NoTopicDeletion          bool  // delete.topic.enable=false

	Supported []image.FeatureRange // features this node supports, metadata.version and kraft.version included

	Bootstrap       []records.Versioned // what an empty log starts with: from bootstrap.checkpoint
	BootstrapSource string              // where they come from, for the log

	Raise []RaisedTopic // internal topics whose replication factor grows with the cluster

	Config ConfigRules
	Policy CreateTopicPolicy // nil: none
}

// Core is the controller's logic with its soft state. One goroutine uses it.
type Core struct {
	o    Options
	soft soft
}

// soft is the state that no record holds. It is lost when the controller changes, as in Kafka.
type soft struct {
	active        bool
	brokers       map[int32]*session
	nextNoOpMs    int64
	nextUncleanMs int64
	nextBalanceMs int64
	nextRaiseMs   int64
}

// New makes a Core; it refuses everything until Activate.
func New(o Options) *Core { return &Core{o: o, soft: soft{brokers: map[int32]*session{}}} }

// Step is the moment at which a method is called.
type Step struct {
	NowMs      int64
	Rand       Rand
	Image      *image.Image // all that has been appended, committed or not
	NextOffset int64        // the offset that the next record will get
	Quorum     Quorum
}

// Quorum is what the consensus core says of the controllers at a Step: no record of the metadata does.
type Quorum struct {
	Voters       []int32 // ids
	KRaftVersion int16
}

// Result is what a method decided. Its records are appended in order. When Atomic is set they become visible together: in one
// batch, or wrapped in a metadata transaction when they do not fit.
type Result struct {
	Records  []records.Versioned
	Response any // the kmsg response, nil for methods without a request
	Atomic   bool
	Err      *Error // the refusal of the whole request, also in Response as far as it has room for it
	Notes    []string
}

// Error is a refusal: Kafka's error code and the text for the client, "" for none.
type Error struct {
	Code    int16
	Message string
}

// Error returns the text.
func (e *Error) Error() string {
	if e.Message == "" {
		return "Kafka error " + strconv.Itoa(int(e.Code))
	}
	return e.Message
}

func (e *Error) text() *string {
	if e.Message == "" {
		return nil
	}
	return &e.Message
}

// Active reports whether Activate was called after the last Deactivate.
func (c *Core) Active() bool { return c.soft.active }

// Deactivate forgets the soft state when another node leads the quorum.
func (c *Core) Deactivate() { c.soft = soft{brokers: map[int32]*session{}} }

// acceptable reports whether a broker may lead a partition: registered, unfenced, not shutting down, its directory online.
func acceptable(img *image.Image, p *image.Partition, broker int32) bool {
	b, ok := img.Broker(broker)
	return ok && b.Active() && b.HasOnlineDir(p.Directory(broker))
}

func active(img *image.Image, broker int32) bool {
	b, ok := img.Broker(broker)
	return ok && b.Active()
}

// defaultDir is the directory of a new replica: the only one of the broker, or to be assigned by it.
func defaultDir(img *image.Image, broker int32) uuid.UUID {
	b, ok := img.Broker(broker)
	switch {
	case !ok:
		return uuid.DirUnassigned
	case len(b.Dirs) == 0:
		return uuid.DirMigrating
	case len(b.Dirs) == 1:
		return b.Dirs[0]
	}
	return uuid.DirUnassigned
}

// topicConfig returns the effective value of a topic key that has the same name as a broker key: topic, this node, cluster, static.
func (c *Core) topicConfig(img *image.Image, topic, key string) string {
	for _, m := range []map[string]string{
		img.Configs(image.ResourceTopic, topic),
		img.Configs(image.ResourceBroker, strconv.Itoa(int(c.o.NodeID))),
		img.Configs(image.ResourceBroker, ""),
	} {
		if v, ok := m[key]; ok {
			return v
		}
	}
	return c.o.Config.Default(image.Resource{Type: image.ResourceTopic, Name: topic}, key)
}

const (
	keyMinISR   = "min.insync.replicas"
	keyCordoned = "cordoned.log.dirs"
	keyUnclean  = "unclean.leader.election.enable"
)

// minISR is min(min.insync.replicas, replication factor) of a topic.
func (c *Core) minISR(img *image.Image, t *image.Topic) int {
	n, err := strconv.Atoi(c.topicConfig(img, t.Name, keyMinISR))
	if err != nil {
		n = 1 // Kafka's default; a stored value was validated when it was set
	}
	if p, ok := t.Partition(0); ok {
		n = min(n, len(p.Replicas))
	}
	return n
}

func (c *Core) uncleanEnabled(img *image.Image, topic string) bool {
	return c.topicConfig(img, topic, keyUnclean) == "true"
}

func ptr[T any](v T) *T { return &v }
