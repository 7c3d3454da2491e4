package controller

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/rng"
	"weir/internal/uuid"
)

// TestScenarios runs the stories in testdata. Each command prints the records that the controller writes, in the words of
// kafka-dump-log, and the answer. `go test ./internal/controller -rewrite` writes the outputs anew: read the diff.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		e := newEnv(30, true)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			e.out.Reset()
			run, ok := commands[d.Cmd]
			if !ok {
				d.Fatalf(t, "no such command")
			}
			run(e, t, d)
			if e.out.Len() == 0 {
				return "nothing\n"
			}
			return e.out.String()
		})
	})
}

// env is one controller with its log applied at once.
type env struct {
	core   *Core
	o      Options
	img    *image.Image
	offset int64 // of the next record
	nowMs  int64
	dice   *rng.Source
	out    strings.Builder
}

func newEnv(metadata int16, elr bool) *env {
	e := &env{img: image.New(), nowMs: 1_000_000, dice: rng.New(7)}
	level := func(name string, l int16) records.Versioned {
		r := records.NewFeatureLevelRecord()
		r.Name, r.FeatureLevel = name, l
		return records.Versioned{Record: &r}
	}
	boot := []records.Versioned{level(image.FeatureMetadata, metadata)}
	if elr {
		boot = append(boot, level(image.FeatureELR, 1))
	}
	e.o = Options{
		NodeID: 1, ClusterID: "c", SessionTimeoutMs: 9000, UncleanIntervalMs: 1000, RebalanceIntervalMs: 300_000, RebalanceAfterReturnMs: 10_000,
		DefaultPartitions: 1, DefaultReplicationFactor: 1, Supported: supported(),
		Bootstrap: boot, BootstrapSource: "the test", Config: rules{},
	}
	e.core = New(e.o)
	return e
}

func supported() []image.FeatureRange {
	return []image.FeatureRange{{Name: image.FeatureMetadata, Min: 7, Max: 30}, {Name: image.FeatureELR, Min: 0, Max: 1}, {Name: image.FeatureGroup, Min: 0, Max: 1}}
}

func (e *env) step() Step {
	return Step{NowMs: e.nowMs, Rand: e.dice, Image: e.img, NextOffset: e.offset, Quorum: Quorum{Voters: []int32{1}}}
}

// apply appends the records of a result and prints it.
func (e *env) apply(r Result) {
	if len(r.Records) > 0 {
		d := image.NewDelta(e.img)
		for _, v := range r.Records {
			parsed, err := records.ParseMetadata(records.AppendMetadata(nil, v))
			if err == nil {
				err = d.Replay(parsed)
			}
			if err != nil {
				panic(fmt.Sprintf("offset %d: %s: %v", e.offset, e.show(v), err))
			}
			fmt.Fprintf(&e.out, "%d %s\n", e.offset, e.show(v))
			e.offset++
		}
		e.img = d.Apply(image.Provenance{Offset: e.offset - 1})
	}
	if r.Err != nil {
		fmt.Fprintf(&e.out, "refused: %s %s\n", code(r.Err.Code), r.Err.Message)
	}
}

func code(c int16) string {
	var k *kerr.Error
	if err := kerr.ErrorForCode(c); err == nil {
		return "NONE"
	} else if errors.As(err, &k) {
		return k.Message
	}
	return strconv.Itoa(int(c))
}

func (e *env) answer(what string, c int16, text *string) {
	fmt.Fprintf(&e.out, "%s: %s", what, code(c))
	if text != nil {
		fmt.Fprintf(&e.out, ": %s", *text)
	}
	e.out.WriteByte('\n')
}

// show prints a record with the fields that differ from the default, ids by name.
func (e *env) show(v records.Versioned) string {
	val := reflect.ValueOf(v.Record).Elem()
	var b strings.Builder
	fmt.Fprintf(&b, "%s v%d", strings.TrimSuffix(val.Type().Name(), "Record"), v.Version)
	for i := range val.NumField() {
		name, f := val.Type().Field(i).Name, val.Field(i)
		_, change := v.Record.(*records.PartitionChangeRecord)
		if s, ok := e.field(name, f, change && name == "LeaderRecoveryState"); ok {
			fmt.Fprintf(&b, " %s=%s", fieldName(name), s)
		}
	}
	return b.String()
}

