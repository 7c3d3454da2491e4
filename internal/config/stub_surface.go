package config

const notBuilt = "not built yet"

type check struct{}

var typeNames = [...]string{"UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}

// Lookup finds a key of the given scope.
func Lookup(scope Scope, name string) (*Key, bool) { panic(notBuilt) }

// Keys returns all keys of the scope, by name.
func Keys(scope Scope) []*Key { panic(notBuilt) }

// Warning is something the operator should know, but with which the node starts.
type Warning struct {
	File, Key, Message string
	Line               int
}

// Error is a refused setting.
type Error struct {
	File, Key, Value, Reason, Allowed string
	Line                              int
}

func (e *Error) Error() string { panic(notBuilt) }

// Static is what server.properties and the overrides said.
type Static struct{}

// Load parses and checks a properties file; overrides are "key=value".
func Load(name string, text []byte, overrides []string) (*Static, []Warning, error) { panic(notBuilt) }

func (s *Static) Raw(key string) (string, bool) { panic(notBuilt) }
func (s *Static) Int(key string) int32          { panic(notBuilt) }
func (s *Static) Long(key string) int64         { panic(notBuilt) }
func (s *Static) Bool(key string) bool          { panic(notBuilt) }
func (s *Static) Double(key string) float64     { panic(notBuilt) }
func (s *Static) String(key string) string      { panic(notBuilt) } // null is ""
func (s *Static) List(key string) []string      { panic(notBuilt) }
func (s *Static) Node() (*Node, error)          { panic(notBuilt) }

// Listener is one endpoint.
type Listener struct {
	Name, Host string
	Port       int
	Protocol   string
}

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int
}

// HostPort is one entry of controller.quorum.bootstrap.servers.
type HostPort struct {
	Host string
	Port int
}

// Node is what the process needs to start.
type Node struct {
	NodeID              int32
	Broker, Controller  bool
	Listeners           []Listener
	Advertised          []Listener
	ControllerListeners []string
	InterBroker         string
	LogDirs             []string
	MetadataDir         string
	QuorumVoters        []Voter
	QuorumBootstrap     []HostPort
	Rack                *string
	MetricsListener     *HostPort
}

// Topic is one topic's resolved configuration.
type Topic struct {
	SegmentBytes                                            int32
	SegmentMs, SegmentJitterMs, RetentionMs, RetentionBytes int64
	IndexIntervalBytes, SegmentIndexBytes                   int32
	FlushMessages, FlushMs                                  int64
	CleanupDelete, CleanupCompact                           bool
	MaxMessageBytes                                         int32
	CompressionType                                         string
	GzipLevel, Lz4Level, ZstdLevel                          int
	TimestampType                                           string
	TimestampBeforeMaxMs, TimestampAfterMaxMs               int64
	MinInsyncReplicas                                       int32
	UncleanElection, Preallocate                            bool
	FileDeleteDelayMs, DeleteRetentionMs                    int64
	MinCompactionLagMs, MaxCompactionLagMs                  int64
	MinCleanableDirtyRatio                                  float64
}

// Effective is the static configuration with the dynamic overlay.
type Effective struct{}

// NewEffective puts the dynamic configs over the static ones.
func NewEffective(static *Static, clusterDefault, perBroker map[string]string) *Effective {
	panic(notBuilt)
}

// Value returns the effective value of a broker key; false when it is null.
func (e *Effective) Value(key string) (string, bool)                   { panic(notBuilt) }
func (e *Effective) Int(key string) int32                              { panic(notBuilt) }
func (e *Effective) Long(key string) int64                             { panic(notBuilt) }
func (e *Effective) Bool(key string) bool                              { panic(notBuilt) }
func (e *Effective) Double(key string) float64                         { panic(notBuilt) }
func (e *Effective) String(key string) string                          { panic(notBuilt) }
func (e *Effective) List(key string) []string                          { panic(notBuilt) }
func (e *Effective) Describe(key string) (Entry, bool)                 { panic(notBuilt) }
func (e *Effective) Topic(overrides map[string]string) (*Topic, error) { panic(notBuilt) }
func (e *Effective) DescribeTopic(overrides map[string]string) []Entry { panic(notBuilt) }
func (e *Effective) DescribeBroker() []Entry                           { panic(notBuilt) }
func (e *Effective) DescribeClusterDefault() []Entry                   { panic(notBuilt) }
func (e *Effective) DescribeGroup(overrides map[string]string) []Entry { panic(notBuilt) }

// Synonym is one place a value could come from.
type Synonym struct {
	Name   string
	Value  *string
	Source int8
}

// Entry is one row of a DescribeConfigs answer.
type Entry struct {
	Name                           string
	Value                          *string
	Source                         int8
	Type                           int8
	ReadOnly, Sensitive, IsDefault bool
	Doc                            string
	Synonyms                       []Synonym
}

// ValidateTopic checks a topic's overrides; the error text is Kafka's.
func ValidateTopic(overrides map[string]string) error { panic(notBuilt) }

// ValidateBroker checks dynamic broker configs; perBroker tells one broker's from the cluster default.
func ValidateBroker(overrides map[string]string, perBroker bool) error { panic(notBuilt) }

// Invalid is a refused dynamic value; Error returns Kafka's text, answered as INVALID_CONFIG.
type Invalid struct{ Message string }

func (e *Invalid) Error() string { return e.Message }

// AppendList and SubtractList are the list operations of IncrementalAlterConfigs.
func AppendList(current, items string) string   { panic(notBuilt) }
func SubtractList(current, items string) string { panic(notBuilt) }
