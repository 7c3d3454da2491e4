package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/controller/placement"
	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

const (
	metadataTopic   = "__cluster_metadata"
	maxTopicNameLen = 249
)

// checkTopicName returns the reason why a name is not valid, "" when it is (Kafka's Topic.validate).
func checkTopicName(name string) string {
	switch {
	case name == "":
		return "Topic name is invalid: the empty string is not allowed"
	case name == "." || name == "..":
		return "Topic name is invalid: '" + name + "' is not allowed"
	case len(name) > maxTopicNameLen:
		return fmt.Sprintf("Topic name is invalid: the length of '%s' is longer than the max allowed length %d", name, maxTopicNameLen)
	}
	for _, r := range name {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
		if !ok {
			return "Topic name is invalid: '" + name + "' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
		}
	}
	return ""
}

// collision returns a topic of the image whose name differs only in '.' against '_', which metrics could not tell apart.
func collision(img *image.Image, name string) (string, bool) {
	if !strings.ContainsAny(name, "._") {
		return "", false
	}
	same := strings.ReplaceAll(name, ".", "_")
	start, _, _ := strings.Cut(same, "_") // everything that collides begins with what stands before the first of them
	for t := range img.TopicsFrom(start) {
		if !strings.HasPrefix(t.Name, start) {
			break
		}
		if t.Name != name && strings.ReplaceAll(t.Name, ".", "_") == same {
			return t.Name, true
		}
	}
	return "", false
}

