package controller

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/records"
)

// opKind is what an incremental change does to one key, numbered as in the protocol.
type opKind int8

const (
	opSet opKind = iota
	opDelete
	opAppend
	opSubtract
)

type configOp struct {
	key   string
	kind  opKind
	value *string
}

func nodeName(id int32) string { return strconv.Itoa(int(id)) }

// IncrementalAlterConfigs changes single keys of resources (KIP-339). Resources are checked one by one; what is valid is written.
func (c *Core) IncrementalAlterConfigs(s Step, req *kmsg.IncrementalAlterConfigsRequest) Result {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	resp.Version = req.Version
	named := make([]image.Resource, len(req.Resources))
	for i, rr := range req.Resources {
		named[i] = image.Resource{Type: int8(rr.ResourceType), Name: rr.ResourceName}
	}
	recs, refusals := c.alterEach(s, named, req.ValidateOnly, func(i int) ([]records.Versioned, *Error) {
		return c.incremental(s, named[i], req.Resources[i].Configs)
	})
	for i, rr := range req.Resources {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = rr.ResourceType, rr.ResourceName
		if err := refusals[i]; err != nil {
			out.ErrorCode, out.ErrorMessage = err.Code, err.text()
		}
		resp.Resources = append(resp.Resources, out)
	}
	return Result{Records: recs, Response: resp, Atomic: true}
}

// alterEach is the records of the resources that may be altered, and for each resource why it may not, or nil.
func (c *Core) alterEach(s Step, named []image.Resource, validateOnly bool, alter func(i int) ([]records.Versioned, *Error)) ([]records.Versioned, []*Error) {
	seen := map[image.Resource]int{}
	for _, res := range named {
		seen[res]++
	}
	var recs []records.Versioned
	refusals := make([]*Error, len(named))
	for i, res := range named {
		if seen[res] > 1 {
			refusals[i] = refuse(kerr.InvalidRequest, "Each resource must appear at most once.")
			continue
		}
		var changed []records.Versioned
		changed, refusals[i] = alter(i)
		recs = append(recs, changed...)
	}
	recs = append(recs, clearELR(s.Image, recs)...)
	if validateOnly {
		recs = nil
	}
	c.electSoon(s, recs)
	return recs, refusals
}

