package format

import (
	"fmt"
	"strconv"
	"strings"

	"weir/internal/kraft"
	"weir/internal/uuid"
)

// InitialController is one entry of --initial-controllers.
type InitialController struct {
	ID        int32
	Host      string // without brackets
	Port      uint16
	Directory uuid.UUID // of its metadata directory
}

// ParseInitialControllers reads the comma-separated list "0@example.com:8082:JEXY6aqzQY-32P5TStzaFg,…". The messages are
// Kafka's.
func ParseInitialControllers(text string) ([]InitialController, error) {
	var out []InitialController
	seen := map[int32]bool{}
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		c, err := parseController(entry)
		if err != nil {
			return nil, fmt.Errorf("%w: %q", err, entry)
		}
		if seen[c.ID] {
			return nil, refuse("Node id %d was specified more than once.", c.ID)
		}
		seen[c.ID] = true
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, refuse("No voters given.")
	}
	return out, nil
}

func parseController(s string) (c InitialController, err error) {
	id, rest, ok := strings.Cut(s, "@")
	if !ok {
		return c, refuse("No @ found in dynamic voter string.")
	}
	n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 32)
	switch {
	case err != nil:
		return c, refuse("Failed to parse node id in dynamic voter string.")
	case n < 0:
		return c, refuse("Invalid negative node id %d in dynamic voter string.", n)
	}
	if strings.HasPrefix(rest, "[") {
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return c, refuse("Hostname began with left bracket, but no right bracket was found.")
		}
		c.Host, rest = rest[1:end], rest[end+1:]
		if rest, ok = strings.CutPrefix(rest, ":"); !ok {
			return c, refuse("No colon following hostname could be found.")
		}
	} else if c.Host, rest, ok = strings.Cut(rest, ":"); !ok {
		return c, refuse("No colon following hostname could be found.")
	}
	port, dir, ok := strings.Cut(rest, ":")
	if !ok {
		return c, refuse("No colon following port could be found.")
	}
	p, err := strconv.ParseUint(strings.TrimSpace(port), 10, 16)
	if err != nil {
		return c, refuse("Failed to parse port in dynamic voter string.")
	}
	if c.Directory, err = uuid.Parse(strings.TrimSpace(dir)); err != nil {
		return c, refuse("Failed to parse directory ID in dynamic voter string.")
	}
	c.ID, c.Port = int32(n), uint16(p)
	return c, nil
}

// voterSet makes the quorum's first voters. listener is the first name in controller.listener.names.
func voterSet(cs []InitialController, listener string) (kraft.VoterSet, error) {
	var voters []kraft.Voter
	for _, c := range cs {
		voters = append(voters, kraft.Voter{
			Replica:    kraft.Replica{ID: c.ID, Dir: c.Directory},
			Endpoints:  []kraft.Endpoint{{Name: listener, Host: c.Host, Port: c.Port}},
			MinVersion: 0, MaxVersion: 1,
		})
	}
	return kraft.NewVoterSet(voters)
}
