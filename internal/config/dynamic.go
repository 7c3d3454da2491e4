package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Invalid is a refused dynamic value. Message is what Kafka tells the client.
type Invalid struct {
	Message string
	// Request is set for broker configs and some of client metrics: Kafka answers INVALID_REQUEST for them, INVALID_CONFIG otherwise.
	Request bool
}

// Error returns the message.
func (e *Invalid) Error() string { return e.Message }

func unknownNames(scope Scope, overrides map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if _, ok := Lookup(scope, name); !ok {
			return &Invalid{Message: fmt.Sprintf("Unknown %s config name: %s", scope, name)}
		}
	}
	return nil
}

// ValidateBroker checks dynamic broker configs key by key, as DynamicBrokerConfig.validateConfigs does: which keys may
// change at all, which only for one broker (perBroker) and not as the default of all. Unknown names are accepted, as
// in Kafka. The error is an *Invalid.
func ValidateBroker(overrides map[string]string, perBroker bool) error {
	var static, security, oneBroker []string
	names := slices.Sorted(maps.Keys(overrides))
	for _, name := range names {
		k, listener, ok := BaseKey(name)
		switch {
		case !ok:
			continue
		case !k.Dynamic:
			if listener == "" { // listener-prefixed static keys are accepted and ignored, as in Kafka
				static = append(static, name)
			}
			continue
		case listener == "" && needsListener(k.Name):
			security = append(security, name)
		}
		if k.Update == PerBroker {
			oneBroker = append(oneBroker, name)
		}
	}
	refuse := func(why string, names []string) error {
		return &Invalid{Message: why + ": [" + strings.Join(names, ", ") + "]", Request: true}
	}
	switch {
	case len(static) > 0:
		return refuse("Cannot update these configs dynamically", static)
	case len(security) > 0:
		return refuse("These security configs can be dynamically updated only per-listener using the listener prefix", security)
	}
	for _, name := range names {
		k, _, ok := BaseKey(name)
		if !ok {
			continue
		}
		if _, f := k.parse(overrides[name]); f != nil && f.repeated == "" {
			return &Invalid{Message: f.kafka, Request: true}
		}
	}
	if !perBroker && len(oneBroker) > 0 {
		return refuse("Cannot update these configs at default cluster level, broker id must be specified", oneBroker)
	}
	return nil
}

// needsListener tells whether the key can be changed while running only for a single listener
// (DynamicBrokerConfig.DYNAMIC_SECURITY_CONFIGS).
func needsListener(key string) bool {
	switch key {
	case "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password",
		"ssl.keystore.key", "ssl.keystore.certificate.chain",
		"ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates":
		return true
	}
	return false
}

// ValidateBroker checks what would be the whole set of dynamic configs of a broker (perBroker) or of the cluster-wide
// defaults: key by key, and how they fit the rest. Any node can judge that; see ValidateOwn. The error is an *Invalid.
func (e *Effective) ValidateBroker(overrides map[string]string, perBroker bool) error {
	_, err := e.validate(overrides, perBroker)
	return err
}

func (e *Effective) validate(overrides map[string]string, perBroker bool) (next *Effective, err error) {
	if err := ValidateBroker(overrides, perBroker); err != nil {
		return nil, err
	}
	next = NewEffective(e.static, overrides, e.perBroker)
	if perBroker {
		next = NewEffective(e.static, e.clusterDefault, overrides)
	}
	for _, rule := range limitRules() {
		// Values that were bad before (another version stored them) must not block every later change.
		if reason := rule.check(next.resolved); reason != "" && rule.check(e.resolved) == "" {
			if rule.kafka != nil {
				reason = rule.kafka(next.resolved)
			}
			if !rule.plain {
				reason = "requirement failed: " + reason
			}
			return nil, &Invalid{Message: reason, Request: true}
		}
	}
	return next, nil
}

