package testnode_test

import (
	"testing"

	"weir/test/testnode"
)

// TestNode is the life that every other test here builds on.
func TestNode(t *testing.T) {
	for _, system := range []testnode.System{testnode.Ours, testnode.Apache} {
		t.Run(string(system), func(t *testing.T) {
			testnode.Oracle(t)
			n := testnode.New(t, testnode.Options{System: system, Formatter: testnode.Apache})
			n.Start(t)
			n.Restart(t)
			n.Kill(t)
			if n.Running() {
				t.Fatal("runs after kill -9")
			}
			n.Start(t)
			n.Stop(t)
		})
	}
}