// CreateTopics creates topics, each or an error for it. The order of the answer is that of the request. With ValidateOnly nothing is
// written, and the answer says what would be.
func (c *Core) CreateTopics(s Step, req *kmsg.CreateTopicsRequest) Result {
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.Version = req.Version
	if err := c.checkTotalPartitions(req); err != nil {
		for i := range req.Topics {
			resp.Topics = append(resp.Topics, refusedTopic(req.Topics[i].Topic, err))
		}
		return Result{Response: resp, Err: err}
	}
	count := map[string]int{}
	for i := range req.Topics {
		count[req.Topics[i].Topic]++
	}
	d := image.NewDelta(s.Image)
	var recs []records.Versioned
	for i := range req.Topics {
		rt := &req.Topics[i]
		if n := count[rt.Topic]; n != 1 {
			if n > 1 {
				resp.Topics = append(resp.Topics, refusedTopic(rt.Topic, refuse(kerr.InvalidRequest, "Duplicate topic name.")))
				count[rt.Topic] = 0
			}
			continue
		}
		var created []records.Versioned
		var answer kmsg.CreateTopicsResponseTopic
		var err *Error
		// As in Kafka, names are compared with topics that exist, not with others of the same request.
		if other, ok := collision(s.Image, rt.Topic); ok {
			err = refuse(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", rt.Topic, other)
		} else {
			created, answer, err = c.createTopic(s, d.Image(), rt)
		}
		if err == nil && len(recs)+len(created) > maxRecordsPerRequest {
			err = refuse(kerr.PolicyViolation, textTooManyRecords)
		}
		if err != nil {
			resp.Topics = append(resp.Topics, refusedTopic(rt.Topic, err))
			continue
		}
		recs = replay(d, recs, created)
		resp.Topics = append(resp.Topics, answer)
	}
	if req.ValidateOnly {
		recs = nil
	}
	return Result{Records: recs, Response: resp, Atomic: true}
}

func refusedTopic(name string, err *Error) kmsg.CreateTopicsResponseTopic {
	r := kmsg.NewCreateTopicsResponseTopic()
	r.Topic, r.ErrorCode, r.ErrorMessage = name, err.Code, err.text()
	r.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	return r
}

// checkTotalPartitions stops a request that would write more records than one batch of user operations may hold.
func (c *Core) checkTotalPartitions(req *kmsg.CreateTopicsRequest) *Error {
	total := int64(0)
	for i := range req.Topics {
		rt := &req.Topics[i]
		switch {
		case len(rt.ReplicaAssignment) > 0:
			total += int64(len(rt.ReplicaAssignment))
		case rt.NumPartitions == -1:
			total += int64(c.o.DefaultPartitions)
		case rt.NumPartitions > 0:
			total += int64(rt.NumPartitions)
		}
		if total > maxRecordsPerRequest {
			return refuse(kerr.PolicyViolation, "Excessively large number of partitions per request.")
		}
	}
	return nil
}

func (c *Core) createTopic(s Step, img *image.Image, rt *kmsg.CreateTopicsRequestTopic) ([]records.Versioned, kmsg.CreateTopicsResponseTopic, *Error) {
	var none kmsg.CreateTopicsResponseTopic
	if err := checkNewTopic(img, rt.Topic); err != nil {
		return nil, none, err
	}
	configs, configRecords, err := c.newTopicConfigs(img, rt)
	if err != nil {
		return nil, none, err
	}
	parts, err := c.newPartitions(s, img, rt)
	if err != nil {
		return nil, none, err
	}
	if err := c.policy(rt, parts, configs); err != nil {
		return nil, none, err
	}
	id := uuid.Random(s.Rand)
	topic := records.NewTopicRecord()
	topic.Name, topic.TopicID = rt.Topic, id
	recs := append([]records.Versioned{{Record: &topic}}, configRecords...)
	for i, p := range parts {
		recs = append(recs, p.Record(image.PartitionID{Topic: id, Partition: int32(i)}, img.Features()))
	}
	answer := kmsg.NewCreateTopicsResponseTopic()
	answer.Topic, answer.TopicID = rt.Topic, id
	answer.NumPartitions, answer.ReplicationFactor = int32(len(parts)), int16(len(parts[0].Replicas))
	answer.Configs = c.o.Config.DescribeTopic(img.Configs(image.ResourceBroker, nodeName(c.o.NodeID)), img.Configs(image.ResourceBroker, ""), configs)
	return recs, answer, nil
}

func checkNewTopic(img *image.Image, name string) *Error {
	if name == metadataTopic {
		return refuse(kerr.InvalidRequest, "Creation of internal topic %s is prohibited.", name)
	}
	if reason := checkTopicName(name); reason != "" {
		return refuse(kerr.InvalidTopicException, "%s", reason)
	}
	if _, ok := img.Topic(name); ok {
		return refuse(kerr.TopicAlreadyExists, "Topic '%s' already exists.", name)
	}
	return nil
}

// newTopicConfigs validates the configuration of a new topic and returns it with its records, by key.
func (c *Core) newTopicConfigs(img *image.Image, rt *kmsg.CreateTopicsRequestTopic) (map[string]string, []records.Versioned, *Error) {
	var nulls []string
	var ops []configOp
	for _, kv := range rt.Configs {
		if kv.Value == nil {
			nulls = append(nulls, kv.Name)
			continue
		}
		ops = append(ops, configOp{kv.Name, opSet, kv.Value})
	}
	if len(nulls) > 0 {
		return nil, nil, refuse(kerr.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(nulls, ","))
	}
	slices.SortStableFunc(ops, func(a, b configOp) int { return strings.Compare(a.key, b.key) })
	ops = slices.CompactFunc(ops, func(a, b configOp) bool { return a.key == b.key })
	res := image.Resource{Type: image.ResourceTopic, Name: rt.Topic}
	recs, err := c.alterResource(img, res, ops, nil)
	if err != nil {
		return nil, nil, err
	}
	recs = append(recs, clearELR(img, recs)...)
	configs := map[string]string{}
	for _, op := range ops {
		configs[op.key] = *op.value
	}
	return configs, recs, nil
}

func (c *Core) newPartitions(s Step, img *image.Image, rt *kmsg.CreateTopicsRequestTopic) ([]*image.Partition, *Error) {
	if len(rt.ReplicaAssignment) > 0 {
		return manualPartitions(img, rt)
	}
	switch {
	case rt.ReplicationFactor < -1 || rt.ReplicationFactor == 0:
		return nil, refuse(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case rt.NumPartitions < -1 || rt.NumPartitions == 0:
		return nil, refuse(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	n, factor := rt.NumPartitions, rt.ReplicationFactor
	if n == -1 {
		n = c.o.DefaultPartitions
	}
	if factor == -1 {
		factor = c.o.DefaultReplicationFactor
	}
	return placed(s, img, placement.Request{Partitions: int(n), ReplicationFactor: int(factor)})
}

// placed lets the placer choose and makes the partitions.
func placed(s Step, img *image.Image, req placement.Request) ([]*image.Partition, *Error) {
	assignments, err := placement.Place(req, candidates(img), s.Rand)
	if err != nil {
		var reason *placement.Error
		if !errors.As(err, &reason) {
			return nil, refuse(kerr.UnknownServerError, "%v", err)
		}
		return nil, refuse(kerr.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): %s", req.ReplicationFactor, reason.Reason)
	}
	out := make([]*image.Partition, 0, len(assignments))
	for _, replicas := range assignments {
		p := newPartition(img, replicas)
		if p == nil {
			return nil, refuse(kerr.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): All brokers are currently fenced or in controlled shutdown.", req.ReplicationFactor)
		}
		out = append(out, p)
	}
	return out, nil
}

// candidates lists the brokers that may take new replicas: all but those that are leaving just now and those with all directories
// cordoned. One that has left is fenced, and comes last.
func candidates(img *image.Image) []placement.Broker {
	var out []placement.Broker
	for b := range img.Brokers() {
		if b.InControlledShutdown && !b.Fenced || b.AllDirsCordoned() {
			continue
		}
		rack := ""
		if b.Rack != nil {
			rack = *b.Rack
		}
		out = append(out, placement.Broker{ID: b.ID, Rack: rack, Fenced: b.Fenced, Replicas: img.NumReplicasOn(b.ID)})
	}
	return out
}

// newPartition makes a partition whose ISR is the active replicas; nil when there is none.
func newPartition(img *image.Image, replicas []int32) *image.Partition {
	p := &image.Partition{Replicas: slices.Clone(replicas)}
	for _, b := range replicas {
		p.Directories = append(p.Directories, defaultDir(img, b))
		if active(img, b) {
			p.ISR = append(p.ISR, b)
		}
	}
	if len(p.ISR) == 0 {
		return nil
	}
	p.Leader = p.ISR[0]
	return p
}

func manualPartitions(img *image.Image, rt *kmsg.CreateTopicsRequestTopic) ([]*image.Partition, *Error) {
	if rt.ReplicationFactor != -1 {
		return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if rt.NumPartitions != -1 {
		return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	byID, factor := map[int32]*image.Partition{}, 0
	for _, a := range rt.ReplicaAssignment {
		if _, twice := byID[a.Partition]; twice {
			return nil, refuse(kerr.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		if err := checkAssignment(img, a.Replicas, factor); err != nil {
			return nil, err
		}
		factor = len(a.Replicas)
		p := newPartition(img, a.Replicas)
		if p == nil {
			return nil, refuse(kerr.InvalidReplicaAssignment, "All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", a.Partition)
		}
		byID[a.Partition] = p
	}
	var out []*image.Partition
	for i := range int32(len(byID)) {
		p, ok := byID[i]
		if !ok {
			return nil, refuse(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		out = append(out, p)
	}
	return out, nil
}

// checkAssignment checks the replicas that a client chose for one partition; factor 0 means that any number will do.
func checkAssignment(img *image.Image, replicas []int32, factor int) *Error {
	if len(replicas) == 0 {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for i, b := range sorted {
		if _, ok := img.Broker(b); !ok {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", b)
		}
		if i > 0 && sorted[i-1] == b {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", b)
		}
	}
	if factor != 0 && len(replicas) != factor {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).",
			len(replicas), factor)
	}
	return nil
}

func (c *Core) policy(rt *kmsg.CreateTopicsRequestTopic, parts []*image.Partition, configs map[string]string) *Error {
	if c.o.Policy == nil {
		return nil
	}
	n, factor := int32(len(parts)), int16(len(parts[0].Replicas))
	var manual map[int32][]int32
	if len(rt.ReplicaAssignment) > 0 {
		n, factor, manual = -1, -1, map[int32][]int32{}
		for i, p := range parts {
			manual[int32(i)] = slices.Clone(p.Replicas)
		}
	}
	if err := c.o.Policy.ValidateCreate(rt.Topic, n, factor, manual, maps.Clone(configs)); err != nil {
		return refuse(kerr.PolicyViolation, "%s", err.Error())
	}
	return nil
}

// DeleteTopics deletes topics by name or, from v6 on, by id. Whoever calls it has resolved what the client may see.
func (c *Core) DeleteTopics(s Step, req *kmsg.DeleteTopicsRequest) Result {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	resp.Version = req.Version
	wanted := req.Topics
	if req.Version < 6 {
		wanted = nil
		for _, name := range req.TopicNames {
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = &name
			wanted = append(wanted, t)
		}
	}
	if c.o.NoTopicDeletion {
		return deletionDisabled(resp, wanted)
	}
	names, ids := map[string]int{}, map[uuid.UUID]int{}
	for _, w := range wanted {
		if w.Topic != nil {
			names[*w.Topic]++
		}
		ids[w.TopicID]++
	}
	var recs []records.Versioned
	for _, w := range wanted {
		answer := kmsg.NewDeleteTopicsResponseTopic()
		answer.Topic, answer.TopicID = w.Topic, w.TopicID
		t, err := findForDelete(s.Image, w)
		switch id := uuid.UUID(w.TopicID); {
		case w.Topic != nil && names[*w.Topic] > 1:
			err = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		case !id.IsZero() && ids[id] > 1:
			err = refuse(kerr.InvalidRequest, "Duplicate topic id.")
		case err == nil && names[t.Name] > 0 && ids[t.ID] > 0: // nothing of it is done
			answer.Topic, answer.TopicID = &t.Name, t.ID
			err = refuse(kerr.InvalidRequest, "The provided topic name maps to an ID that was already supplied.")
		}
		if err != nil {
			answer.ErrorCode, answer.ErrorMessage = err.Code, err.text()
			if !answeredAlready(resp.Topics, answer) {
				resp.Topics = append(resp.Topics, answer)
			}
			continue
		}
		answer.Topic, answer.TopicID = &t.Name, t.ID
		resp.Topics = append(resp.Topics, answer)
		r := records.NewRemoveTopicRecord()
		r.TopicID = t.ID
		recs = append(recs, records.Versioned{Record: &r})
	}
	return Result{Records: recs, Response: resp, Atomic: true}
}

// deletionDisabled answers under delete.topic.enable=false, as ControllerApis.deleteTopics does: by versions that do not
// know the error with INVALID_REQUEST, and without texts.
func deletionDisabled(resp *kmsg.DeleteTopicsResponse, wanted []kmsg.DeleteTopicsRequestTopic) Result {
	err := refuse(kerr.TopicDeletionDisabled, "Topic deletion is disabled.")
	if resp.Version < 3 {
		err = refuse(kerr.InvalidRequest, "This version does not support topic deletion.")
	}
	for _, w := range wanted {
		answer := kmsg.NewDeleteTopicsResponseTopic()
		answer.Topic, answer.TopicID, answer.ErrorCode = w.Topic, w.TopicID, err.Code
		resp.Topics = append(resp.Topics, answer)
	}
	return Result{Response: resp, Err: err}
}

// answeredAlready reports whether an entry that the request repeats has its answer: one is enough.
func answeredAlready(topics []kmsg.DeleteTopicsResponseTopic, a kmsg.DeleteTopicsResponseTopic) bool {
	return slices.ContainsFunc(topics, func(b kmsg.DeleteTopicsResponseTopic) bool {
		return a.TopicID == b.TopicID && a.ErrorCode == b.ErrorCode && (a.Topic == nil) == (b.Topic == nil) && (a.Topic == nil || *a.Topic == *b.Topic)
	})
}

func findForDelete(img *image.Image, w kmsg.DeleteTopicsRequestTopic) (*image.Topic, *Error) {
	id := uuid.UUID(w.TopicID)
	switch {
	case w.Topic == nil && id.IsZero():
		return nil, refuse(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	case w.Topic != nil && !id.IsZero():
		return nil, refuse(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case w.Topic != nil:
		t, ok := img.Topic(*w.Topic)
		if !ok {
			return nil, refuse(kerr.UnknownTopicOrPartition, textUnknownTopic)
		}
		return t, nil
	}
	t, ok := img.TopicByID(id)
	if !ok {
		return nil, refuse(kerr.UnknownTopicID, textUnknownTopicID)
	}
	return t, nil
}
