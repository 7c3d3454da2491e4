package broker

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/loggers"
	"weir/internal/network"
)

// listen binds the listeners that serve a table; they do not accept yet.
func (b *Broker) listen(list []config.Listener, interBroker string, h network.Handler) (*network.Server, error) {
	o, err := networkOptions(b.eff(), list, h, b.log(loggers.Network), b.clock)
	if err != nil {
		return nil, err
	}
	o.InterBroker = interBroker
	s, err := network.New(o)
	if err != nil {
		return nil, err
	}
	return s, s.Listen()
}

// networkOptions reads the settings of connections and sockets.
func networkOptions(c *config.Effective, list []config.Listener, h network.Handler, logger *slog.Logger, clk clock.Clock) (network.Options, error) {
	o := network.Options{
		Handler: h, Logger: logger, Clock: clk, Limits: limits(c),
		IdleTimeout:     time.Duration(c.Long("connections.max.idle.ms")) * time.Millisecond,
		MaxRequestBytes: c.Int("socket.request.max.bytes"), QueuedMaxBytes: c.Long("queued.max.request.bytes"),
		SendBuffer: int(c.Int("socket.send.buffer.bytes")), ReceiveBuffer: int(c.Int("socket.receive.buffer.bytes")),
	}
	for _, l := range list {
		one, err := listenerOptions(c, l)
		if err != nil {
			return o, err
		}
		o.Listeners = append(o.Listeners, one)
	}
	return o, nil
}

func listenerOptions(c *config.Effective, l config.Listener) (network.Listener, error) {
	if l.Protocol != "PLAINTEXT" {
		return network.Listener{}, fmt.Errorf("listener %s uses %s: only PLAINTEXT is served", l.Name, l.Protocol)
	}
	own := c.Listener(l.Name)
	return network.Listener{
		Name: l.Name, Host: l.Host, Port: l.Port,
		MaxConnections: int(own.MaxConnections), MaxCreationRate: int(own.MaxCreationRate),
	}, nil
}

func limits(c *config.Effective) network.Limits {
	return network.Limits{
		MaxConnections: int(c.Int("max.connections")), MaxConnectionsPerIP: int(c.Int("max.connections.per.ip")),
		PerIPOverrides: c.ConnectionOverrides(), MaxCreationRate: int(c.Int("max.connection.creation.rate")),
	}
}

// reachable makes endpoints of what is told to others: a port that was left to
// the system is the one it chose, and an empty host is this machine's name.
func reachable(list []config.Listener, s *network.Server) []image.Endpoint {
	var out []image.Endpoint
	for _, l := range list {
		e := image.Endpoint{Name: l.Name, Host: strings.Trim(l.Host, "[]"), Port: uint16(l.Port)}
		if e.Host == "" {
			e.Host = hostName()
		}
		if a, ok := s.Addr(l.Name).(*net.TCPAddr); ok && l.Port == 0 {
			e.Port = uint16(a.Port)
		}
		out = append(out, e)
	}
	return out
}

func hostName() string {
	if h, err := os.Hostname(); err == nil {
		return h
	}
	return "localhost"
}

// controllerListeners are those of the process that serve controllers.
func controllerListeners(n *config.Node) []config.Listener {
	return slices.DeleteFunc(slices.Clone(n.Listeners), func(l config.Listener) bool {
		return !slices.Contains(n.ControllerListeners, l.Name)
	})
}
