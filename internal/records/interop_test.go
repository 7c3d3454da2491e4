//go:build interop

package records

import (
	"bufio"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"weir/internal/records/schema"
)

// oracle is a running testdata/Interop.java on the jars of the real Apache Kafka.
type oracle struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

// startOracle looks for the jars in ORACLE_HOME (default: the newest ~/.cache/kafka-oracle/VERSION).
func startOracle(t *testing.T) *oracle {
	home := os.Getenv("ORACLE_HOME")
	if home == "" {
		cache, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		home = filepath.Join(cache, ".cache/kafka-oracle/4.3.1")
	}
	if _, err := os.Stat(filepath.Join(home, "libs")); err != nil {
		t.Fatalf("the jars of Apache Kafka are needed: %v", err)
	}
	cmd := exec.Command("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", home+"/libs/*", "testdata/Interop.java")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &oracle{t, in, bufio.NewReader(out)}
}

func (o *oracle) ask(format string, args ...any) string {
	o.t.Helper()
	fmt.Fprintf(o.in, format+"\n", args...)
	return o.line()
}

func (o *oracle) line() string {
	o.t.Helper()
	line, err := o.out.ReadString('\n')
	if err != nil {
		o.t.Fatalf("the Java side went away: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

var rewrite = flag.Bool("rewrite", false, "write what the real system says into "+schemaFile)

// Every schema, field by field, is that of the real system, and so is the file that TestSchemas compares with.
func TestInteropSchemas(t *testing.T) {
	o := startOracle(t)
	var theirs strings.Builder
	for _, m := range loadSchemas(t) {
		var got strings.Builder
		for line := o.ask("schema %s", m.Name); line != ""; line = o.line() {
			got.WriteString(line + "\n")
		}
		if want := render(m); got.String() != want {
			t.Errorf("Apache Kafka:\n%s\nours:\n%s", got.String(), want)
		}
		theirs.WriteString(got.String() + "\n")
	}
	if *rewrite {
		if err := os.WriteFile(schemaFile, []byte(theirs.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(schemaFile); err != nil || string(kept) != theirs.String() {
		t.Errorf("%s is not what the real system says (%v): run this test with -rewrite", schemaFile, err)
	}
}

// New messages have the real system's defaults. Kafka starts a nullable field without a declared default as empty,
// we start it as null (see the package comment), so those are emptied first.
func TestInteropDefaults(t *testing.T) {
	o := startOracle(t)
	for _, s := range loadSchemas(t) {
		for v := s.Versions.Min; v <= s.Versions.Max; v++ {
			m := New(s.Name)
			emptyNullables(reflect.ValueOf(m).Elem(), s, s.Fields, v)
			if got, want := hex.EncodeToString(m.AppendTo(nil, v)), o.ask("default %s %d", s.Name, v); got != want {
				t.Errorf("%s v%d: ours %s, Apache Kafka's %s", s.Name, v, got, want)
			}
		}
	}
}

func emptyNullables(v reflect.Value, s *schema.Message, fields []*schema.Field, version int16) {
	for _, f := range fields {
		dst := v.FieldByName(schema.GoName(f.Name))
		switch {
		case !f.Versions.Has(version):
		case !f.Nullable && !f.Array && f.IsStruct():
			emptyNullables(dst, s, s.StructFields(f), version)
		case !f.Nullable || f.Default == "null":
		case dst.Kind() == reflect.Pointer:
			dst.Set(reflect.New(dst.Type().Elem()))
		default:
			dst.Set(reflect.MakeSlice(dst.Type(), 0, 0))
		}
	}
}

// What we write, the real system reads and writes again as the same bytes, unknown tagged fields included.
func TestInteropBytes(t *testing.T) {
	o := startOracle(t)
	eachRandom(t, 15, true, func(m Message, s *schema.Message, v int16) {
		ours := hex.EncodeToString(m.AppendTo(nil, v))
		if theirs := o.ask("echo %s %d %s", s.Name, v, ours); theirs != ours {
			t.Errorf("%s v%d:\nours   %s\ntheirs %s\n%+v", s.Name, v, ours, theirs, m)
		}
	})
}

// The real system sees the values that we put in, not only the same bytes.
func TestInteropValues(t *testing.T) {
	o := startOracle(t)
	change := NewPartitionChangeRecord()
	change.PartitionID, change.TopicID[15], change.ISR, change.Leader, change.LastKnownELR = 3, 7, []int32{1, 2}, -1, []int32{9}
	endpoint := NewStreamsGroupMemberMetadataValue()
	endpoint.UserEndpoint = &StreamsGroupMemberMetadataValueEndpoint{Host: "h", Port: 65535}
	for _, c := range []struct {
		name    string
		version int16
		m       Message
		want    string
	}{
		{"PartitionChangeRecord", 2, &change, `{"partitionId":3,"topicId":"AAAAAAAAAAAAAAAAAAAABw","isr":[1,2],"leader":-1,"lastKnownElr":[9]}`},
		{"StreamsGroupMemberMetadataValue", 0, &endpoint, `{"instanceId":null,"rackId":null,"clientId":"","clientHost":"","rebalanceTimeoutMs":-1,"topologyEpoch":0,"processId":"","userEndpoint":{"host":"h","port":65535},"clientTags":[]}`},
		{"QuorumStateData", 0, &QuorumStateData{LeaderID: 1, LeaderEpoch: 2, VotedID: -1, CurrentVoters: []QuorumStateDataCurrentVoter{{VoterID: 1}}},
			`{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}]}`},
	} {
		if got := o.ask("json %s %d %x", c.name, c.version, c.m.AppendTo(nil, c.version)); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}
