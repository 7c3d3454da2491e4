package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Node is what a process needs to know of itself before it starts: the keys that cannot change while it runs and
// whose values must fit together.
type Node struct {
	NodeID              int32
	Broker, Controller  bool       // process.roles
	Listeners           []Listener // all that this process opens, controller listeners included, as written
	Advertised          []Listener // what brokers tell clients (an empty host: this machine's name); no controller listeners
	ControllerAddresses []Listener // what controllers tell other nodes: listeners named in controller.listener.names
	ControllerListeners []string   // controller.listener.names; a broker speaks to controllers as to the first
	InterBroker         string     // name of the listener that other brokers use
	LogDirs             []string
	MetadataDir         string // one of LogDirs or a directory of its own
	QuorumVoters        []Voter
	QuorumBootstrap     []HostPort
	Rack                *string
	MetricsListener     *HostPort // weir.metrics.listener; nil: none
}

// DataListeners returns the listeners that serve clients and brokers: all but the controller's.
func (n *Node) DataListeners() []Listener {
	return slices.DeleteFunc(slices.Clone(n.Listeners), func(l Listener) bool { return n.isController(l.Name) })
}

func (n *Node) isController(name string) bool { return slices.Contains(n.ControllerListeners, name) }

// Raw returns the text of a key as the file or an override gave it; false when neither did.
func (s *Static) Raw(key string) (string, bool) {
	set, ok := s.settings[key]
	return set.value, ok
}

