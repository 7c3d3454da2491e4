package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// commands are the words of the scenario files.
var commands = map[string]func(e *env, t *testing.T, d *datadriven.TestData){
	// cluster [metadata=30] [no-elr] [unclean=MS] [raise=TOPIC]: a new log and an active controller
	"cluster": func(e *env, t *testing.T, d *datadriven.TestData) {
		a := args{t, d}
		n := newEnv(int16(a.int("metadata", 30)), !a.has("no-elr"))
		e.core, e.o, e.img, e.offset, e.nowMs, e.dice = n.core, n.o, n.img, n.offset, n.nowMs, n.dice
		if a.has("unclean") {
			e.o.UncleanIntervalMs = int64(a.int("unclean", 1000))
			e.core = New(e.o)
		}
		if a.has("raise") {
			e.o.Raise = []RaisedTopic{{Name: a.str("raise", ""), Target: 3}}
			e.core = New(e.o)
		}
		e.apply(e.core.Activate(e.step()))
	},
	// failover: another node becomes the active controller
	"failover": func(e *env, t *testing.T, d *datadriven.TestData) {
		e.core.Deactivate()
		e.apply(e.core.Activate(e.step()))
	},
	// raw begin-transaction | topic NAME: a record that an earlier controller wrote
	"raw": func(e *env, t *testing.T, d *datadriven.TestData) {
		begin := records.NewBeginTransactionRecord()
		topic := records.NewTopicRecord()
		topic.Name, topic.TopicID = "half-made", uuid.UUID{15: 9}
		e.apply(Result{Records: []records.Versioned{{Record: &begin}, {Record: &topic}}})
	},
	// register ID [incarnation=N] [dirs=N] [rack=R] [prev=EPOCH] [version=4] [cluster=c] [max=30]
	"register": func(e *env, t *testing.T, d *datadriven.TestData) {
		a := args{t, d}
		id := atoi(t, d, a.first())
		r := kmsg.NewPtrBrokerRegistrationRequest()
		r.Version, r.BrokerID, r.ClusterID = int16(a.int("version", 4)), int32(id), a.str("cluster", "c")
		r.IncarnationID = uuid.UUID{14: byte(id), 15: byte(a.int("incarnation", 1))}
		r.PreviousBrokerEpoch = int64(a.int("prev", -1))
		for n := range a.int("dirs", 1) {
			r.LogDirs = append(r.LogDirs, dir(id, a.int("from", 1)+n))
		}
		if a.has("rack") {
			r.Rack = ptr(a.str("rack", ""))
		}
		for _, f := range supported() {
			x := kmsg.NewBrokerRegistrationRequestFeature()
			x.Name, x.MinSupportedVersion, x.MaxSupportedVersion = f.Name, f.Min, f.Max
			if f.Name == image.FeatureMetadata {
				x.MaxSupportedVersion = int16(a.int("max", 30))
			}
			r.Features = append(r.Features, x)
		}
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port = "PLAINTEXT", fmt.Sprintf("host%d", id), 9092
		r.Listeners = append(r.Listeners, l)
		e.apply(e.core.RegisterBroker(e.step(), r))
	},
	// heartbeat ID… [fence] [shutdown] [behind] [offline=n] [cordoned=n]: several brokers say the same, one after another
	"heartbeat": func(e *env, t *testing.T, d *datadriven.TestData) {
		a := args{t, d}
		for _, id := range a.ints("brokers") {
			b, ok := e.img.Broker(id)
			if !ok {
				d.Fatalf(t, "broker %d is not registered", id)
			}
			r := kmsg.NewPtrBrokerHeartbeatRequest()
			r.Version, r.BrokerID, r.BrokerEpoch, r.CurrentMetadataOffset = 2, id, b.Epoch, e.offset-1
			if a.has("epoch") {
				r.BrokerEpoch = int64(a.int("epoch", 0))
			}
			if a.has("offset") {
				r.CurrentMetadataOffset = int64(a.int("offset", 0))
			}
			r.WantFence, r.WantShutdown = a.has("fence"), a.has("shutdown")
			for _, n := range a.ints("offline") {
				r.OfflineLogDirs = append(r.OfflineLogDirs, dir(int(id), int(n)))
			}
			for _, n := range a.ints("cordoned") {
				r.CordonedLogDirs = append(r.CordonedLogDirs, dir(int(id), int(n)))
			}
			res := e.core.Heartbeat(e.step(), r)
			e.apply(res)
			resp := res.Response.(*kmsg.BrokerHeartbeatResponse)
			fmt.Fprintf(&e.out, "broker %d: caughtUp=%v fenced=%v shutdown=%v\n", id, resp.IsCaughtUp, resp.IsFenced, resp.ShouldShutdown)
		}
	},
	// dead brokers=(ID…): their processes were seen to be gone
	"dead": func(e *env, t *testing.T, d *datadriven.TestData) {
		var refs []BrokerRef
		for _, id := range (args{t, d}).ints("brokers") {
			b, _ := e.img.Broker(id)
			refs = append(refs, BrokerRef{id, b.Epoch})
		}
		e.apply(e.core.FenceDead(e.step(), refs))
	},
	"unregister": func(e *env, t *testing.T, d *datadriven.TestData) {
		r := kmsg.NewPtrUnregisterBrokerRequest()
		r.BrokerID = int32(atoi(t, d, args{t, d}.first()))
		e.apply(e.core.UnregisterBroker(e.step(), r))
	},
	"register-controller": func(e *env, t *testing.T, d *datadriven.TestData) {
		r := kmsg.NewPtrControllerRegistrationRequest()
		r.ControllerID = int32(atoi(t, d, args{t, d}.first()))
		for _, f := range supported() {
			x := kmsg.NewControllerRegistrationRequestFeature()
			x.Name, x.MinSupportedVersion, x.MaxSupportedVersion = f.Name, f.Min, f.Max
			r.Features = append(r.Features, x)
		}
		e.apply(e.core.RegisterController(e.step(), r))
	},
	// wait MS: time passes, with the ticks that are due
	"wait": func(e *env, t *testing.T, d *datadriven.TestData) {
		end := e.nowMs + int64(atoi(t, d, args{t, d}.first()))
		for next := e.core.NextTick(); next <= end; next = e.core.NextTick() {
			e.nowMs = max(next, e.nowMs)
			res := e.core.Tick(e.step())
			for _, n := range res.Notes {
				fmt.Fprintf(&e.out, "-- %s\n", n)
			}
			e.apply(res)
		}
		e.nowMs = end
	},
	"create":     createCommand,
	"partitions": partitionsCommand,
	// delete NAME…
	"delete": func(e *env, t *testing.T, d *datadriven.TestData) {
		r := kmsg.NewPtrDeleteTopicsRequest()
		r.Version = 6
		for _, x := range d.CmdArgs {
			rt := kmsg.NewDeleteTopicsRequestTopic()
			rt.Topic = ptr(x.Key)
			r.Topics = append(r.Topics, rt)
		}
		res := e.core.DeleteTopics(e.step(), r)
		e.apply(res)
		for _, x := range res.Response.(*kmsg.DeleteTopicsResponse).Topics {
			e.answer(*x.Topic, x.ErrorCode, x.ErrorMessage)
		}
	},
	"alter": alterCommand,
	// replace topic=NAME, then a line per key=value: the old AlterConfigs
	"replace": func(e *env, t *testing.T, d *datadriven.TestData) {
		r := kmsg.NewPtrAlterConfigsRequest()
		rr := kmsg.NewAlterConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, args{t, d}.first()
		for _, line := range lines(d) {
			k, v, _ := strings.Cut(line, "=")
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			c.Name, c.Value = k, &v
			rr.Configs = append(rr.Configs, c)
		}
		r.Resources = append(r.Resources, rr)
		res := e.core.AlterConfigs(e.step(), r)
		e.apply(res)
		x := res.Response.(*kmsg.AlterConfigsResponse).Resources[0]
		e.answer(rr.ResourceName, x.ErrorCode, x.ErrorMessage)
	},
	"isr":      isrCommand,
	"reassign": reassignCommand,
	"moving":   movingCommand,
	// elect preferred|unclean [TOPIC-N]: all partitions without one
	"elect": func(e *env, t *testing.T, d *datadriven.TestData) {
		a := args{t, d}
		r := kmsg.NewPtrElectLeadersRequest()
		r.Version = 2
		if a.first() == "unclean" {
			r.ElectionType = 1
		}
		if len(d.CmdArgs) > 1 {
			topic, n, _ := strings.Cut(d.CmdArgs[1].Key, "-")
			rt := kmsg.NewElectLeadersRequestTopic()
			rt.Topic, rt.Partitions = topic, []int32{int32(atoi(t, d, n))}
			r.Topics = append(r.Topics, rt)
		}
		res := e.core.ElectLeaders(e.step(), r)
		e.apply(res)
		for _, x := range res.Response.(*kmsg.ElectLeadersResponse).Topics {
			for _, p := range x.Partitions {
				e.answer(fmt.Sprintf("%s-%d", x.Topic, p.Partition), p.ErrorCode, p.ErrorMessage)
			}
		}
	},
	// ids BROKER
	"ids": func(e *env, t *testing.T, d *datadriven.TestData) {
		r := kmsg.NewPtrAllocateProducerIDsRequest()
		r.BrokerID = int32(atoi(t, d, args{t, d}.first()))
		b, _ := e.img.Broker(r.BrokerID)
		r.BrokerEpoch = b.Epoch
		res := e.core.AllocateProducerIDs(e.step(), r)
		e.apply(res)
		x := res.Response.(*kmsg.AllocateProducerIDsResponse)
		fmt.Fprintf(&e.out, "from %d, %d of them\n", x.ProducerIDStart, x.ProducerIDLen)
	},
	// feature NAME LEVEL [safe|unsafe]
	"feature": func(e *env, t *testing.T, d *datadriven.TestData) {
		a := args{t, d}
		r := kmsg.NewPtrUpdateFeaturesRequest()
		r.Version = 2
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.UpgradeType = a.first(), 1
		u.MaxVersionLevel = int16(a.int("level", 0))
		if a.has("safe") {
			u.UpgradeType = 2
		}
		if a.has("unsafe") {
			u.UpgradeType = 3
		}
		r.FeatureUpdates = append(r.FeatureUpdates, u)
		e.apply(e.core.UpdateFeatures(e.step(), r))
	},
	// assign TOPIC-N broker=ID dir=N
	"assign": func(e *env, t *testing.T, d *datadriven.TestData) {
		a := args{t, d}
		topic, n := a.partition()
		id := a.int("broker", 1)
		b, _ := e.img.Broker(int32(id))
		r := kmsg.NewPtrAssignReplicasToDirsRequest()
		r.BrokerID, r.BrokerEpoch = b.ID, b.Epoch
		rd := kmsg.NewAssignReplicasToDirsRequestDirectory()
		rd.ID = dir(id, a.int("dir", 1))
		rt := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
		if x, ok := e.img.Topic(topic); ok {
			rt.TopicID = x.ID
		}
		rp := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
		rp.Partition = n
		rt.Partitions, rd.Topics = append(rt.Partitions, rp), append(rd.Topics, rt)
		rd.Topics[0] = rt
		r.Directories = append(r.Directories, rd)
		res := e.core.AssignReplicasToDirs(e.step(), r)
		e.apply(res)
		x := res.Response.(*kmsg.AssignReplicasToDirsResponse)
		e.answer(a.first(), x.Directories[0].Topics[0].Partitions[0].ErrorCode, nil)
	},
	// show: the state of all partitions
	"show": func(e *env, t *testing.T, d *datadriven.TestData) {
		for t := range e.img.Topics() {
			for i, p := range t.Partitions() {
				fmt.Fprintf(&e.out, "%s-%d leader=%d epoch=%d/%d replicas=%v isr=%v elr=%v lastKnown=%v recovering=%v\n",
					t.Name, i, p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.Replicas, p.ISR, p.ELR, p.LastKnownELR, p.Recovering)
			}
		}
	},
}

