package schema

import (
	"strings"
	"testing"
)

func TestLoadOwnTexts(t *testing.T) {
	all, err := Load(Texts())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 92 {
		t.Errorf("%d messages, Kafka 4.3.1 has 92", len(all))
	}
	for _, m := range all {
		if m.About == "" {
			t.Errorf("%s has no comment", m.Name)
		}
	}
}

func TestRender(t *testing.T) {
	ms, err := Parse("x.txt", `
# Doc.
Thing apiKey=3 versions=0-1 flexible=1+
  topicId  uuid      0+
  note     string?   1+ tag=0 default=null  # why
  parts    []struct? 0+
    n      int32     0
    kids   []Kid     0+
  struct Kid
    blob   bytes     0+
`)
	if err != nil {
		t.Fatal(err)
	}
	want := `v0: struct
  topic_id UUID
  parts ARRAY? of struct
    n INT32
    kids ARRAY of struct
      blob BYTES
v1: struct
  topic_id UUID
  parts COMPACT_ARRAY? of struct
    kids COMPACT_ARRAY of struct
      blob COMPACT_BYTES
      TAGS
    TAGS
  TAGS
    tag 0: note COMPACT_NULLABLE_STRING
`
	if got := ms[0].Render(0) + ms[0].Render(1); got != want {
		t.Errorf("got\n%s", got)
	}
	if ms[0].About != "Doc." || ms[0].Fields[1].About != "why" {
		t.Errorf("comments: %q, %q", ms[0].About, ms[0].Fields[1].About)
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"A versions=0 flexible=0+\n  x int32", "x.txt:2: a field needs"},
		{"A versions=0 flexible=0+\n  x int33 0+", `unknown type or empty struct "int33"`},
		{"A versions=0 flexible=0+\n  x struct 0+", "empty struct"},
		{"A versions=0 flexible=0+\n  x int32 0+ tag=1\n  y int32 0+ tag=1", "tag 1 is taken"},
		{"A versions=0-1 flexible=1+\n  x int32 0+ tag=1", "which is not flexible"},
		{"A versions=0 flexible=0+\n    x int32 0+", "x.txt:2: indented by 4"},
		{"A flexible=0+", "needs versions"},
		{"A versions=0+ flexible=0+", "needs versions"},
		{"A versions=2-1", "bad version range"},
		{"A versions=0 color=red", `unknown word "color=red"`},
		{"A versions=0 flexible=0+\n  x int32 0+ fast", `unknown word "fast"`},
		{"  x int32 0+", "fits no message"},
	} {
		_, err := Parse("x.txt", c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestGoName(t *testing.T) {
	for name, want := range map[string]string{
		"topicId": "TopicID", "partitionIds": "PartitionIDs", "isr": "ISR", "lastKnownElr": "LastKnownELR",
		"kraftVersionFeature": "KRaftVersionFeature", "topicIdPartition": "TopicIDPartition", "crc": "CRC",
		"rebalanceTimeoutMs": "RebalanceTimeoutMs", "endPoints": "EndPoints",
	} {
		if got := GoName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
