package interop

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/config"
	"weir/test/testnode"
)

// TestConfigs changes configurations while a node runs, and looks at what is refused and with which words, and at the
// rows of DescribeConfigs afterwards. The scenarios of testdata/configs were recorded with the real Apache Kafka, as
// those of TestTools; a long run compares both systems. A block is
//
//	alter KIND [NAME]
//	set KEY=VALUE, delete KEY, append KEY=VALUE or subtract KEY=VALUE, a line each
//	----
//	ok, or the error
//
//	describe KIND NAME KEY…
//	----
//	KEY: value, then where it comes from
//
//	topic NAME
//	----
//
//	dirs
//	----
//	the log directories and whether they are cordoned
//
//	move TOPIC DIRECTORY
//	----
//	ok when it has arrived, or the error of AlterReplicaLogDirs for partition 0
//
//	sweep [topic|broker|group]
//	----
//	each dynamic key in turn: set for the cluster, set for the broker, taken away again
//
// KIND is topic, broker, group, client-metrics or a number; a broker without a name is the cluster's default. DIR in a
// value is the node's folder.
func TestConfigs(t *testing.T) {
	systems := []testnode.System{testnode.Ours}
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		systems = []testnode.System{testnode.Apache}
	} else if testnode.Full() {
		systems = append(systems, testnode.Apache)
	}
	for _, system := range systems {
		t.Run(string(system), func(t *testing.T) {
			if system == testnode.Apache {
				testnode.Oracle(t)
			}
			datadriven.Walk(t, filepath.Join("testdata", "configs"), func(t *testing.T, path string) {
				n := testnode.New(t, testnode.Options{System: system, LogDirs: 2})
				n.Start(t)
				c := configurer{t: t, n: n, client: n.Client(t)}
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
					c.t = t
					return c.run(d)
				})
				n.Stop(t)
			})
		})
	}
}

type configurer struct {
	t      *testing.T
	n      *testnode.Node
	client *kgo.Client

	lastDirs string
}

var configKinds = map[string]kmsg.ConfigResourceType{
	"topic": kmsg.ConfigResourceTypeTopic, "broker": kmsg.ConfigResourceTypeBroker,
	"group": kmsg.ConfigResourceTypeGroupConfig, "client-metrics": kmsg.ConfigResourceTypeClientMetrics,
}

func (c *configurer) run(d *datadriven.TestData) string {
	c.t.Helper()
	arg := func(i int) string {
		if i >= len(d.CmdArgs) {
			return ""
		}
		return d.CmdArgs[i].Key
	}
	switch d.Cmd {
	case "topic":
		if _, err := c.n.Admin(c.t).CreateTopic(c.t.Context(), 1, 1, nil, arg(0)); err != nil {
			c.t.Fatal(err)
		}
		c.n.WaitLeaders(c.t)
		return ""
	case "alter":
		var ops []kmsg.IncrementalAlterConfigsRequestResourceConfig
		for _, line := range strings.Split(d.Input, "\n") {
			ops = append(ops, c.operation(d, line))
		}
		return c.alter(configKinds[arg(0)], arg(1), ops) + "\n"
	case "describe":
		var keys []string
		for _, a := range d.CmdArgs[2:] {
			keys = append(keys, a.Key)
		}
		var out strings.Builder
		for _, key := range keys {
			fmt.Fprintf(&out, "%s: %s\n", key, c.describe(configKinds[arg(0)], strings.Trim(arg(1), "-"), key))
		}
		return out.String()
	case "sweep":
		return c.sweep(arg(0))
	case "dirs":
		c.await(c.lastDirs, c.dirs)
		c.lastDirs = c.dirs()
		return c.lastDirs
	case "move":
		return c.move(arg(0), strings.ReplaceAll(arg(1), "DIR", c.n.Dir)) + "\n"
	}
	d.Fatalf(c.t, "unknown command %q", d.Cmd)
	return ""
}

func (c *configurer) operation(d *datadriven.TestData, line string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	verb, rest, _ := strings.Cut(line, " ")
	key, value, valued := strings.Cut(rest, "=")
	op := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	kinds := map[string]kmsg.IncrementalAlterConfigOp{
		"set": kmsg.IncrementalAlterConfigOpSet, "delete": kmsg.IncrementalAlterConfigOpDelete,
		"append": kmsg.IncrementalAlterConfigOpAppend, "subtract": kmsg.IncrementalAlterConfigOpSubtract,
	}
	kind, ok := kinds[verb]
	if !ok {
		d.Fatalf(c.t, "unknown operation %q", line)
	}
	op.Name, op.Op = key, kind
	if valued {
		op.Value = kmsg.StringPtr(strings.ReplaceAll(value, "DIR", c.n.Dir))
	}
	return op
}