// Names returns every key that the file or an override gave, known or not, sorted.
func (s *Static) Names() []string {
	names := make([]string, 0, len(s.settings))
	for k := range s.settings {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// errorAt makes the error for a key whose value does not fit the others.
func (s *Static) errorAt(key, reason string) error {
	set, ok := s.settings[key]
	if !ok {
		return &Error{Reason: reason}
	}
	k, _, known := BaseKey(key)
	if known && k.Sensitive {
		set.value = "[hidden]"
	}
	return &Error{File: set.file, Line: set.line, Key: set.key, Value: set.value, Reason: reason}
}

// Node checks how the values fit together, in the order and largely with the words of Kafka's
// KafkaConfig.validateValues, and returns the typed view. The error is always an *Error.
func (s *Static) Node() (*Node, error) {
	n := &Node{}
	for _, step := range []func(*Node) error{
		s.nodeIdentity, s.nodeQuorum, s.nodeListeners, s.nodeDirs, s.nodeMisc, s.nodeRoleRules, s.nodeInterBroker,
	} {
		if err := step(n); err != nil {
			return nil, err
		}
	}
	if err := s.checkLimits(); err != nil {
		return nil, err
	}
	return n, nil
}

func (s *Static) nodeIdentity(n *Node) error {
	for _, key := range []string{"process.roles", "node.id", "controller.listener.names"} {
		if _, ok := s.Raw(key); !ok {
			k, _ := Lookup(ScopeBroker, key)
			_, example := k.allowed()
			return &Error{Reason: fmt.Sprintf("Missing required configuration %q which has no default value; example: %s=%s", key, key, example)}
		}
	}
	n.NodeID = s.Int("node.id")
	if n.NodeID < 0 {
		return s.errorAt("node.id", "Value must be at least 0")
	}
	if s.Int("broker.id") != n.NodeID {
		return s.errorAt("broker.id", "You must set `node.id` to the same value as `broker.id`.")
	}
	roles := s.List("process.roles")
	n.Broker, n.Controller = slices.Contains(roles, "broker"), slices.Contains(roles, "controller")
	for _, c := range s.List("controller.listener.names") {
		n.ControllerListeners = append(n.ControllerListeners, strings.ToUpper(c))
	}
	if rack := s.String("broker.rack"); rack != "" {
		n.Rack = &rack
	}
	return nil
}

func (s *Static) nodeQuorum(n *Node) error {
	const votersKey, bootstrapKey = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
	var err error
	if n.QuorumVoters, err = parseVoters(s.List(votersKey)); err != nil {
		return s.errorAt(votersKey, err.Error())
	}
	if n.QuorumBootstrap, err = parseBootstrap(s.List(bootstrapKey)); err != nil {
		return s.errorAt(bootstrapKey, err.Error())
	}
	if len(n.QuorumVoters) == 0 && len(n.QuorumBootstrap) == 0 {
		return &Error{Reason: "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap controllers or controller.quorum.voters must contain a parseable set of controllers."}
	}
	ids := make([]string, 0, len(n.QuorumVoters))
	voter := false
	for _, v := range n.QuorumVoters {
		ids = append(ids, fmt.Sprint(v.ID))
		voter = voter || v.ID == n.NodeID
	}
	switch set := strings.Join(ids, ", "); {
	case len(n.QuorumVoters) == 0:
	case n.Controller && !voter:
		return s.errorAt(votersKey, fmt.Sprintf("If process.roles contains the 'controller' role, the node id %d must be included in the set of voters controller.quorum.voters=Set(%s)", n.NodeID, set))
	case !n.Controller && voter:
		return s.errorAt(votersKey, fmt.Sprintf("If process.roles contains just the 'broker' role, the node id %d must not be included in the set of voters controller.quorum.voters=Set(%s)", n.NodeID, set))
	}
	if s.Bool("controller.quorum.auto.join.enable") && !n.Controller {
		return s.errorAt("controller.quorum.auto.join.enable", "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.")
	}
	return nil
}

func (s *Static) nodeListeners(n *Node) error {
	protocols, err := parseProtocolMap(s)
	if err != nil {
		return err
	}
	for _, c := range n.ControllerListeners {
		if protocols[c] == "" {
			return s.errorAt("controller.listener.names", fmt.Sprintf("Controller listener with name %s defined in controller.listener.names not found in listener.security.protocol.map  (an explicit security mapping for each controller listener is required if listener.security.protocol.map is non-empty, or if there are security protocols other than PLAINTEXT in use)", c))
		}
	}
	if n.Listeners, err = parseListeners(s.List("listeners"), protocols, false); err != nil {
		return s.badListeners("listeners", err)
	}
	from := "listeners"
	advertised := n.Listeners
	if written := s.List("advertised.listeners"); len(written) > 0 {
		from = "advertised.listeners"
		if advertised, err = parseListeners(written, protocols, true); err != nil {
			return s.badListeners(from, err)
		}
	}
	for _, l := range advertised {
		switch {
		case n.isController(l.Name):
			if n.Controller {
				n.ControllerAddresses = append(n.ControllerAddresses, l)
			}
		case n.Broker:
			if wildcard(l.Host) {
				return s.errorAt(from, fmt.Sprintf("advertised.listeners cannot use the nonroutable meta-address %s. Use a routable IP address.", l.Host))
			}
			n.Advertised = append(n.Advertised, l)
		}
	}
	for _, l := range n.Listeners {
		known := slices.ContainsFunc(n.ControllerAddresses, func(a Listener) bool { return a.Name == l.Name })
		if n.Controller && n.isController(l.Name) && !known {
			n.ControllerAddresses = append(n.ControllerAddresses, l)
		}
		if err := s.onlyPlaintext(l); err != nil {
			return err
		}
	}
	return nil
}

func (s *Static) badListeners(key string, err error) error {
	out := s.errorAt(key, err.Error())
	if e, ok := AsError(out); ok {
		e.cause = err
	}
	return out
}

func (s *Static) onlyPlaintext(l Listener) error {
	if l.Protocol == "PLAINTEXT" {
		return nil
	}
	return s.errorAt("listeners", fmt.Sprintf("listener %s uses the security protocol %s, which Weir does not serve yet; map it to PLAINTEXT in listener.security.protocol.map", l.Name, l.Protocol))
}

func (s *Static) nodeDirs(n *Node) error {
	from := "log.dirs"
	n.LogDirs = s.List(from)
	if len(n.LogDirs) == 0 {
		from = "log.dir"
		n.LogDirs = s.List(from)
	}
	for _, d := range n.LogDirs {
		if strings.ContainsRune(d, 0) {
			return s.errorAt(from, "a directory's name holds a zero byte")
		}
	}
	if n.MetadataDir = s.String("metadata.log.dir"); n.MetadataDir == "" {
		n.MetadataDir = n.LogDirs[0]
	}
	if reason := checkCordoned(s.List(keyCordoned), n.LogDirs); reason != "" {
		return s.errorAt(keyCordoned, reason)
	}
	return nil
}

func (s *Static) nodeMisc(n *Node) error {
	for _, e := range s.List("early.start.listeners") {
		e = strings.ToUpper(e)
		if !n.isController(e) && !slices.ContainsFunc(n.Listeners, func(l Listener) bool { return l.Name == e }) {
			return s.errorAt("early.start.listeners", fmt.Sprintf("early.start.listeners contains listener %s, but this is not contained in listeners or controller.listener.names", e))
		}
	}
	const key = "weir.metrics.listener"
	if text := s.String(key); text != "" {
		rest, everywhere := strings.CutPrefix(text, ":")
		if everywhere {
			text = "localhost:" + rest
		}
		a, ok := parseHostPort(text)
		if everywhere {
			a.Host = ""
		}
		if !ok {
			return s.errorAt(key, "not of the form host:port; example: "+key+"=127.0.0.1:9404")
		}
		n.MetricsListener = &a
	}
	return nil
}

// nodeRoleRules checks which listeners each role may have.
func (s *Static) nodeRoleRules(n *Node) error {
	controllers := 0
	for _, l := range n.Listeners {
		if n.isController(l.Name) {
			controllers++
		}
	}
	switch {
	case n.Broker && !n.Controller:
		if controllers > 0 {
			return s.errorAt("controller.listener.names", "controller.listener.names must not contain a value appearing in the 'listeners' configuration when running KRaft with just the broker role")
		}
	case !n.Broker:
		if controllers < len(n.Listeners) {
			return s.errorAt("listeners", "The listeners config must only contain KRaft controller listeners from controller.listener.names when process.roles=controller")
		}
		if controllers == 0 {
			return noControllerListener(s)
		}
	case controllers == 0:
		return noControllerListener(s)
	}
	if n.Broker && len(n.Advertised) == 0 {
		return &Error{Reason: "There must be at least one broker advertised listener. Perhaps all listeners appear in controller.listener.names?"}
	}
	return nil
}

func noControllerListener(s *Static) error {
	return s.errorAt("controller.listener.names", "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when running the KRaft controller role")
}

func (s *Static) nodeInterBroker(n *Node) error {
	const key, protocolKey = "inter.broker.listener.name", "security.inter.broker.protocol"
	name, named := s.Raw(key)
	_, byProtocol := s.Raw(protocolKey)
	if named && byProtocol {
		return s.errorAt(key, "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
	}
	n.InterBroker = strings.ToUpper(strings.TrimSpace(name))
	if !named {
		n.InterBroker = s.String(protocolKey)
	}
	protocols, err := parseProtocolMap(s)
	if err != nil {
		return err
	}
	if named && protocols[n.InterBroker] == "" {
		return s.errorAt(key, fmt.Sprintf("Listener with name %s defined in inter.broker.listener.name not found in listener.security.protocol.map.", n.InterBroker))
	}
	if !n.Broker {
		return nil
	}
	if n.isController(n.InterBroker) {
		return s.errorAt(key, "inter.broker.listener.name must not be a listener name defined in controller.listener.names: "+n.InterBroker)
	}
	names := make([]string, 0, len(n.Advertised))
	for _, l := range n.Advertised {
		names = append(names, l.Name)
	}
	if !slices.Contains(names, n.InterBroker) {
		return s.errorAt(key, "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based on currently configured listeners are "+strings.Join(names, ","))
	}
	for _, l := range n.Advertised {
		if !slices.ContainsFunc(n.Listeners, func(o Listener) bool { return o.Name == l.Name }) {
			return s.errorAt("advertised.listeners", fmt.Sprintf("advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found %s. The valid options based on the current configuration are %s", strings.Join(names, ","), listenerNames(n.Listeners)))
		}
	}
	return nil
}

func listenerNames(ls []Listener) string {
	names := make([]string, 0, len(ls))
	for _, l := range ls {
		names = append(names, l.Name)
	}
	return strings.Join(names, ",")
}

// AsError returns the *Error in err, if there is one.
func AsError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
