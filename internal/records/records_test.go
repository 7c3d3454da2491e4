package records

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"weir/internal/records/schema"
	"weir/internal/uuid"
)

func mustUUID(t *testing.T, s string) uuid.UUID {
	t.Helper()
	u, err := uuid.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// The bytes were worked out by hand from the format and are the same as those in logs of Apache Kafka 4.3.1.
func TestKnownBytes(t *testing.T) {
	topic := uuid.UUID{15: 9}
	for _, c := range []struct {
		name string
		v    Versioned
		hex  string
	}{
		{"topic", Versioned{&TopicRecord{Name: "foo", TopicID: topic}, 0},
			"010200" + "04666f6f" + "00000000000000000000000000000009" + "00"},
		{"feature", Versioned{&FeatureLevelRecord{Name: "metadata.version", FeatureLevel: 30}, 0},
			"010c00" + "116d657461646174612e76657273696f6e" + "001e" + "00"},
		{"no-op", Versioned{&NoOpRecord{}, 0}, "011400" + "00"},
		{"transaction", Versioned{&BeginTransactionRecord{Name: ptr("Bootstrap records")}, 0},
			"011700" + "01" + "00" + "12" + "12" + "426f6f747374726170207265636f726473"},
		{"nothing changed", Versioned{func() Metadata { r := NewPartitionChangeRecord(); r.PartitionID = 1; return &r }(), 2},
			"010502" + "00000001" + "00000000000000000000000000000000" + "00"},
		{"leader and isr changed", Versioned{func() Metadata {
			r := NewPartitionChangeRecord()
			r.PartitionID, r.TopicID, r.Leader, r.ISR, r.EligibleLeaderReplicas = 1, topic, -1, []int32{}, []int32{1}
			return &r
		}(), 2},
			"010502" + "00000001" + "00000000000000000000000000000009" + "03" + "000101" + "0104ffffffff" + "06050200000001"},
		{"config", Versioned{&ConfigRecord{ResourceType: 4, Name: "min.insync.replicas", Value: ptr("1")}, 0},
			"010400" + "04" + "01" + "146d696e2e696e73796e632e7265706c69636173" + "0231" + "00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := AppendMetadata(nil, c.v)
			if hex.EncodeToString(got) != c.hex {
				t.Errorf("got  %x\nwant %s", got, c.hex)
			}
			back, err := ParseMetadata(got)
			if err != nil || !reflect.DeepEqual(back, c.v) {
				t.Errorf("read %#v, %v", back, err)
			}
		})
	}
}

// schemaFile is what the schema objects of Apache Kafka 4.3.1 say; TestInteropSchemas keeps it true.
const schemaFile = "testdata/apache-4.3.1-schemas.txt"

// render writes a schema in the form of schemaFile.
func render(m *schema.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s apiKey=%d versions %d-%d\n", m.Name, m.APIKey, m.Versions.Min, m.Versions.Max)
	for v := m.Versions.Min; v <= m.Versions.Max; v++ {
		b.WriteString(m.Render(v))
	}
	return b.String()
}

func TestSchemas(t *testing.T) {
	want, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range loadSchemas(t) {
		if ours := render(m) + "\n"; !bytes.Contains(want, []byte("\n"+ours)) && !bytes.HasPrefix(want, []byte(ours)) {
			t.Errorf("Apache Kafka has another schema than\n%s", ours)
		}
	}
	if n, total := len(loadSchemas(t)), bytes.Count(want, []byte(" apiKey=")); n != total {
		t.Errorf("%d messages of %d", n, total)
	}
}

func TestDefaults(t *testing.T) {
	p := NewPartitionChangeRecord()
	if p.Leader != -2 || p.LeaderRecoveryState != -1 || p.PartitionID != -1 || p.ISR != nil {
		t.Errorf("PartitionChangeRecord starts as %+v", p)
	}
	if r := NewRegisterBrokerRecord(); !r.Fenced || r.CordonedLogDirs != nil {
		t.Errorf("RegisterBrokerRecord starts as %+v", r)
	}
	// Reading sets what the bytes do not have to the defaults, whatever was there before.
	p = PartitionChangeRecord{Leader: 7, ISR: []int32{1}}
	if err := p.ReadFrom(make([]byte, 21), 0); err != nil || p.Leader != -2 || p.ISR != nil {
		t.Errorf("read %+v, %v", p, err)
	}
}

func TestUnknownMetadataIsKept(t *testing.T) {
	for _, in := range []string{"01e8070301020304", "01020500aabb", "016300"} { // apiKey 1000; TopicRecord v5; apiKey 99
		value, _ := hex.DecodeString(in)
		v, err := ParseMetadata(value)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := v.Record.(*Unknown); !ok {
			t.Errorf("%s: %T", in, v.Record)
		}
		if got := AppendMetadata(nil, v); !bytes.Equal(got, value) {
			t.Errorf("%s came back as %x", in, got)
		}
		if err := v.Record.ReadFrom(nil, 0); !errors.Is(err, errUnknownRead) {
			t.Errorf("ReadFrom: %v", err)
		}
	}
}

func TestUnknownTagsAreKept(t *testing.T) {
	// PartitionRecord v0: known tag 0, unknown ones on both sides of where later versions have theirs.
	r := NewPartitionRecord()
	r.LeaderRecoveryState = 1
	r.UnknownTags = []Tag{{1, []byte{9}}, {100, nil}}
	data := r.AppendTo(nil, 0)
	if !bytes.HasSuffix(data, []byte{3, 0, 1, 1, 1, 1, 9, 100, 0}) {
		t.Errorf("%x", data)
	}
	var back PartitionRecord
	if err := back.ReadFrom(data, 0); err != nil || len(back.UnknownTags) != 2 {
		t.Errorf("%+v, %v", back, err)
	}
	if got := back.AppendTo(nil, 0); !bytes.Equal(got, data) {
		t.Errorf("came back as %x", got)
	}
}

func TestParseMetadataErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "no valid frame version",
		"020200":                         "frame version 2",
		"01":                             "no valid apiKey",
		"01ffffff7f00":                   "no valid apiKey",
		"0102":                           "no valid version",
		"0102ffffff7f":                   "no valid version",
		"010200":                         "TopicRecord version 0: cut short at byte 0",
		"01020004666f":                   "length 3 with only 2 bytes left",
		"010200000000":                   "null where a value must stand",
		"01140000ff":                     "1 bytes behind its end",
		"0114000201000000":               "out of order",
		"01170001000502aaaaaaaaaa":       "does not fill its size",
		"0102000101010101010101":         "cut short",
		"010200ffffffffffffffffffff7f00": "bad variable-length number",
	} {
		value, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseMetadata(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

// A few bytes that claim a huge array must not make room for it.
func TestHugeLengthAllocatesNothing(t *testing.T) {
	value := append([]byte{1, 3, 0}, make([]byte, 20)...)
	value = append(value, 0xff, 0xff, 0xff, 0xff, 0x07) // replicas: 2^31-2 elements
	if n := testing.AllocsPerRun(10, func() { _, _ = ParseMetadata(value) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
	if _, err := ParseMetadata(value); err == nil {
		t.Error("accepted")
	}
}

func TestWritingWhatAVersionLacksPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"no such version": func() { (&TopicRecord{}).AppendTo(nil, 1) },
		"field too new":   func() { (&RegisterBrokerRecord{IsMigratingZkBroker: true}).AppendTo(nil, 0) },
		"tag too new":     func() { (&RegisterBrokerRecord{LogDirs: []uuid.UUID{{1}}}).AppendTo(nil, 2) },
		"string too long": func() { (&TopicRecord{Name: strings.Repeat("x", 1<<15)}).AppendTo(nil, 0) },
		"tag in old form": func() { (&TransactionLogValue{NextProducerID: 5}).AppendTo(nil, 0) },
		"field too old":   func() { (&QuorumStateData{ClusterID: "x"}).AppendTo(nil, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	// An ignorable field is dropped instead.
	o := NewOffsetCommitValue()
	o.LeaderEpoch, o.TopicID = 5, uuid.UUID{1}
	var back OffsetCommitValue
	if err := back.ReadFrom(o.AppendTo(nil, 0), 0); err != nil || back.LeaderEpoch != -1 || !back.TopicID.IsZero() {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestControl(t *testing.T) {
	voters := VotersRecord{Voters: []VotersRecordVoter{{VoterID: 1, VoterDirectoryID: mustUUID(t, "XsHPqpKCh99Eddk85DvZxA"),
		Endpoints:           []VotersRecordVoterEndpoint{{Name: "CONTROLLER", Host: "h", Port: 9093}},
		KRaftVersionFeature: VotersRecordVoterKRaftVersionFeature{MaxSupportedVersion: 1}}}}
	change := LeaderChangeMessage{LeaderID: 1, Voters: []LeaderChangeMessageVoter{{VoterID: 1}}}
	for _, c := range []struct {
		key, value []byte
		want       any
	}{
		{EndTxn{true, 7}.ControlKey(), EndTxn{true, 7}.ControlValue(), EndTxn{true, 7}},
		{EndTxn{false, 8}.ControlKey(), EndTxn{false, 8}.ControlValue(), EndTxn{false, 8}},
		{[]byte{0, 1, 0, 1, 5}, []byte{0, 1, 0, 0, 0, 7, 9}, EndTxn{true, 7}}, // newer versions, read as 0
		{ControlKey(ControlLeaderChange), change.AppendTo(nil, 0), &change},
		{ControlKey(ControlKRaftVoters), voters.AppendTo(nil, 0), &voters},
		{ControlKey(ControlKRaftVersion), []byte{0, 0, 0, 1, 0}, &KRaftVersionRecord{KRaftVersion: 1}},
		{ControlKey(ControlSnapshotHeader), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0}, &SnapshotHeaderRecord{LastContainedLogTimestamp: 5}},
		{ControlKey(ControlSnapshotFooter), []byte{0, 0, 0}, &SnapshotFooterRecord{}},
		{ControlKey(99), []byte{1}, &UnknownControl{99, []byte{1}}},
	} {
		got, err := ParseControl(c.key, c.value)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%x %x: %#v, %v", c.key, c.value, got, err)
		}
	}
	for _, c := range []struct{ key, value []byte }{
		{[]byte{0, 0, 0}, nil},
		{[]byte{0xff, 0xff, 0, 1}, nil},
		{ControlKey(ControlCommit), []byte{0}},
		{ControlKey(ControlCommit), []byte{0xff, 0xff, 0, 0, 0, 1}},
		{ControlKey(ControlCommit), []byte{0, 0, 0, 0}},
		{ControlKey(ControlLeaderChange), []byte{0}},
	} {
		if got, err := ParseControl(c.key, c.value); err == nil {
			t.Errorf("%x %x: accepted as %#v", c.key, c.value, got)
		}
	}
}

func TestCatalog(t *testing.T) {
	if New("Nothing") != nil {
		t.Error("New invents messages")
	}
	for _, n := range Names() {
		if New(n) == nil {
			t.Errorf("no %s", n)
		}
	}
	if _, ok := NewGroupKey(1).(*OffsetCommitKey); !ok {
		t.Errorf("%T", NewGroupKey(1))
	}
	if _, ok := NewGroupValue(2).(*GroupMetadataValue); !ok || NewGroupValue(18) != nil {
		t.Errorf("%T", NewGroupValue(2))
	}
}