// ValidateOwn is ValidateBroker on the node that the configuration belongs to, for what depends on its present values,
// its log directories and its listeners (DynamicBrokerConfig.validate, which Kafka's brokers call before they ask the
// controller). The error is an *Invalid.
func (e *Effective) ValidateOwn(overrides map[string]string, perBroker bool) error {
	next, err := e.validate(overrides, perBroker)
	if err != nil {
		return err
	}
	if reason := checkCordoned(next.List(keyCordoned), e.logDirs()); reason != "" {
		return &Invalid{Message: "requirement failed: " + reason, Request: true}
	}
	if err := e.checkListening(next); err != nil {
		return err
	}
	if reason := e.checkThreads(next); reason != "" {
		return notReconfigured(reason)
	}
	if reason := e.checkCleanerThreads(next); reason != "" {
		return notReconfigured(reason)
	}
	if reason := e.checkListeners(next); reason != "" {
		return notReconfigured(reason)
	}
	return nil
}

// notReconfigured wraps the objection of one of Kafka's components as Kafka does.
func notReconfigured(reason string) error {
	return &Invalid{Message: "Invalid value org.apache.kafka.common.config.ConfigException: " + reason + " for configuration Invalid dynamic configuration", Request: true}
}

const keyCordoned = "cordoned.log.dirs"

// logDirs are the configured log directories.
func (r resolved) logDirs() []string {
	if dirs := r.List("log.dirs"); len(dirs) > 0 {
		return dirs
	}
	return r.List("log.dir")
}

// checkCordoned compares cordoned.log.dirs with the log directories; the texts are Kafka's.
func checkCordoned(cordoned, dirs []string) string {
	if len(cordoned) > 1 && slices.Contains(cordoned, "*") {
		return "When cordoned.log.dirs is set to *, it must not contain other values"
	}
	missing := slices.DeleteFunc(slices.Clone(cordoned), func(d string) bool { return d == "*" || slices.Contains(dirs, d) })
	if len(missing) > 0 {
		return "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : " + strings.Join(missing, ", ")
	}
	return ""
}

// checkThreads refuses to change a thread count by more than a factor of two at once, as Kafka does.
func (e *Effective) checkThreads(next *Effective) string {
	for _, key := range []string{
		"num.network.threads", "num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads",
	} {
		was, want := e.Int(key), next.Int(key)
		var how string
		switch {
		case want > 2*was:
			how = fmt.Sprintf("value should not be greater than double the current value %d", was)
		case want < was/2:
			how = fmt.Sprintf("value should be at least half the current value %d", was)
		default:
			continue
		}
		return fmt.Sprintf("Dynamic thread count update validation failed for %s=%d, %s", key, want, how)
	}
	return ""
}

// checkCleanerThreads is the same for log.cleaner.threads, in the words of Kafka's LogCleaner. None at all is refused;
// Kafka, which divides by the number before it looks at it, says "/ by zero".
func (e *Effective) checkCleanerThreads(next *Effective) string {
	was, want := e.Int("log.cleaner.threads"), next.Int("log.cleaner.threads")
	switch {
	case want < 1:
		return "Log cleaner threads should be at least 1"
	case want < was/2:
		return fmt.Sprintf("Log cleaner threads cannot be reduced to less than half the current value %d", was)
	case want > 2*was:
		return fmt.Sprintf("Log cleaner threads cannot be increased to more than double the current value %d", was)
	}
	return ""
}

// checkListeners refuses limits of connections that would let nobody in (SocketServer's ListenerConnectionQuota).
func (e *Effective) checkListeners(next *Effective) string {
	for _, l := range next.List("listeners") {
		name, _, _ := strings.Cut(l, ":")
		was, want := e.Listener(name), next.Listener(name)
		switch {
		case want == was:
		case want.MaxConnections <= 0:
			return fmt.Sprintf("Invalid max.connections %d", want.MaxConnections)
		case want.MaxCreationRate <= 0:
			return fmt.Sprintf("Invalid max.connection.creation.rate %d", want.MaxCreationRate)
		}
	}
	return ""
}

// ListenerLimits are the limits on the connections of one listener.
type ListenerLimits struct {
	MaxConnections  int32 // listener.name.NAME.max.connections, or else max.connections
	MaxCreationRate int32 // listener.name.NAME.max.connection.creation.rate, or else max.connection.creation.rate; per second
}

// Listener returns the limits of the named listener.
func (e *Effective) Listener(name string) ListenerLimits {
	return ListenerLimits{MaxConnections: e.listenerInt(name, "max.connections"), MaxCreationRate: e.listenerInt(name, "max.connection.creation.rate")}
}

