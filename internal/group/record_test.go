package group

import (
	"bytes"
	"encoding/hex"
	"testing"

	"weir/internal/records"
)

// TestRecordBytes compares with what Apache Kafka 4.3.1 writes.
func TestRecordBytes(t *testing.T) {
	created := records.NewGroupMetadataValue()
	created.CurrentStateTimestamp = 0x0102030405060708
	for _, c := range []struct {
		name       string
		r          Record
		key, value string // hex; "-" for null
	}{
		{"a group that was just made", Record{Group: &GroupRecord{ID: "g1", Value: &created}}, "000200026731", "0003" + "0000" + "00000000" + "ffff" + "ffff" + "0102030405060708" + "00000000"},
		{"a group that is gone", Record{Group: &GroupRecord{ID: "g1"}}, "000200026731", "-"},
		{
			"an offset", Record{Offset: &OffsetRecord{Key: OffsetKey{"g1", TopicPartition{"t", 1}}, Value: &Offset{Offset: 3, LeaderEpoch: 0, CommitMs: 9, ExpireMs: -1, TopicID: [16]byte{15: 7}}}},
			"0001" + "00026731" + "000174" + "00000001", "0004" + "0000000000000003" + "00000000" + "01" + "0000000000000009" + "01" + "00" + "10" + "00000000000000000000000000000007",
		},
		{
			"an offset with an expiry of its own", Record{Offset: &OffsetRecord{Key: OffsetKey{"g1", TopicPartition{"t", 1}}, Value: &Offset{Offset: 3, LeaderEpoch: 5, Metadata: "m", CommitMs: 9, ExpireMs: 10, TopicID: [16]byte{15: 7}}}},
			"0001" + "00026731" + "000174" + "00000001", "0001" + "0000000000000003" + "00016d" + "0000000000000009" + "000000000000000a",
		},
		{"an offset that is gone", Record{Offset: &OffsetRecord{Key: OffsetKey{"g1", TopicPartition{"t", 1}}}}, "0001" + "00026731" + "000174" + "00000001", "-"},
	} {
		key, value := c.r.Append(nil)
		got := "-"
		if value != nil {
			got = hex.EncodeToString(value)
		}
		if hex.EncodeToString(key) != c.key || got != c.value {
			t.Errorf("%s:\n%x %s\nwant\n%s %s", c.name, key, got, c.key, c.value)
		}
	}
}

func TestForeignRecords(t *testing.T) {
	r, err := ParseRecord(noProducer, []byte{0, 11, 0, 1, 'g'}, nil)
	if err != nil || r.Foreign == nil || r.Foreign.Type != 11 {
		t.Fatalf("%+v %v", r, err)
	}
	if s := NewState().Apply(0, []Record{r}); s.NumGroups() != 0 || s.Foreign() != 1 {
		t.Fatalf("%d groups, %d foreign records", s.NumGroups(), s.Foreign())
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte{0, 2, 0, 1, 'g'}, []byte{0, 3, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 1}, []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 10})
	f.Add([]byte{0, 9}, []byte{})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := ParseRecord(noProducer, key, value)
		if err != nil || r.Foreign != nil {
			return
		}
		k, v := r.Append(nil)
		again, err := ParseRecord(noProducer, k, v)
		if err != nil {
			t.Fatalf("what was read and written cannot be read: %v", err)
		}
		k2, v2 := again.Append(nil)
		if !bytes.Equal(k, k2) || !bytes.Equal(v, v2) {
			t.Fatalf("%x %x became %x %x", k, v, k2, v2)
		}
		NewState().Apply(0, []Record{r})
	})
}

func BenchmarkApplyCommit(b *testing.B) {
	s := NewState()
	for i := 0; b.Loop(); i++ {
		s = s.Apply(int64(i), []Record{{Producer: noProducer, Offset: &OffsetRecord{
			Key: OffsetKey{"g", TopicPartition{"t", int32(i % 100)}}, Value: &Offset{Offset: int64(i), ExpireMs: -1},
		}}})
	}
}
