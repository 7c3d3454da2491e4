package config

// Scope says which kind of resource a key belongs to.
type Scope uint8

// The resources that have keys of their own.
const (
	ScopeBroker Scope = iota + 1
	ScopeTopic
	ScopeGroup
	ScopeClientMetrics
)

// String returns the word that error texts use for the scope.
func (s Scope) String() string {
	switch s {
	case ScopeBroker:
		return "broker"
	case ScopeTopic:
		return "topic"
	case ScopeGroup:
		return "group"
	case ScopeClientMetrics:
		return "client metrics"
	}
	return "unknown"
}

// Type is the type of a key's value. The numbers are those of DescribeConfigs (KIP-226, KIP-569).
type Type int8

// The types of Kafka's ConfigDef.
const (
	TypeUnknown Type = iota
	TypeBoolean
	TypeString
	TypeInt
	TypeShort
	TypeLong
	TypeDouble
	TypeList
	TypeClass
	TypePassword
)

// String returns Kafka's name of the type, e.g. LONG.
func (t Type) String() string {
	switch t {
	case TypeBoolean:
		return "BOOLEAN"
	case TypeString:
		return "STRING"
	case TypeInt:
		return "INT"
	case TypeShort:
		return "SHORT"
	case TypeLong:
		return "LONG"
	case TypeDouble:
		return "DOUBLE"
	case TypeList:
		return "LIST"
	case TypeClass:
		return "CLASS"
	case TypePassword:
		return "PASSWORD"
	}
	return "UNKNOWN"
}

// Mode says how a running broker accepts a change of a broker key.
type Mode uint8

// The update modes of Kafka's documentation.
const (
	ReadOnly    Mode = iota // needs a restart
	PerBroker               // one broker at a time
	ClusterWide             // for one broker or as the default of all
)

// String returns the word Kafka's documentation uses.
func (m Mode) String() string {
	switch m {
	case PerBroker:
		return "per-broker"
	case ClusterWide:
		return "cluster-wide"
	}
	return "read-only"
}

// Key is one row of the table. Keys are shared and never modified.
type Key struct {
	Name    string
	Scope   Scope
	Type    Type
	Default *string // nil: no default, the value is null unless set
	// Required is set for the keys without which Kafka does not start (node.id, process.roles, controller.listener.names).
	Required bool
	// Valid describes the accepted values as Kafka prints them: "[1,...]", "[compact, delete]"; empty when every
	// value of the type is accepted.
	Valid string
	// Update is the mode of a broker key. Dynamic is Update != ReadOnly; topic and group keys are always dynamic.
	Update  Mode
	Dynamic bool
	// DynamicOnly keys are no server.properties keys: they exist only as dynamic broker configs.
	DynamicOnly bool
	// Internal keys are known to Kafka but left out of DescribeConfigs.
	Internal bool
	// Sensitive values are never returned to clients.
	Sensitive bool
	// Honoured says that Weir acts on the value. ByDesign, when not empty, says why there is nothing to act on.
	Honoured bool
	ByDesign string
	Doc      string
	// Synonyms are the broker keys that supply the value, most specific first. For a topic or group key it is what
	// counts when the key itself is not set. The list of a broker key includes the key, and begins with the one of
	// highest precedence: log.retention.hours and log.retention.ms both list log.retention.ms first.
	Synonyms []string

	check check
}