func atoi(t *testing.T, d *datadriven.TestData, s string) int {
	var n int
	if _, err := fmt.Sscanf(s, "%d", &n); err != nil {
		d.Fatalf(t, "%q: %v", s, err)
	}
	return n
}

func lines(d *datadriven.TestData) []string {
	var out []string
	for _, l := range strings.Split(d.Input, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// create NAME [partitions=N] [rf=N] [assign0=(1,2)] [assign1=…] [validate-only], then a line per key=value
func createCommand(e *env, t *testing.T, d *datadriven.TestData) {
	a := args{t, d}
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version, r.ValidateOnly = 7, a.has("validate-only")
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = strings.Trim(a.first(), `"`), int32(a.int("partitions", -1)), int16(a.int("rf", -1))
	if a.has("name") {
		rt.Topic = strings.Join(a.list("name"), ",")
	}
	for i := 0; a.has(fmt.Sprintf("assign%d", i)); i++ {
		x := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		x.Partition, x.Replicas = int32(i), a.ints(fmt.Sprintf("assign%d", i))
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, x)
	}
	for _, line := range lines(d) {
		k, v, _ := strings.Cut(line, "=")
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, &v
		rt.Configs = append(rt.Configs, c)
	}
	r.Topics = append(r.Topics, rt)
	if a.has("twice") {
		r.Topics = append(r.Topics, rt)
	}
	res := e.core.CreateTopics(e.step(), r)
	e.apply(res)
	for _, x := range res.Response.(*kmsg.CreateTopicsResponse).Topics {
		e.answer(x.Topic, x.ErrorCode, x.ErrorMessage)
		if x.ErrorCode == 0 {
			fmt.Fprintf(&e.out, "%d partition(s), %d replica(s)\n", x.NumPartitions, x.ReplicationFactor)
		}
	}
}

// partitions NAME count=N [assign0=(1,2)]
func partitionsCommand(e *env, t *testing.T, d *datadriven.TestData) {
	a := args{t, d}
	r := kmsg.NewPtrCreatePartitionsRequest()
	r.Version = 3
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = a.first(), int32(a.int("count", 0))
	for i := 0; a.has(fmt.Sprintf("assign%d", i)); i++ {
		x := kmsg.NewCreatePartitionsRequestTopicAssignment()
		x.Replicas = a.ints(fmt.Sprintf("assign%d", i))
		rt.Assignment = append(rt.Assignment, x)
	}
	r.Topics = append(r.Topics, rt)
	res := e.core.CreatePartitions(e.step(), r)
	e.apply(res)
	for _, x := range res.Response.(*kmsg.CreatePartitionsResponse).Topics {
		e.answer(x.Topic, x.ErrorCode, x.ErrorMessage)
	}
}

// alter topic|broker|default [name=N] [validate-only], then lines: set|append|subtract KEY=VALUE, delete KEY
func alterCommand(e *env, t *testing.T, d *datadriven.TestData) {
	a := args{t, d}
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.ValidateOnly = a.has("validate-only")
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeBroker, a.str("name", "")
	if a.first() == "topic" {
		rr.ResourceType = kmsg.ConfigResourceTypeTopic
	}
	for _, line := range lines(d) {
		word, kv, _ := strings.Cut(line, " ")
		k, v, _ := strings.Cut(kv, "=")
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = k, &v
		switch word {
		case "set":
			c.Op = kmsg.IncrementalAlterConfigOpSet
		case "append":
			c.Op = kmsg.IncrementalAlterConfigOpAppend
		case "subtract":
			c.Op = kmsg.IncrementalAlterConfigOpSubtract
		case "delete":
			c.Op, c.Value = kmsg.IncrementalAlterConfigOpDelete, nil
		default:
			d.Fatalf(t, "unknown operation %s", word)
		}
		rr.Configs = append(rr.Configs, c)
	}
	r.Resources = append(r.Resources, rr)
	res := e.core.IncrementalAlterConfigs(e.step(), r)
	e.apply(res)
	x := res.Response.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	e.answer(a.first()+" "+rr.ResourceName, x.ErrorCode, x.ErrorMessage)
}

// isr TOPIC-N by=LEADER isr=(1,2) [recovering] [partition-epoch=N] [leader-epoch=N] [member-epoch=N]
func isrCommand(e *env, t *testing.T, d *datadriven.TestData) {
	a := args{t, d}
	topic, n := a.partition()
	x, _ := e.img.Topic(topic)
	p, _ := x.Partition(n)
	b, _ := e.img.Broker(int32(a.int("by", int(p.Leader))))
	r := kmsg.NewPtrAlterPartitionRequest()
	r.Version, r.BrokerID, r.BrokerEpoch = 3, b.ID, b.Epoch
	rt := kmsg.NewAlterPartitionRequestTopic()
	rt.TopicID = x.ID
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = n, int32(a.int("leader-epoch", int(p.LeaderEpoch))), int32(a.int("partition-epoch", int(p.PartitionEpoch)))
	if a.has("recovering") {
		rp.LeaderRecoveryState = 1
	}
	for _, id := range a.ints("isr") {
		m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		m.BrokerID, m.BrokerEpoch = id, -1
		if r, ok := e.img.Broker(id); ok {
			m.BrokerEpoch = r.Epoch
		}
		if a.has("member-epoch") {
			m.BrokerEpoch = int64(a.int("member-epoch", 0))
		}
		rp.NewEpochISR = append(rp.NewEpochISR, m)
	}
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	res := e.core.AlterPartition(e.step(), r)
	e.apply(res)
	resp := res.Response.(*kmsg.AlterPartitionResponse).Topics[0].Partitions[0]
	e.answer(a.first(), resp.ErrorCode, nil)
}