func (e *env) field(name string, f reflect.Value, recoveryChange bool) (string, bool) {
	switch x := f.Interface().(type) {
	case uuid.UUID:
		if name == "TopicID" {
			if t, ok := e.img.TopicByID(x); ok {
				return t.Name, true
			}
			return "new", true
		}
		return short(x), true
	case []uuid.UUID:
		if x == nil {
			return "", false
		}
		var s []string
		for _, u := range x {
			s = append(s, short(u))
		}
		return "[" + strings.Join(s, " ") + "]", true
	case []int32:
		return fmt.Sprint(x), x != nil
	case *string:
		if x == nil {
			return "null", name == "Value"
		}
		return *x, true
	case string:
		return strconv.Quote(x), true
	case int32:
		return fmt.Sprint(x), name != "Leader" || x != image.NoLeaderChange
	case int8:
		return fmt.Sprint(x), x != 0 && x != -1 || x == -1 && name == "Fenced" || recoveryChange && x == 0
	case bool:
		return fmt.Sprint(x), x
	}
	if f.Kind() == reflect.Slice {
		return fmt.Sprintf("%d", f.Len()), f.Len() > 0
	}
	return fmt.Sprint(f.Interface()), true
}

// fieldName spells a field as kafka-dump-log does.
func fieldName(name string) string {
	name = strings.Replace(strings.Replace(name, "ISR", "isr", 1), "ELR", "Elr", 1)
	if strings.HasSuffix(name, "ID") {
		name = strings.TrimSuffix(name, "ID") + "Id"
	}
	return strings.ToLower(name[:1]) + name[1:]
}

// short prints directories and incarnations, of which the tests only set the last bytes.
func short(u uuid.UUID) string {
	switch u {
	case uuid.DirMigrating:
		return "MIGRATING"
	case uuid.DirUnassigned:
		return "UNASSIGNED"
	case uuid.DirLost:
		return "LOST"
	}
	return fmt.Sprintf("%d.%d", u[14], u[15])
}

// dir is the n-th directory of a broker.
func dir(broker, n int) uuid.UUID { return uuid.UUID{0: 0xd, 14: byte(broker), 15: byte(n)} }

// rules is a small stand-in for package config.
type rules struct{}

func (rules) Validate(_ image.Resource, values map[string]string) error {
	for k, v := range values {
		switch k {
		case "retention.ms", keyMinISR:
			if _, err := strconv.ParseInt(v, 10, 64); err != nil {
				return fmt.Errorf("Invalid value %s for configuration %s: Not a number of type LONG", v, k)
			}
		case "cleanup.policy", keyUnclean:
		default:
			return fmt.Errorf("Unknown topic config name: %s", k)
		}
	}
	return nil
}

func (rules) Default(_ image.Resource, key string) string {
	return map[string]string{keyMinISR: "1", keyUnclean: "false", "cleanup.policy": "delete"}[key]
}

func (rules) DescribeTopic(_, _, topic map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	var out []kmsg.CreateTopicsResponseTopicConfig
	for k, v := range topic {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value = k, &v
		out = append(out, c)
	}
	return out
}

// args reads the arguments of a command.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) has(key string) bool { return a.d.HasArg(key) }

func (a args) str(key, def string) string {
	if v := a.list(key); len(v) > 0 {
		return v[0]
	}
	return def
}

func (a args) list(key string) []string {
	for _, x := range a.d.CmdArgs {
		if x.Key == key {
			return x.Vals
		}
	}
	return nil
}

func (a args) int(key string, def int) int {
	if !a.has(key) {
		return def
	}
	n, err := strconv.Atoi(a.str(key, ""))
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return n
}

func (a args) ints(key string) []int32 {
	var out []int32
	for _, s := range a.list(key) {
		n, err := strconv.Atoi(s)
		if err != nil {
			a.d.Fatalf(a.t, "%s: %v", key, err)
		}
		out = append(out, int32(n))
	}
	return out
}

// first is the first argument without a value: the subject.
func (a args) first() string {
	if len(a.d.CmdArgs) == 0 {
		a.d.Fatalf(a.t, "an argument is missing")
	}
	return a.d.CmdArgs[0].Key
}

// partition reads a subject such as t1-0.
func (a args) partition() (string, int32) {
	topic, n, _ := strings.Cut(a.first(), "-")
	i, err := strconv.Atoi(n)
	if err != nil {
		a.d.Fatalf(a.t, "%v", err)
	}
	return topic, int32(i)
}
