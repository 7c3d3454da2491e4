package dirs

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"weir/internal/uuid"
	"weir/internal/vfs/errfs"
)

// TestRecoveryTellsHowLong: recovery that takes long says how far it is and how long it still takes; a start that recovers
// nothing tells of logs alone.
func TestRecoveryTellsHowLong(t *testing.T) {
	n := newNode(t)
	n.start()
	sum := int64(0)
	for p := range int32(6) {
		l, _ := n.create(tp("t", p), uuid.UUID{0: 1, 15: 9})
		n.append(l, "a", "b", "c")
		sum += l.Size()
	}
	slowly := func() {
		n.fs = errfs.Wrap(n.disk, errfs.Rule{Op: errfs.Read, Path: "*.log", Before: func() { n.clock.Advance(2 * time.Second) }})
	}
	n.die()
	if err := n.disk.Remove("/a/" + hintFile); err != nil {
		t.Fatal(err)
	}
	slowly()
	n.start()
	lines := regexp.MustCompile(`msg="still [a-z ]+".* done=(\d) of=6 bytes=(\d+) "of bytes"=(\d+) eta=(\S+)`).FindAllStringSubmatch(n.log.String(), -1)
	etas := 0
	for _, m := range lines {
		if m[3] != fmt.Sprint(sum) {
			t.Errorf("%s, want %d bytes in all", m[0], sum)
		}
		if d, err := time.ParseDuration(m[4]); err == nil && d > 0 && m[2] != "0" {
			etas++
		}
	}
	if etas == 0 {
		t.Errorf("no line tells how long it still takes:\n%s", n.log.String())
	}
}

func TestETA(t *testing.T) {
	for _, c := range []struct {
		took        time.Duration
		done, total int64
		want        string
	}{
		{time.Minute, 0, 100, "unknown"}, {time.Minute, 25, 100, "3m0s"}, {10 * time.Second, 100, 100, "0s"}, {time.Second, 1 << 40, 3 << 40, "2s"},
	} {
		if got := eta(c.took, c.done, c.total); got != c.want {
			t.Errorf("%d of %d after %v: %s, want %s", c.done, c.total, c.took, got, c.want)
		}
	}
}
