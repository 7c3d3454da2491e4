package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Listener is one endpoint that the node opens or advertises.
type Listener struct {
	Name     string // in capitals
	Host     string // without brackets; empty: every local address
	Port     int    // 0: any free port
	Protocol string // PLAINTEXT; the others are refused for now
}

// String writes the listener as in server.properties.
func (l Listener) String() string { return l.Name + "://" + HostPort{l.Host, l.Port}.String() }

// HostPort is an address without a name.
type HostPort struct {
	Host string // without brackets
	Port int
}

// String puts brackets around an IPv6 address.
func (a HostPort) String() string {
	host := a.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(a.Port)
}

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID int32
	HostPort
}

// parseListeners reads the entries of listeners or advertised.listeners. The messages are Kafka's.
func parseListeners(entries []string, protocols map[string]string, advertised bool) ([]Listener, error) {
	shown := "[" + strings.Join(entries, ", ") + "]"
	fail := func(hint, format string, args ...any) error {
		return &hinted{fmt.Sprintf("Error creating broker listeners from '%s': %s", shown, fmt.Sprintf(format, args...)), hint}
	}
	form := regexp.MustCompile(`^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)$`)
	var out []Listener
	for _, e := range entries {
		m := form.FindStringSubmatch(e)
		if m == nil {
			return nil, fail("write NAME://host:port, where host may be empty", "Unable to parse %s to a broker endpoint", e)
		}
		l := Listener{Name: strings.ToUpper(m[1]), Host: m[2]}
		port, err := strconv.ParseUint(m[3], 10, 16)
		if err != nil {
			return nil, fail("", "the port of %s is above 65535", e)
		}
		l.Port = int(port)
		if l.Protocol = protocols[l.Name]; l.Protocol == "" {
			return nil, fail("add "+l.Name+":PLAINTEXT to listener.security.protocol.map", "No security protocol defined for listener %s", l.Name)
		}
		for _, other := range out {
			if other.Name == l.Name {
				return nil, fail("", "Each listener must have a different name, listeners: %s", shown)
			}
			if !advertised && other.Port == l.Port && l.Port != 0 && !ipv4AndIPv6(other.Host, l.Host) {
				if isIP(other.Host) && isIP(l.Host) {
					return nil, fail("", "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, listeners: %s, port: %d", shown, l.Port)
				}
				return nil, fail("", "Each listener must have a different port, listeners: %s", shown)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// hinted is what Kafka says, and what it could say on top.
type hinted struct{ text, hint string }

func (h *hinted) Error() string {
	if h.hint == "" {
		return h.text
	}
	return h.text + "; " + h.hint
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// ipv4AndIPv6 tells whether one host is an IPv4 and the other an IPv6 address: only then may they share a port.
func ipv4AndIPv6(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Is4() != y.Is4()
}

// wildcard tells whether the host is the meta address that no client can connect to. Kafka lets [::] pass, and so do we.
func wildcard(host string) bool { return host == "0.0.0.0" }

// parseProtocolMap reads listener.security.protocol.map. With the key not set, each controller listener that the
// default map does not name speaks PLAINTEXT.
func parseProtocolMap(s *Static) (map[string]string, error) {
	const key = "listener.security.protocol.map"
	m := map[string]string{}
	for _, e := range splitList(s.String(key)) {
		name, protocol, ok := strings.Cut(e, ":")
		name, protocol = strings.ToUpper(strings.TrimSpace(name)), strings.TrimSpace(protocol)
		if !ok || name == "" {
			return nil, s.errorAt(key, fmt.Sprintf("Error parsing configuration property '%s': %q is not of the form LISTENER:PROTOCOL", key, e))
		}
		switch protocol {
		case "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL":
		default:
			return nil, s.errorAt(key, fmt.Sprintf("Invalid security protocol `%s` defined in %s", protocol, key))
		}
		m[name] = protocol
	}
	if _, set := s.Raw(key); !set && !s.secured() {
		for _, c := range s.List("controller.listener.names") {
			if c = strings.ToUpper(c); m[c] == "" {
				m[c] = "PLAINTEXT"
			}
		}
	}
	return m, nil
}

// secured tells whether a listener is named after a protocol other than PLAINTEXT: then Kafka demands that the
// controller listeners are mapped explicitly.
func (s *Static) secured() bool {
	for _, l := range s.List("listeners") {
		switch name, _, _ := strings.Cut(strings.ToUpper(l), ":"); name {
		case "SSL", "SASL_PLAINTEXT", "SASL_SSL":
			return true
		}
	}
	return false
}

// parseVoters reads the entries of controller.quorum.voters; the messages are Kafka's.
func parseVoters(entries []string) ([]Voter, error) {
	const form = "for the configuration controller.quorum.voters. Each entry should be in the form `{id}@{host}:{port}`."
	var out []Voter
	for _, e := range entries {
		idText, address, ok := strings.Cut(e, "@")
		if !ok || strings.Contains(address, "@") {
			return nil, fmt.Errorf("Invalid configuration value for controller.quorum.voters. Each entry should be in the form `{id}@{host}:{port}`.")
		}
		id, err := strconv.ParseInt(idText, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("Failed to parse voter ID as an integer from %s", idText)
		}
		a, ok := parseHostPort(address)
		if !ok {
			return nil, fmt.Errorf("Failed to parse host name from entry %s %s", e, form)
		}
		if wildcard(a.Host) && a.Port != 0 {
			return nil, fmt.Errorf("Host string (%s) is not routeable", a.Host)
		}
		for _, v := range out {
			if v.ID == int32(id) {
				return nil, fmt.Errorf("controller.quorum.voters names voter %d twice", id)
			}
		}
		out = append(out, Voter{ID: int32(id), HostPort: a})
	}
	return out, nil
}

// parseBootstrap reads the entries of controller.quorum.bootstrap.servers; the message is Kafka's.
func parseBootstrap(entries []string) ([]HostPort, error) {
	var out []HostPort
	for _, e := range entries {
		a, ok := parseHostPort(e)
		if !ok {
			return nil, fmt.Errorf(`Failed to parse host name from %s for the configuration controller.quorum.bootstrap.servers. Each entry should be in the form "{host}:{port}"`, e)
		}
		out = append(out, a)
	}
	return out, nil
}

// parseHostPort reads host:port and [ipv6]:port. The host may be an unbracketed IPv6 address, as in Kafka.
func parseHostPort(s string) (HostPort, bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 1 {
		return HostPort{}, false
	}
	host := s[:i]
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok {
			return HostPort{}, false
		}
	}
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || host == "" || strings.ContainsAny(host, "[]@/ ") {
		return HostPort{}, false
	}
	return HostPort{Host: host, Port: int(port)}, true
}
