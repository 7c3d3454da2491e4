package classic

import (
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestSubscription(t *testing.T) {
	for v := int16(0); v <= 3; v++ {
		m := kmsg.NewConsumerMemberMetadata()
		m.Version, m.Topics = v, []string{"b", "a"}
		got := map[string]bool{}
		if !subscription(m.AppendTo(nil), got) || !slices.Equal(slices.Sorted(maps.Keys(got)), []string{"a", "b"}) {
			t.Errorf("version %d: %v", v, got)
		}
	}
	for _, b := range [][]byte{nil, {0, 0}, {0xff, 0xff, 0, 0, 0, 0}, {0, 0, 0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 1, 0, 9, 'a'}} {
		if subscription(b, map[string]bool{}) {
			t.Errorf("%x was read", b)
		}
	}
}

func FuzzSubscription(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 1, 0, 1, 'a'})
	f.Add([]byte{0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		topics := map[string]bool{}
		subscription(b, topics)
		if len(topics) > len(b) {
			t.Fatalf("%d topics from %d bytes", len(topics), len(b))
		}
	})
}