// alter sends one change and returns "ok" or the error as Kafka's clients see it.
func (c *configurer) alter(kind kmsg.ConfigResourceType, name string, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) string {
	c.t.Helper()
	look := func() string { return c.describe(kind, name, ops[0].Name) }
	was := look()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.Configs = kind, name, ops
	req.Resources = append(req.Resources, res)
	ctx, cancel := context.WithTimeout(c.t.Context(), testnode.Patience)
	defer cancel()
	resp, err := req.RequestWith(ctx, c.client.Broker(int(c.n.ID)))
	if err != nil {
		c.t.Fatal(err)
	}
	r := resp.Resources[0]
	if r.ErrorCode == 0 {
		c.await(was, look)
		return "ok"
	}
	text := "(no text)"
	if r.ErrorMessage != nil {
		text = *r.ErrorMessage
	}
	return strings.ReplaceAll(fmt.Sprintf("%s: %s", kerr.TypedErrorForCode(r.ErrorCode).Message, text), c.n.Dir, "DIR")
}

// noticed is how long a broker may take to show a change that the controller has accepted. A change that changes nothing
// takes that long to be told from one that is late.
const noticed = 2 * time.Second

// await asks for a row until it differs from what it was; brokers hear of changes a little later than the controller
// answers.
func (c *configurer) await(was string, ask func() string) {
	limit, tick := time.NewTimer(noticed), time.NewTicker(5*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for ask() == was {
		select {
		case <-tick.C:
		case <-limit.C:
			return
		}
	}
}

// describe returns value, type, flags and synonyms of one key.
func (c *configurer) describe(kind kmsg.ConfigResourceType, name, key string) string {
	c.t.Helper()
	rows := c.rows(kind, name, key)
	if len(rows) == 0 {
		return "no row"
	}
	return rows[key]
}

// dirs lists the log directories.
func (c *configurer) dirs() string {
	c.t.Helper()
	resp, err := kmsg.NewPtrDescribeLogDirsRequest().RequestWith(c.t.Context(), c.client.Broker(int(c.n.ID)))
	if err != nil {
		c.t.Fatal(err)
	}
	var lines []string
	for _, d := range resp.Dirs {
		lines = append(lines, fmt.Sprintf("%s cordoned=%v\n", strings.ReplaceAll(d.Dir, c.n.Dir, "DIR"), d.IsCordoned))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// move asks for partition 0 of a topic to go to a log directory.
func (c *configurer) move(topic, dir string) string {
	c.t.Helper()
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	d, tp := kmsg.NewAlterReplicaLogDirsRequestDir(), kmsg.NewAlterReplicaLogDirsRequestDirTopic()
	tp.Topic, tp.Partitions = topic, []int32{0}
	d.Dir, d.Topics = dir, append(d.Topics, tp)
	req.Dirs = append(req.Dirs, d)
	resp, err := req.RequestWith(c.t.Context(), c.client.Broker(int(c.n.ID)))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := kerr.TypedErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
		return err.Message
	}
	testnode.Until(c.t, testnode.Patience, "the move", func() error {
		dirs, err := kmsg.NewPtrDescribeLogDirsRequest().RequestWith(c.t.Context(), c.client.Broker(int(c.n.ID)))
		if err != nil {
			return err
		}
		for _, d := range dirs.Dirs {
			for _, t := range d.Topics {
				if slices.ContainsFunc(t.Partitions, func(p kmsg.DescribeLogDirsResponseDirTopicPartition) bool { return p.IsFuture }) {
					return fmt.Errorf("%s is still on its way to %s", t.Topic, d.Dir)
				}
			}
		}
		return nil
	})
	return "ok"
}

func (c *configurer) rows(kind kmsg.ConfigResourceType, name string, keys ...string) map[string]string {
	c.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, res)
	ctx, cancel := context.WithTimeout(c.t.Context(), testnode.Patience)
	defer cancel()
	resp, err := req.RequestWith(ctx, c.client.Broker(int(c.n.ID)))
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]string{}
	for _, row := range resp.Resources[0].Configs {
		out[row.Name] = strings.ReplaceAll(showRow(row), c.n.Dir, "DIR")
	}
	return out
}

func showRow(row kmsg.DescribeConfigsResponseResourceConfig) string {
	show := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	out := fmt.Sprintf("%s (%s, type %d", show(row.Value), row.Source, row.ConfigType)
	if row.ReadOnly {
		out += ", read-only"
	}
	if row.IsSensitive {
		out += ", sensitive"
	}
	out += ")"
	for _, s := range row.ConfigSynonyms {
		out += fmt.Sprintf(" %s:%s=%s", s.Source, s.Name, show(s.Value))
	}
	return out
}