func (e *Effective) listenerInt(listener, key string) int32 {
	k, _ := Lookup(ScopeBroker, key)
	if raw, ok := e.current[listenerPrefix+strings.ToLower(listener)+"."+key]; ok {
		if v, f := k.parse(raw); f == nil {
			return int32(v.n)
		}
	}
	return e.Int(key)
}

// ValidateGroup checks a group's overrides (GroupConfig.validate). The error is an *Invalid.
func (e *Effective) ValidateGroup(overrides map[string]string) error {
	if err := unknownNames(ScopeGroup, overrides); err != nil {
		return err
	}
	values := map[string]value{}
	for _, k := range Keys(ScopeGroup) {
		raw, ok := overrides[k.Name]
		if !ok {
			raw = e.groupValue(k)
		}
		v, f := k.parse(raw)
		if f != nil && f.repeated == "" {
			return &Invalid{Message: f.kafka}
		}
		values[k.Name] = v
	}
	for _, k := range Keys(ScopeGroup) {
		if reason := e.groupBounds(k.Name, values[k.Name].n); reason != "" {
			return &Invalid{Message: reason}
		}
	}
	for _, kind := range []string{"consumer", "share", "streams"} {
		session, heartbeat := kind+".session.timeout.ms", kind+".heartbeat.interval.ms"
		if values[session].n <= values[heartbeat].n {
			return &Invalid{Message: session + " must be greater than " + heartbeat}
		}
	}
	return nil
}

// groupBounds compares a group key with the minimum and maximum that the broker sets for it.
func (e *Effective) groupBounds(name string, n int64) string {
	kind, what, _ := strings.Cut(name, ".")
	low, high := "group."+kind+".min."+what, "group."+kind+".max."+what
	if what == "num.standby.replicas" {
		high = "group.streams.max.standby.replicas"
	}
	if _, ok := Lookup(ScopeBroker, low); ok && n < e.Long(low) {
		return name + " must be greater than or equal to " + low
	}
	if _, ok := Lookup(ScopeBroker, high); ok && n > e.Long(high) {
		return name + " must be less than or equal to " + high
	}
	return ""
}

func (e *Effective) groupValue(k *Key) string {
	for _, s := range k.Synonyms {
		if v, ok := e.Value(s); ok {
			return v
		}
	}
	return *k.Default
}

// AlterList computes the value that an APPEND or SUBTRACT of IncrementalAlterConfigs stores: current (nil: not set, the
// built-in default counts) with or without the given items. The result is not checked yet. The error is an *Invalid.
func AlterList(scope Scope, name string, current *string, items string, subtract bool) (string, error) {
	k, ok := Lookup(scope, name)
	if !ok && scope == ScopeBroker {
		return "", &Invalid{Message: "Unknown config name: " + name}
	}
	if !ok || k.Type != TypeList {
		op := "append"
		if subtract {
			op = "subtract"
		}
		if scope == ScopeBroker {
			return "", &Invalid{Message: fmt.Sprintf("Config value %s is not allowed for config key: %s", op, name)}
		}
		op = strings.ToUpper(op)
		return "", &Invalid{Message: fmt.Sprintf("Can't %s to key %s because its type is not LIST.", op, name)}
	}
	if current == nil {
		current = k.Default
	}
	was := ""
	if current != nil {
		was = *current
	}
	if subtract {
		return SubtractList(was, items), nil
	}
	return AppendList(was, items), nil
}

// AppendList returns the list current with those items of add at its end that it does not hold yet.
func AppendList(current, add string) string {
	items := splitList(current)
	for _, a := range splitList(add) {
		if !slices.Contains(items, a) {
			items = append(items, a)
		}
	}
	return strings.Join(items, ",")
}

// SubtractList returns the list current without the items of remove. Of an item that current holds several times each
// mention takes one away, as in Kafka.
func SubtractList(current, remove string) string {
	items := splitList(current)
	for _, gone := range splitList(remove) {
		if i := slices.Index(items, gone); i >= 0 {
			items = slices.Delete(items, i, i+1)
		}
	}
	return strings.Join(items, ",")
}
