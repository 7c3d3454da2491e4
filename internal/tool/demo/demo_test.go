package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]string{"k 2": "k2", "k2": "k2", " s  3 ": "s3", "t 1": "t1", "q": "q0", "": "0"} {
		cmd, id, err := parse(line)
		if got := cmd + string(rune('0'+id)); err != nil || got != want {
			t.Errorf("%q: %s, %v", line, got, err)
		}
	}
	for line, want := range map[string]string{"k": "needs the number of a node, as in: k 2", "k two": "needs the number", "kill 2": "is no command", "x": "q ends"} {
		if _, _, err := parse(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestView(t *testing.T) {
	part := func(leader int32, isr ...int32) kmsg.MetadataResponseTopicPartition {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Leader, p.Replicas, p.ISR = leader, []int32{1, 2}, isr
		return p
	}
	v := view{
		bootstrap: []string{"127.0.0.1:9092"}, dir: "/d", said: "node 2 was killed",
		nodes: []nodeView{{id: 1, port: 9092, pid: 17, state: "running", memory: 20 << 20}, {id: 2, port: 9093, state: "killed"}},
		topic: topicView{
			partitions: []kmsg.MetadataResponseTopicPartition{part(1, 1), part(-1)}, controller: 1,
			acked: 5, writes: 100, reads: 99, gap: 153 * time.Millisecond, err: "the last one",
		},
	}
	var out strings.Builder
	v.write(&out)
	for _, want := range []string{
		"1      127.0.0.1:9092   17    running   20 MB    1       active controller", "2      127.0.0.1:9093   -     killed    -        0",
		"demo-0      1        1 2        1", "demo-0      none", "100 records/s", "5 acknowledged, 0 failed", "153ms", "last error: the last one", "node 2 was killed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}
