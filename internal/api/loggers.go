package api

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/config"
	"weir/internal/loggers"
)

// Loggers are those of this node, whose levels clients describe and change as
// configurations of the type BROKER_LOGGER (KIP-412): they are of this process alone,
// and gone with it.
type Loggers interface {
	Levels() []loggers.Level
	Check(name string, level *string) error
	Change(name string, level *string) error
}

// describeLoggers lists the levels that count, as Kafka's ConfigHelper does.
func describeLoggers(l Loggers, self int32, node string) ([]config.Entry, error) {
	if node == "" {
		return nil, refuse(kerr.InvalidRequest, "Broker id must not be empty")
	}
	if id, err := strconv.ParseInt(node, 10, 32); err != nil {
		return nil, refuse(kerr.InvalidRequest, "Broker id must be an integer, but it is: "+node)
	} else if int32(id) != self {
		return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("Unexpected broker id, expected %d but received %s", self, node))
	}
	var out []config.Entry
	for _, level := range l.Levels() {
		out = append(out, config.Entry{Name: level.Name, Value: &level.Level, Source: int8(kmsg.ConfigSourceDynamicBrokerLoggerConfig)})
	}
	return out, nil
}

// changeLoggers carries out the changes of one resource, all or none, as Kafka's
// RuntimeLoggerManager does.
func (h *AlterConfigs) changeLoggers(req *kmsg.IncrementalAlterConfigsRequest, at int) error {
	x := &req.Resources[at]
	id, err := strconv.ParseInt(x.ResourceName, 10, 32)
	switch {
	case err != nil:
		return refuse(kerr.InvalidRequest, "Node id must be an integer, but it is: "+x.ResourceName)
	case int32(id) != h.NodeID:
		return refuse(kerr.InvalidRequest, fmt.Sprintf("Unexpected node id. Expected %d, but received %d", h.NodeID, id))
	}
	for i := range req.Resources {
		if o := &req.Resources[i]; i != at && o.ResourceType == x.ResourceType && o.ResourceName == x.ResourceName {
			return refuse(kerr.InvalidRequest, "Each resource must appear at most once.")
		}
	}
	for i, op := range x.Configs {
		if slices.ContainsFunc(x.Configs[:i], func(o kmsg.IncrementalAlterConfigsRequestResourceConfig) bool { return o.Name == op.Name }) {
			return refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		if op.Value == nil && op.Op != kmsg.IncrementalAlterConfigOpDelete {
			return refuse(kerr.InvalidRequest, "Null value not supported for : "+op.Name)
		}
	}
	change := h.Loggers.Check
	for range 2 { // nothing is changed unless everything can be
		for _, op := range x.Configs {
			if err := changeLogger(op, change); err != nil {
				return err
			}
		}
		if req.ValidateOnly {
			break
		}
		change = h.Loggers.Change
	}
	return nil
}

func changeLogger(op kmsg.IncrementalAlterConfigsRequestResourceConfig, change func(string, *string) error) error {
	var level *string
	switch op.Op {
	case kmsg.IncrementalAlterConfigOpSet:
		level = op.Value
	case kmsg.IncrementalAlterConfigOpDelete:
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
		return refuse(kerr.InvalidRequest, fmt.Sprintf("%s operation is not allowed for the BROKER_LOGGER resource", op.Op))
	default:
		return refuse(kerr.InvalidRequest, fmt.Sprintf("Unknown operation type %d is not allowed for the BROKER_LOGGER resource", op.Op))
	}
	err := change(op.Name, level)
	switch {
	case errors.Is(err, loggers.ErrInvalid):
		return refuse(kerr.InvalidConfig, err.Error())
	case errors.Is(err, loggers.ErrRoot):
		return refuse(kerr.InvalidRequest, err.Error())
	}
	return err
}