// sweep goes through every dynamic key of a scope. A line tells what an alteration answered and what the row is then.
func (c *configurer) sweep(scope string) string {
	c.t.Helper()
	var out strings.Builder
	switch scope {
	case "broker":
		for _, k := range config.Keys(config.ScopeBroker) {
			if k.Dynamic && !unswept[k.Name] {
				c.sweepKey(&out, k, kmsg.ConfigResourceTypeBroker, "", "1")
			}
		}
	case "topic":
		for _, k := range config.Keys(config.ScopeTopic) {
			c.sweepKey(&out, k, kmsg.ConfigResourceTypeTopic, "swept")
		}
	case "group":
		for _, k := range config.Keys(config.ScopeGroup) {
			c.sweepKey(&out, k, kmsg.ConfigResourceTypeGroupConfig, "swept")
		}
	}
	return out.String()
}

// unswept are the keys of which a valid value is a class, an address or a file; they have blocks of their own.
var unswept = map[string]bool{
	"listeners": true, "listener.security.protocol.map": true, "cordoned.log.dirs": true, "metric.reporters": true,
	"principal.builder.class": true, "ssl.engine.factory.class": true, "config.providers": true,
}

// sweepKey sets a key on each of the resources in turn, and then takes it away in the same order.
func (c *configurer) sweepKey(out *strings.Builder, k *config.Key, kind kmsg.ConfigResourceType, names ...string) {
	c.t.Helper()
	fmt.Fprintf(out, "%s\n", k.Name)
	values := otherValues(k)
	for step := range 2 * len(names) {
		name := names[step%len(names)]
		op := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		op.Name, op.Op = k.Name, kmsg.IncrementalAlterConfigOpDelete
		what := fmt.Sprintf("delete [%s]", name)
		if step < len(names) {
			op.Op, op.Value = kmsg.IncrementalAlterConfigOpSet, &values[step]
			what = fmt.Sprintf("set [%s] %s", name, values[step])
		}
		answer := c.alter(kind, name, []kmsg.IncrementalAlterConfigsRequestResourceConfig{op})
		fmt.Fprintf(out, "  %s: %s\n", what, answer)
		if answer == "ok" {
			fmt.Fprintf(out, "    %s\n", c.describe(kind, names[len(names)-1], k.Name))
		}
	}
}

// otherValues are two valid values that are not the default.
func otherValues(k *config.Key) [2]string {
	if v, ok := map[string][2]string{
		"compression.gzip.level": {"4", "5"}, "compression.type": {"lz4", "zstd"}, "cleanup.policy": {"compact", "compact,delete"},
		"log.cleanup.policy": {"compact", "compact,delete"}, "message.timestamp.type": {"LogAppendTime", "CreateTime"},
		"log.message.timestamp.type": {"LogAppendTime", "CreateTime"}, "max.connections.per.ip.overrides": {"127.0.0.1:500", "127.0.0.1:600"},
		"follower.replication.throttled.replicas": {"0:1", "*"}, "leader.replication.throttled.replicas": {"0:1", "*"},
		"internal.segment.bytes": {"20000", "30000"}, "min.cleanable.dirty.ratio": {"0.4", "0.25"},
		"log.cleaner.min.cleanable.ratio": {"0.4", "0.25"}, "log.cleaner.io.buffer.load.factor": {"0.8", "0.7"},
		"share.auto.offset.reset": {"earliest", "by_duration:PT1H"}, "share.isolation.level": {"read_committed", "read_uncommitted"},
		"ssl.client.auth": {"requested", "required"}, "local.retention.ms": {"1000", "2000"}, "local.retention.bytes": {"1000", "2000"},
		"log.local.retention.ms": {"1000", "2000"}, "log.local.retention.bytes": {"1000", "2000"},
		"message.max.bytes": {"2000000", "3000000"}, "max.message.bytes": {"2000000", "3000000"},
	}[k.Name]; ok {
		return v
	}
	switch k.Type {
	case config.TypeBoolean:
		if *k.Default == "true" {
			return [2]string{"false", "true"}
		}
		return [2]string{"true", "false"}
	case config.TypeDouble:
		return [2]string{"0.5", "0.6"}
	case config.TypeInt, config.TypeLong, config.TypeShort:
		var n int64
		if k.Default != nil {
			if _, err := fmt.Sscan(*k.Default, &n); err != nil {
				return [2]string{"1000", "2000"}
			}
		}
		switch {
		case k.Default == nil || n < 0:
			return [2]string{"1000", "2000"}
		case n > 1<<30:
			return [2]string{fmt.Sprint(n - 1), fmt.Sprint(n - 2)}
		}
		return [2]string{fmt.Sprint(n + 1), fmt.Sprint(n + 2)}
	}
	return [2]string{"one", "two"}
}
