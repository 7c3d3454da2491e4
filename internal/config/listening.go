package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Listening is where a node listens now: the keys listeners and listener.security.protocol.map may change while it runs.
// The error says which of them does not fit the others.
func (e *Effective) Listening() (*Node, error) { return e.listening() }

func (e *Effective) listening() (*Node, error) {
	s := &Static{resolved: e.resolved, settings: make(map[string]setting, len(e.current))}
	for key, v := range e.current {
		s.settings[key] = setting{key: key, value: v}
	}
	n := &Node{}
	for _, step := range []func(*Node) error{s.nodeIdentity, s.nodeListeners, s.nodeRoleRules, s.nodeInterBroker} {
		if err := step(n); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// checkListening refuses a change of the listeners as Kafka does: what a node could not start with (KafkaConfig), and what
// may not change while it runs (DynamicListenerConfig.validateReconfiguration). What is told to clients stays as it is
// registered, so its listeners must stay too; without advertised.listeners in the file these are all there are.
func (e *Effective) checkListening(next *Effective) error {
	if slices.Equal(e.List("listeners"), next.List("listeners")) && e.String(protocolMap) == next.String(protocolMap) {
		return nil
	}
	was, err := e.listening()
	if err != nil { // what is stored came from elsewhere: let it be changed
		was = &Node{}
	}
	want, err := next.listening()
	if err != nil {
		return notListening(err)
	}
	if missing := slices.ContainsFunc(was.Advertised, func(l Listener) bool { return find(want.Listeners, l.Name) == nil }); missing {
		return notReconfigured(fmt.Sprintf("Advertised listeners '%s' must be a subset of listeners '%s'", javaNames(was.Advertised), javaNames(want.Listeners)))
	}
	for _, l := range want.Listeners {
		if old := find(was.Listeners, l.Name); old != nil && old.Protocol != l.Protocol {
			return notReconfigured(fmt.Sprintf("Security protocol cannot be updated for existing listener %s", javaName(l.Name)))
		}
	}
	return nil
}

const protocolMap = "listener.security.protocol.map"

// notListening is the refusal of a configuration that no node could start with.
func notListening(err error) error {
	var h *hinted
	if errors.As(err, &h) {
		return &Invalid{Message: h.text, Request: true}
	}
	reason := err.Error()
	if e, ok := AsError(err); ok {
		reason = e.Reason
	}
	if !strings.HasPrefix(reason, "Invalid security protocol") && !strings.HasPrefix(reason, "Error parsing") {
		reason = "requirement failed: " + reason
	}
	return &Invalid{Message: reason, Request: true}
}

func find(ls []Listener, name string) *Listener {
	i := slices.IndexFunc(ls, func(l Listener) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return &ls[i]
}

func javaName(listener string) string { return "ListenerName(" + listener + ")" }

// javaNames writes a set of names as Kafka's messages do.
func javaNames(ls []Listener) string {
	var out []string
	for _, l := range ls {
		out = append(out, javaName(l.Name))
	}
	return "Set(" + strings.Join(out, ", ") + ")"
}
