package config

import (
	"testing"
	"time"
)

// A consumer group has its own settings, within what the broker allows, or the broker's, of which
// group.consumer.assignment.interval.ms may change while it runs.
func TestGroupMs(t *testing.T) {
	s, _, err := Load("s.properties", []byte("process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@h:1\nlisteners=PLAINTEXT://:1,C://:2\ncontroller.listener.names=C\nlog.dirs=/d\n"+
		"group.consumer.max.session.timeout.ms=50000\ngroup.consumer.heartbeat.interval.ms=6000\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	now := NewEffective(s, map[string]string{"group.consumer.assignment.interval.ms": "70"}, nil)
	for _, c := range []struct {
		key, own string
		want     time.Duration
	}{
		{"consumer.session.timeout.ms", "", 45 * time.Second},
		{"consumer.session.timeout.ms", "46000", 46 * time.Second},
		{"consumer.session.timeout.ms", "60000", 50 * time.Second},
		{"consumer.session.timeout.ms", "1", 45 * time.Second},
		{"consumer.heartbeat.interval.ms", "", 6 * time.Second},
		{"consumer.heartbeat.interval.ms", "7000", 7 * time.Second},
		{"consumer.assignment.interval.ms", "", 70 * time.Millisecond},
		{"consumer.assignment.interval.ms", "0", 0},
		{"consumer.assignment.interval.ms", "x", 70 * time.Millisecond},
	} {
		own := map[string]string{}
		if c.own != "" {
			own[c.key] = c.own
		}
		if got := now.GroupMs(c.key, own); got != c.want {
			t.Errorf("%s %q: %v, not %v", c.key, c.own, got, c.want)
		}
	}
}