func (c *Core) incremental(s Step, res image.Resource, configs []kmsg.IncrementalAlterConfigsRequestResourceConfig) ([]records.Versioned, *Error) {
	var ops []configOp
	for _, kv := range configs {
		kind := opKind(kv.Op)
		if kind < opSet || kind > opSubtract {
			return nil, refuse(kerr.InvalidRequest, "Unknown operation %d for key %s", kv.Op, kv.Name)
		}
		if slices.ContainsFunc(ops, func(o configOp) bool { return o.key == kv.Name }) {
			return nil, refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		if kv.Value == nil && kind != opDelete {
			return nil, refuse(kerr.InvalidRequest, "Null value not supported for : %s", kv.Name)
		}
		ops = append(ops, configOp{kv.Name, kind, kv.Value})
	}
	if err := checkResourceName(res); err != nil {
		return nil, err
	}
	slices.SortFunc(ops, func(a, b configOp) int { return strings.Compare(a.key, b.key) })
	return c.alterKnown(s, res, ops, nil)
}

// AlterConfigs replaces all values of resources: keys that the request does not name go back to their defaults. Deprecated by
// IncrementalAlterConfigs, but old tools send it.
func (c *Core) AlterConfigs(s Step, req *kmsg.AlterConfigsRequest) Result {
	resp := kmsg.NewPtrAlterConfigsResponse()
	resp.Version = req.Version
	named := make([]image.Resource, len(req.Resources))
	for i, rr := range req.Resources {
		named[i] = image.Resource{Type: int8(rr.ResourceType), Name: rr.ResourceName}
	}
	recs, refusals := c.alterEach(s, named, req.ValidateOnly, func(i int) ([]records.Versioned, *Error) {
		return c.replaceAll(s, named[i], req.Resources[i].Configs)
	})
	for i, rr := range req.Resources {
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = rr.ResourceType, rr.ResourceName
		if err := refusals[i]; err != nil {
			out.ErrorCode, out.ErrorMessage = err.Code, err.text()
		}
		resp.Resources = append(resp.Resources, out)
	}
	return Result{Records: recs, Response: resp, Atomic: true}
}

func (c *Core) replaceAll(s Step, res image.Resource, configs []kmsg.AlterConfigsRequestResourceConfig) ([]records.Versioned, *Error) {
	var ops []configOp
	for _, kv := range configs {
		if slices.ContainsFunc(ops, func(o configOp) bool { return o.key == kv.Name }) {
			return nil, refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		if kv.Value == nil {
			return nil, refuse(kerr.InvalidRequest, "Null value not supported for : %s", kv.Name)
		}
		ops = append(ops, configOp{kv.Name, opSet, kv.Value})
	}
	if err := checkResourceName(res); err != nil {
		return nil, err
	}
	slices.SortFunc(ops, func(a, b configOp) int { return strings.Compare(a.key, b.key) })
	var dropped []string
	for key := range s.Image.Configs(res.Type, res.Name) {
		if !slices.ContainsFunc(ops, func(o configOp) bool { return o.key == key }) {
			dropped = append(dropped, key)
		}
	}
	slices.Sort(dropped)
	return c.alterKnown(s, res, ops, dropped)
}

// checkResourceName refuses resources that can hold no configuration.
func checkResourceName(res image.Resource) *Error {
	switch res.Type {
	case image.ResourceTopic:
		if res.Name == "" {
			return refuse(kerr.InvalidRequest, "Default topic resources are not allowed.")
		}
		if reason := checkTopicName(res.Name); reason != "" {
			return refuse(kerr.InvalidTopicException, "%s", reason)
		}
	case image.ResourceBroker:
		if res.Name == "" {
			return nil
		}
		if id, err := strconv.ParseInt(res.Name, 10, 32); err != nil || id < 0 {
			return refuse(kerr.InvalidRequest, "Unable to parse broker name as a base 10 number.")
		}
	case image.ResourceGroup:
		if res.Name == "" {
			return refuse(kerr.InvalidRequest, "Default group resources are not allowed.")
		}
	case image.ResourceClientMetrics:
		if res.Name == "" {
			return refuse(kerr.InvalidRequest, "Subscription name can't be empty")
		}
	default:
		return refuse(kerr.InvalidRequest, "Unknown resource type %d", res.Type)
	}
	return nil
}

// alterKnown is alterResource for a resource that must be there.
func (c *Core) alterKnown(s Step, res image.Resource, ops []configOp, dropped []string) ([]records.Versioned, *Error) {
	recs, err := c.alterResource(s.Image, res, ops, dropped)
	if err == nil {
		err = exists(s.Image, res, s.Quorum.Voters)
	}
	if err != nil {
		return nil, err
	}
	return recs, nil
}

// alterResource turns operations and dropped keys into records, after checking what the resource would look like.
func (c *Core) alterResource(img *image.Image, res image.Resource, ops []configOp, dropped []string) ([]records.Versioned, *Error) {
	current := img.Configs(res.Type, res.Name)
	after := map[string]string{}
	for k, v := range current {
		after[k] = v
	}
	var recs []records.Versioned
	for _, op := range ops {
		value, err := newValue(res, op, current)
		if err != nil {
			return nil, err
		}
		old, had := current[op.key]
		// A broker reads files named in its settings again when it sees a record, even if the value stayed (KAFKA-14136).
		if had == (value != nil) && (!had || old == *value) && res.Type != image.ResourceBroker {
			continue
		}
		if err := featuresForbid(img.Features(), res, op.key, value); err != nil {
			return nil, err
		}
		if value == nil {
			delete(after, op.key)
		} else {
			if len(*value) > math.MaxInt16 {
				return nil, refuse(kerr.InvalidConfig, "The configuration value cannot be added because it exceeds the maximum value size of %d bytes.", math.MaxInt16)
			}
			after[op.key] = *value
		}
		recs = append(recs, image.ConfigRecord(res, op.key, value))
	}
	for _, key := range dropped {
		if err := featuresForbid(img.Features(), res, key, nil); err != nil {
			return nil, err
		}
		delete(after, key)
		recs = append(recs, image.ConfigRecord(res, key, nil))
	}
	if err := c.o.Config.Validate(res, after); err != nil {
		return nil, invalidConfig(err)
	}
	return recs, nil
}

// newValue works out a key's value after an operation; nil means that it is removed.
func newValue(res image.Resource, op configOp, current map[string]string) (*string, *Error) {
	switch op.kind {
	case opSet:
		return op.value, nil
	case opDelete:
		return nil, nil
	}
	var old *string
	if v, ok := current[op.key]; ok {
		old = &v
	}
	joined, err := config.AlterList(scopeOf(res.Type), op.key, old, *op.value, op.kind == opSubtract)
	if err != nil {
		return nil, invalidConfig(err)
	}
	return &joined, nil
}

// scopeOf is the table of keys that a kind of resource has; 0 for kinds without one, where no key is found.
func scopeOf(resType int8) config.Scope {
	switch resType {
	case image.ResourceTopic:
		return config.ScopeTopic
	case image.ResourceBroker:
		return config.ScopeBroker
	case image.ResourceGroup:
		return config.ScopeGroup
	}
	return 0
}

// invalidConfig gives a refused value Kafka's code: INVALID_CONFIG, but INVALID_REQUEST for some broker settings.
func invalidConfig(err error) *Error {
	var invalid *config.Invalid
	if errors.As(err, &invalid) && invalid.Request {
		return refuse(kerr.InvalidRequest, "%s", err.Error())
	}
	return refuse(kerr.InvalidConfig, "%s", err.Error())
}

// featuresForbid refuses values that the finalized features do not allow. With eligible leader replicas min.insync.replicas decides who may lead, so that it must be the same everywhere: on the
// cluster and on topics, never on single brokers, and never absent from the cluster.
func featuresForbid(f image.Features, res image.Resource, key string, value *string) *Error {
	if key == keyCordoned && res.Type == image.ResourceBroker && value != nil && !f.CordonedDirs() {
		return refuse(kerr.InvalidConfig, "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0")
	}
	if key != keyMinISR || res.Type != image.ResourceBroker || !f.ELR() {
		return nil
	}
	if res.Name != "" {
		return refuse(kerr.InvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
	}
	if value == nil {
		return refuse(kerr.InvalidConfig, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
	}
	return nil
}

// electSoon has leaderless partitions looked at as soon as unclean elections may have been allowed: whoever does that waits for it
// (availability promise C5). Apache Kafka lets up to unclean.leader.election.interval.ms, five minutes, pass.
func (c *Core) electSoon(s Step, recs []records.Versioned) {
	for _, v := range recs {
		if r, ok := v.Record.(*records.ConfigRecord); ok && r.Name == keyUnclean && c.o.UncleanIntervalMs > 0 {
			c.soft.nextUncleanMs = s.NowMs
		}
	}
}

// clearELR follows each changed min.insync.replicas with the record that forgets the eligible leaders chosen under the old one.
func clearELR(img *image.Image, recs []records.Versioned) []records.Versioned {
	if !img.Features().ELR() {
		return nil
	}
	var out []records.Versioned
	for _, v := range recs {
		r, ok := v.Record.(*records.ConfigRecord)
		if !ok || r.Name != keyMinISR {
			continue
		}
		clear := records.NewClearElrRecord()
		if r.ResourceType == image.ResourceTopic {
			clear.TopicName = r.ResourceName
		}
		out = append(out, records.Versioned{Record: &clear})
	}
	return out
}

// exists refuses to configure what is not there.
func exists(img *image.Image, res image.Resource, quorum []int32) *Error {
	switch res.Type {
	case image.ResourceTopic:
		if _, ok := img.Topic(res.Name); !ok {
			return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", res.Name)
		}
	case image.ResourceBroker:
		if res.Name == "" {
			return nil
		}
		n, err := strconv.ParseInt(res.Name, 10, 32)
		if err != nil {
			return refuse(kerr.InvalidRequest, "Invalid broker name %s", res.Name)
		}
		_, broker := img.Broker(int32(n))
		_, controller := img.Controller(int32(n))
		if !broker && !controller && !slices.Contains(quorum, int32(n)) {
			return refuse(kerr.BrokerIDNotRegistered, "No node with id %d found.", n)
		}
	}
	return nil
}

// elrSafety returns the records that must come with switching eligible leader replicas on: the cluster-wide value is written down,
// values on single brokers are removed.
func (c *Core) elrSafety(img *image.Image) []records.Versioned {
	var recs []records.Versioned
	cluster := image.Resource{Type: image.ResourceBroker}
	if _, ok := img.Configs(cluster.Type, "")[keyMinISR]; !ok {
		recs = append(recs, image.ConfigRecord(cluster, keyMinISR, ptr(c.staticMinISR())))
	}
	for res, m := range img.ConfigResources() {
		if _, ok := m[keyMinISR]; ok && res.Type == image.ResourceBroker && res.Name != "" {
			recs = append(recs, image.ConfigRecord(res, keyMinISR, nil))
		}
	}
	return recs
}

func (c *Core) staticMinISR() string {
	if v := c.o.Config.Default(image.Resource{Type: image.ResourceBroker}, keyMinISR); v != "" {
		return v
	}
	return fmt.Sprint(1)
}
