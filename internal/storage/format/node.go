package format

import "weir/internal/config"

// Choice is how the caller wants a cluster with dynamic voters to begin: at most one field is set.
type Choice struct {
	Standalone bool                // --standalone
	None       bool                // --no-initial-controllers
	Initial    []InitialController // --initial-controllers
}

// QuorumFor checks a choice against the configuration of the node, with the words of Kafka, and says what it means.
func QuorumFor(n *config.Node, c Choice) (Quorum, error) {
	q := Quorum{Static: len(n.QuorumVoters) > 0}
	if len(n.ControllerListeners) > 0 {
		q.Listener = n.ControllerListeners[0]
	}
	switch {
	case q.Static && (c.Standalone || len(c.Initial) > 0):
		return q, refuse("You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify controller.quorum.bootstrap.servers instead.")
	case c.Standalone && !n.Controller:
		return q, refuse("You can only use --standalone on a controller.")
	case !q.Static && n.Controller && !c.Standalone && !c.None && len(c.Initial) == 0:
		return q, refuse("Because controller.quorum.voters is not set on this controller, you must specify one of the following: --standalone, --initial-controllers, or --no-initial-controllers.")
	}
	q.Dynamic = !q.Static && (c.Standalone || c.None || len(c.Initial) > 0)
	q.Initial = c.Initial
	if c.Standalone {
		if len(n.ControllerAddresses) == 0 {
			return q, refuse("No controller listener has an address that other nodes can use.")
		}
		a := n.ControllerAddresses[0]
		q.Listener, q.Standalone = a.Name, &Address{Host: a.Host, Port: uint16(a.Port)}
		if a.Host == "" {
			q.Standalone.Host = "localhost"
		}
	}
	return q, nil
}
